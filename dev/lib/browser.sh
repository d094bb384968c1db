# shellcheck shell=bash
# A browser for the tests of the page. Returns 1 with cause and fix in $REASON when it cannot provide
# one.

# Chromium and its driver are Debian's, and so of the same version. axe-core goes to target/axe, so
# that nothing of it is in the repository.
provide_browser() {
    local folder="$ROOT/target/axe" log="$ROOT/target/axe.log"
    if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
        apt_install chromium chromium-driver || return 1
    fi
    if ! command -v npm >/dev/null; then
        apt_install nodejs npm || return 1
    fi
    # npm writes this file last: without it an installation was cut off.
    if [[ ! -f $folder/node_modules/.package-lock.json ]]; then
        note "installing npm packages into target/axe: axe-core"
        mkdir -p "$folder"
        if ! npm install --prefix "$folder" --no-audit --no-fund axe-core@4 >"$log" 2>&1; then
            REASON="npm install axe-core failed: $(grep -m 1 -iE 'err(or|!)' "$log") (log: $log)"
            return 1
        fi
    fi
    CHROMIUM=$(command -v chromium)
    CHROMEDRIVER=$(command -v chromedriver)
    export CHROMIUM CHROMEDRIVER AXE="$folder/node_modules/axe-core/axe.min.js"
}
