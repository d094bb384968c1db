# shellcheck shell=bash
# Python and Node.js, for the tests which show that any language can append with plain SQL. Each
# function returns 1 with cause and cure in $REASON when it cannot provide its language.

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
