# shellcheck shell=bash
# Python and Node.js, for the tests which show that any language can append with plain SQL. Each
# function returns 1 with cause and fix in $REASON when it cannot provide its language.

# Debian's own Python, whatever `python3` is in PATH (pyenv, conda): the drivers are Debian's too.
provide_python() {
    PYTHON=/usr/bin/python3
    if ! python_has_drivers; then
        apt_install python3 python3-psycopg2 python3-pymysql || return 1
    fi
    if ! python_has_drivers; then
        REASON="the packages are installed, but $PYTHON cannot import psycopg2 and pymysql"
        return 1
    fi
    export PYTHON
}

python_has_drivers() { "$PYTHON" -c 'import psycopg2, pymysql' 2>/dev/null; }

# The drivers go to target/node, so that nothing is installed for the whole machine.
provide_node() {
    local folder="$ROOT/target/node" log="$ROOT/target/npm.log"
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        apt_install nodejs npm || return 1
    fi
    # npm writes this file last: without it an installation was cut off.
    if [[ ! -f $folder/node_modules/.package-lock.json ]]; then
        note "installing npm packages into target/node: pg mysql2"
        mkdir -p "$folder"
        if ! npm install --prefix "$folder" --no-audit --no-fund pg@8 mysql2@3 >"$log" 2>&1; then
            REASON="npm install pg mysql2 failed: $(grep -m 1 -iE 'err(or|!)' "$log") (log: $log)"
            return 1
        fi
    fi
    export NODE_PATH="$folder/node_modules"
}

# Schemathesis tries the API against its OpenAPI document. It goes to target/schemathesis, so that
# nothing is installed for the whole machine.
provide_schemathesis() {
    local folder="$ROOT/target/schemathesis" log="$ROOT/target/schemathesis.log"
    # pip writes the program last: without it an installation was cut off.
    if [[ ! -x $folder/bin/schemathesis ]]; then
        note "installing schemathesis into target/schemathesis"
        if ! /usr/bin/python3 -m venv --clear "$folder" >"$log" 2>&1; then
            apt_install python3-venv || return 1
            /usr/bin/python3 -m venv --clear "$folder" >"$log" 2>&1 || true
        fi
        if ! "$folder/bin/pip" install --quiet 'schemathesis>=4.32,<5' >>"$log" 2>&1; then
            REASON="pip install schemathesis failed: $(grep -m 1 -i error "$log") (log: $log)"
            return 1
        fi
    fi
    export SCHEMATHESIS="$folder/bin/schemathesis"
}

# Kits that others made: Standard Webhooks and CloudEvents receive deliveries, and openapi-python-client
# makes a client from the OpenAPI document. They go to target/foreign.
provide_foreign() {
    local folder="$ROOT/target/foreign" log="$ROOT/target/foreign.log"
    # Written last: without it an installation was cut off.
    if [[ ! -f $folder/complete ]]; then
        note "installing standardwebhooks, cloudevents and openapi-python-client into target/foreign"
        if ! /usr/bin/python3 -m venv --clear "$folder" >"$log" 2>&1; then
            apt_install python3-venv || return 1
            /usr/bin/python3 -m venv --clear "$folder" >"$log" 2>&1 || true
        fi
        if ! "$folder/bin/pip" install --quiet 'standardwebhooks>=1.1,<2' 'cloudevents>=2.2,<3' \
            'openapi-python-client>=0.29,<0.30' >>"$log" 2>&1; then
            REASON="pip install failed: $(grep -m 1 -i error "$log") (log: $log)"
            return 1
        fi
        : >"$folder/complete"
    fi
    export FOREIGN_PYTHON="$folder/bin/python"
}

# promtool checks alert rules and metrics as Prometheus reads them.
provide_promtool() {
    if command -v promtool >/dev/null; then
        PROMTOOL=$(command -v promtool)
    else
        newer_packages trixie promtool promtool || return 1
        PROMTOOL="$(newer_folder trixie promtool)/usr/bin/promtool"
    fi
    if ! "$PROMTOOL" --version >/dev/null 2>&1; then
        REASON="$PROMTOOL does not run"
        return 1
    fi
    export PROMTOOL
}
