# shellcheck shell=bash
# PostgreSQL. The contract of these functions is in ../lib/service.sh.

service_installed() { [[ -x $(postgres_bin)/initdb ]]; }

service_install() { apt_install postgresql; }

service_version() { "$(postgres_bin)/postgres" --version | cut -d " " -f 3; }

# PostgreSQL refuses to run as root.
service_user() { say postgres; }

service_port_count() { say 1; }

# The superuser is `postrider` from the beginning. Sorting by bytes gives the same order on each
# machine. --no-sync skips only the flush of the fresh files; the server itself runs with fsync.
service_create() { make_cluster; }

make_cluster() {
    local password_file
    # A file and not a pipe: the server's user may not open a pipe of ours.
    password_file=$(mktemp)
    say postrider >"$password_file"
    chmod 0644 "$password_file"
    "${AS_OWNER[@]}" "$(postgres_bin)/initdb" --pgdata="$(cluster)" --username=postrider \
        --pwfile="$password_file" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C --no-sync
    rm "$password_file"
}

# fsync stays on: published figures depend on it. wal_level=logical is for change capture, with
# room for the slots of tests that run side by side; prepared transactions are what `doctor` must
# find. No Unix socket: its path may be too long.
service_start() {
    drop_stale_lock
    launch postgres "$(postgres_bin)/postgres" -D "$(cluster)" \
        -c listen_addresses=127.0.0.1 -c port="${PORTS[0]}" -c unix_socket_directories= \
        -c max_connections=300 -c shared_buffers=256MB -c fsync=on \
        -c wal_level=logical -c max_wal_senders=50 -c max_replication_slots=50 \
        -c max_prepared_transactions=20
}

service_ready() {
    "$(postgres_bin)/pg_isready" --quiet --timeout=2 --host=127.0.0.1 --port="${PORTS[0]}"
}

service_prepare() {
    if [[ -z $(postgres_sql "SELECT 1 FROM pg_database WHERE datname = 'postrider'") ]]; then
        postgres_sql 'CREATE DATABASE postrider'
    fi
}

# SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
service_stop_signal() { say INT; }

service_variable() { say POSTGRES_URL; }

service_url() { say "postgres://postrider:postrider@127.0.0.1:${PORTS[0]}/postrider"; }

cluster() { say "$DATA"; }

# Debian keeps the programs out of PATH, one folder a version. Data made by one major version can
# be opened by that one only.
postgres_bin() {
    local made_by=
    if [[ $EUID -eq 0 || -r $DATA/PG_VERSION ]]; then
        made_by=$(cat "$DATA/PG_VERSION" 2>/dev/null || true)
    fi
    if [[ -n $made_by && -x /usr/lib/postgresql/$made_by/bin/postgres ]]; then
        say "/usr/lib/postgresql/$made_by/bin"
    elif compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
        dirname "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort --version-sort | tail -n 1)"
    else
        dirname "$(command -v initdb || say /missing/initdb)"
    fi
}

# After a crash, PostgreSQL takes its lock file for valid as long as its pid exists: for ever, if
# that is a zombie and nobody reaps it (a container without an init), or if the pid is somebody
# else's by now.
drop_stale_lock() {
    local lock pid
    lock="$(cluster)/postmaster.pid"
    if [[ -f $lock ]] && read -r pid <"$lock" && ! pid_is_ours "$pid"; then rm -f "$lock"; fi
}

postgres_sql() {
    PGPASSWORD=postrider timeout 30 "$(postgres_bin)/psql" --no-psqlrc --quiet --no-align \
        --tuples-only --set=ON_ERROR_STOP=1 --host=127.0.0.1 --port="${PORTS[0]}" \
        --username=postrider --dbname=postgres --command="$1"
}
