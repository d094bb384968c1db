# shellcheck shell=bash
# What the scripts tell people. Results go to stdout, everything else to stderr, so that
# `eval "$(dev/services env)"` and `url=$(dev/services instance …)` read results alone.

say() { printf '%s\n' "$*"; }

note() { printf '%s\n' "$*" >&2; }

# fail CAUSE [FIX]: the command cannot be carried out as it was asked for.
fail() {
    note "error: $1"
    if [[ -n ${2-} ]]; then note "  fix: $2"; fi
    exit 2
}
