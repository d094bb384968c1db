# shellcheck shell=bash
# PgBouncer in transaction mode, in front of the PostgreSQL of this checkout: what `postrider doctor`
# must find. The contract of these functions is in ../lib/service.sh.

service_installed() { command -v pgbouncer >/dev/null; }

service_install() { apt_install pgbouncer; }

service_version() { pgbouncer --version | sed -n '1s/.* //p'; }

# It refuses to run as root, like the server behind it.
service_user() { say postgres; }

service_port_count() { say 1; }

service_create() { :; }

# Whoever comes is let in as the one user that there is. The port behind it may change from start to
# start, so the settings are written each time.
service_start() {
    local behind tries
    # Services start side by side; the other one chooses its port within moments.
    for ((tries = 0; tries < 100; tries++)); do
        if read -r behind 2>/dev/null <"$SERVICES_DIR/postgres/ports"; then break; fi
        sleep 0.1
    done
    "${AS_OWNER[@]}" tee "$DATA/pgbouncer.ini" >/dev/null <<INI
[databases]
* = host=127.0.0.1 port=${behind:-5432} user=postrider password=postrider
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${PORTS[0]}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
ignore_startup_parameters = extra_float_digits
INI
    launch pgbouncer pgbouncer "$DATA/pgbouncer.ini"
}

service_ready() { timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/${PORTS[0]}"; }

service_prepare() { :; }

service_stop_signal() { say INT; }

service_variable() { say PGBOUNCER_URL; }

service_url() { say "postgres://postrider:postrider@127.0.0.1:${PORTS[0]}/postrider"; }
