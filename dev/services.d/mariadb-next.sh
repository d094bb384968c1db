# shellcheck shell=bash
# The newest long-term MariaDB, of the next Debian stable. The contract of these functions is in
# ../lib/service.sh.

# shellcheck source=/dev/null
source "$DEV_DIR/services.d/mariadb.sh"

service_installed() { [[ -d $(newer_folder trixie mariadb) ]] && command -v mariadb >/dev/null; }

service_install() {
    newer_packages trixie mariadb mariadb-server-core mariadb-client-core || return 1
    command -v mariadb >/dev/null || apt_install mariadb-client-core
}

service_version() { mariadbd_next --version | sed 's/.*Ver \([^ ]*\).*/\1/'; }

# As ourselves: another user could not reach the programs in the cache of root. --user allows that.
service_user() { :; }

# What mariadb-install-db does; that script starts programs without their loader.
service_create() {
    local tables
    tables="$(newer_folder trixie mariadb)/usr/share/mariadb"
    {
        # A line each: the server reads one statement at a time here.
        printf '%s;\n' 'CREATE DATABASE mysql' 'USE mysql' 'SET @auth_root_socket = NULL'
        cat "$tables"/mariadb_{system_tables,performance_tables,system_tables_data}.sql
    } | mariadbd_next --bootstrap --datadir="$DATA" --tmpdir="$DATA" --user="$(id -un)"
}

service_start() {
    server_options
    newer_program trixie mariadb sbin/mariadbd
    launch mariadb "${NEWER[@]}" --no-defaults --user="$(id -un)" --lc-messages-dir="$(messages)" \
        --character-sets-dir="$(messages)/charsets" "${SERVER_OPTIONS[@]}"
}

service_variable() { say MARIADB_NEXT_URL; }

mariadbd_next() {
    newer_program trixie mariadb sbin/mariadbd
    "${NEWER[@]}" --no-defaults --lc-messages-dir="$(messages)" \
        --character-sets-dir="$(messages)/charsets" "$@"
}

messages() { say "$(newer_folder trixie mariadb)/usr/share/mariadb"; }
