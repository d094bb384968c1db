# shellcheck shell=bash
# Programs of a newer Debian than this machine's, for servers whose old versions lack something or
# which this Debian does not have. They are unpacked with all of their libraries into a folder and run
# with the loader found there: the machine's own packages stay as they are, and root is not needed.
# SUITE is the Debian that they come from, such as trixie or sid (unstable).

# Outside target/: a second checkout, or `cargo clean`, does not download them again.
NEWER_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/postrider"

# newer_folder SUITE NAME: prints where the packages of NAME are.
newer_folder() { say "$NEWER_CACHE/$1-$2"; }

# newer_packages SUITE NAME PACKAGE…: downloads the packages with the libraries that they need, or returns 1
# with the cause in $REASON. The folder appears complete or not at all.
newer_packages() {
    local suite=$1 name=$2 folder work log="$SERVICES_DIR/newer-$2.log"
    shift 2
    folder=$(newer_folder "$suite" "$name")
    if [[ -d $folder ]]; then return 0; fi
    if ! command -v apt-get dpkg-deb >/dev/null; then
        REASON="no apt-get and dpkg-deb on this machine, which get $* of Debian $suite"
        return 1
    fi
    note "downloading $* of Debian $suite into $folder"
    mkdir -p "$NEWER_CACHE"
    work=$(mktemp -d)
    if ! newer_download "$suite" "$work" "$@" >"$log" 2>&1; then
        rm -rf "$work"
        REASON="$* of Debian $suite cannot be had: $(grep -m 1 '^E:' "$log") (log: $log)"
        return 1
    fi
    mv -T "$work/unpacked" "$folder.$$"
    rm -rf "$work"
    # Another checkout may have been first.
    mv -T "$folder.$$" "$folder" 2>/dev/null || rm -rf "$folder.$$"
}

# An apt of its own, with its own lists and no knowledge of what is installed. It checks signatures by
# Debian's keyring as the machine's apt does.
newer_download() (
    set -e
    cd "$2"
    local suite=$1
    shift 2
    local library='^(lib|zlib)' mirror packages package
    # Where this machine gets its own packages.
    # shellcheck disable=SC2016 # apt's own form
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/$') ||
        { say "E: apt on this machine names no mirror of Debian" && return 1; }
    mkdir -p state/lists/partial cache/archives/partial unpacked debs
    : >status
    say "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "$mirror $suite main" >sources.list
    cat >apt.conf <<SETTINGS
Dir::State "$PWD/state";
Dir::State::status "$PWD/status";
Dir::Cache "$PWD/cache";
Dir::Etc::sourcelist "$PWD/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "";
SETTINGS
    export APT_CONFIG="$PWD/apt.conf"
    apt-get update
    # Of what they depend on, libraries only: nothing is set up here, only run.
    packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
        --no-breaks --no-replaces --no-enhances "$@" | grep -E "^[a-z0-9]" | grep -E "$library")
    cd debs
    # shellcheck disable=SC2086 # names of packages
    apt-get download "$@" $packages
    for package in *.deb; do dpkg-deb --extract "$package" ../unpacked; done
)

# newer_program SUITE NAME PROGRAM: sets NEWER to the words that run it. PROGRAM is in usr/, such as
# bin/redis-server.
newer_program() {
    local folder libraries
    folder=$(newer_folder "$1" "$2")
    libraries=("$folder"/usr/lib/*-linux-gnu)
    NEWER=("${libraries[0]}"/ld-linux-*.so.* --library-path "${libraries[0]}" "$folder/usr/$3")
}
