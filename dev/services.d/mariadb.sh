# shellcheck shell=bash
# MariaDB. The contract of these functions is in ../lib/service.sh.

service_installed() {
    command -v mariadb >/dev/null && [[ -n $(mariadb_server) ]] &&
        command -v mariadb-install-db >/dev/null
}

# The -core packages hold the programs without a system service, so Debian starts nothing.
service_install() { apt_install mariadb-server-core mariadb-client-core; }

service_version() { "$(mariadb_server)" --no-defaults --version | sed 's/.*Ver \([^ ]*\).*/\1/'; }

# MariaDB refuses to run as root. The -core packages bring no user `mysql`.
service_user() {
    if id -u mysql >/dev/null 2>&1; then say mysql; else say nobody; fi
}

service_port_count() { say 1; }

# Run as the owner and not with --user: as root, the script trips over spaces in the path. TMPDIR: a
# server that starts deletes the temporary tables it finds, also those of another one in /tmp.
service_create() {
    TMPDIR="$DATA" "${AS_OWNER[@]}" mariadb-install-db --no-defaults --datadir="$DATA" \
        --skip-test-db --skip-name-resolve
}

# Durability is the default (a flush per commit). No Unix socket: its path may be too long. The init
# file is copied, because the server's user may not be able to read this folder.
service_start() {
    server_options
    launch mariadb "$(mariadb_server)" --no-defaults "${SERVER_OPTIONS[@]}"
}

# Sets SERVER_OPTIONS.
server_options() {
    install -m 0644 "$DEV_DIR/services.d/mariadb.sql" "$DATA/init.sql"
    SERVER_OPTIONS=(
        --datadir="$DATA" --bind-address=127.0.0.1 --port="${PORTS[0]}" --socket= --skip-name-resolve
        --pid-file="$DATA/mariadb.pid" --init-file="$DATA/init.sql" --tmpdir="$DATA"
        --max-connections=300 --innodb-buffer-pool-size=512M --character-set-server=utf8mb4
    )
}

service_ready() {
    timeout 3 mariadb --no-defaults --host=127.0.0.1 --port="${PORTS[0]}" --user=postrider \
        --password=postrider --connect-timeout=2 --execute='SELECT 1' postrider
}

# The account and the database are made by the init file, before the server answers.
service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say MARIADB_URL; }

service_url() { say "mysql://postrider:postrider@127.0.0.1:${PORTS[0]}/postrider"; }

# Debian keeps the server out of a plain user's PATH.
mariadb_server() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v mariadbd || true; }
