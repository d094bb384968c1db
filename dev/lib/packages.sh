# shellcheck shell=bash
# Debian packages, installed only when a program is missing.
#
# Debian may start a server that it has just installed. Nothing here uses such a server: ours have
# their own ports and data folders. While we install, a policy-rc.d forbids starts; it is Debian's
# own way, which init scripts and systemd units obey alike.

POLICY=/usr/sbin/policy-rc.d

# apt_install PACKAGE…: installs, or returns 1 with the cause and the fix in $REASON.
apt_install() {
    local log="$SERVICES_DIR/apt.log" lock
    if ! command -v apt-get >/dev/null; then
        REASON="no apt-get on this machine; install the counterpart of: $*"
        return 1
    fi
    if ! become_root; then
        REASON="not root and no usable sudo; run: apt-get install --no-install-recommends $*"
        return 1
    fi
    note "installing Debian packages: $* (log: $log)"
    # Services start side by side, but apt-get works for one caller at a time.
    exec {lock}>"$SERVICES_DIR/apt.lock"
    flock "$lock"
    # The package lists are refreshed only if the first try fails: it takes longer than installing.
    if without_starting_servers apt_get install "$@" >>"$log" 2>&1 ||
        { apt_get update && without_starting_servers apt_get install "$@"; } >>"$log" 2>&1; then
        exec {lock}>&-
        return 0
    fi
    exec {lock}>&-
    REASON="apt-get install $* failed: $(grep '^E:' "$log" | tail -n 1) (all of it: $log)"
    return 1
}

# Sets AS_ROOT to the words that go before a command which needs root.
become_root() {
    AS_ROOT=()
    if [[ $EUID -eq 0 ]]; then return 0; fi
    command -v sudo >/dev/null || return 1
    AS_ROOT=(sudo)
    # With a terminal sudo may ask for the password; without one it would wait for ever.
    [[ -t 2 ]] || sudo -n true 2>/dev/null
}

# A policy of the machine's owner stays as it is; ours is gone again afterwards.
without_starting_servers() {
    local status=0
    if [[ -e $POLICY ]]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' | "${AS_ROOT[@]}" tee "$POLICY" >/dev/null
    "${AS_ROOT[@]}" chmod 0755 "$POLICY"
    "$@" || status=$?
    "${AS_ROOT[@]}" rm -f "$POLICY"
    return "$status"
}

apt_get() {
    local verb=$1
    shift
    "${AS_ROOT[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get --yes --no-install-recommends -o DPkg::Lock::Timeout=120 "$verb" "$@" </dev/null
}
