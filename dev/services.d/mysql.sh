# shellcheck shell=bash
# MySQL of Debian unstable: Debian stable has none. The contract of these functions is in
# ../lib/service.sh.

service_installed() { [[ -d $(newer_folder sid mysql) ]]; }

# The client comes from MariaDB, as in the service `mariadb`.
service_install() {
    newer_packages sid mysql mysql-server-core || return 1
    command -v mariadb >/dev/null || apt_install mariadb-client-core
}

service_version() { mysqld --version | sed 's/.*Ver \([^ ]*\).*/\1/'; }

# As ourselves: another user could not reach the programs in the cache of root. --user allows that.
service_user() { :; }

service_port_count() { say 1; }

service_create() {
    mysqld --initialize-insecure --datadir="$DATA" --user="$(id -un)" --lc-messages-dir="$(messages)"
}

# Durability is the default (two flushes per commit, with the binary log), and so are password check
# (caching_sha2_password) and TLS with a certificate made by the server. No Unix socket: its path may
# be too long.
service_start() {
    install -m 0644 "$DEV_DIR/services.d/mysql.sql" "$DATA/init.sql"
    mysql_program
    launch mysql "${NEWER[@]}" --no-defaults --basedir="$(newer_folder sid mysql)/usr" \
        --lc-messages-dir="$(messages)" --datadir="$DATA" --user="$(id -un)" \
        --bind-address=127.0.0.1 --port="${PORTS[0]}" --socket= --mysqlx=OFF --skip-name-resolve \
        --pid-file="$DATA/mysql.pid" --init-file="$DATA/init.sql" --tmpdir="$DATA" \
        --secure-file-priv=NULL --character-set-server=utf8mb4 \
        --max-connections=300 --innodb-buffer-pool-size=512M
}

service_ready() {
    timeout 3 mariadb --no-defaults --host=127.0.0.1 --port="${PORTS[0]}" --user=postrider \
        --password=postrider --ssl --connect-timeout=2 --execute='SELECT 1' postrider
}

# The account and the database are made by the init file, before the server answers.
service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say MYSQL_URL; }

service_url() { say "mysql://postrider:postrider@127.0.0.1:${PORTS[0]}/postrider"; }

mysqld() {
    mysql_program
    "${NEWER[@]}" --no-defaults --basedir="$(newer_folder sid mysql)/usr" "$@"
}

mysql_program() { newer_program sid mysql sbin/mysqld; }

messages() { say "$(newer_folder sid mysql)/usr/share/mysql"; }
