# shellcheck shell=bash
# What cargo needs beside Rust: librdkafka is compiled from source, against OpenSSL and zlib.

# Returns 1 with cause and fix in $REASON when it cannot provide them. Finds $ROOT.
provide_build_tools() {
    local target=${CARGO_TARGET_DIR:-$ROOT/target}
    if [[ $target == *[[:space:]]* ]]; then
        REASON="librdkafka cannot be compiled in '$target', a path with a blank; set CARGO_TARGET_DIR to one without"
        return 1
    fi
    if can_build_librdkafka; then return 0; fi
    apt_install build-essential pkg-config libssl-dev zlib1g-dev || return 1
    if ! can_build_librdkafka; then
        REASON="the packages are installed, but cc, make or pkg-config does not find openssl and zlib"
        return 1
    fi
}

can_build_librdkafka() {
    command -v cc make pkg-config >/dev/null && pkg-config --exists openssl zlib
}
