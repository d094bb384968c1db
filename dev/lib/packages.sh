# shellcheck shell=bash
# Debian packages, installed only when a program is missing.
#
# Debian may start a server that it has just installed. Nothing here uses such a server: ours have
# their own ports and data folders. RUNLEVEL=1 asks Debian's init scripts not to start one (systemd
# does not listen to it, hence the hint at the end); packages without a unit are preferred.

# apt_install PACKAGE…: installs, or returns 1 with the cause and the cure in $REASON.
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
    if apt_get install "$@" >>"$log" 2>&1 ||
        { apt_get update && apt_get install "$@"; } >>"$log" 2>&1; then
        exec {lock}>&-
        hint_at_system_services
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

apt_get() {
    local verb=$1
    shift
    "${AS_ROOT[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get --yes --no-install-recommends -o DPkg::Lock::Timeout=120 "$verb" "$@" </dev/null
}

hint_at_system_services() {
    if [[ -d /run/systemd/system ]]; then
        note "Debian may have started a server of its own; Postrider does not use it." \
            "To stop it: systemctl disable --now <postgresql|redis-server|…>"
    fi
}
