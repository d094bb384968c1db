# shellcheck shell=bash
# Redis, a single node. The contract of these functions is in ../lib/service.sh.

service_installed() { command -v redis-server >/dev/null && command -v redis-cli >/dev/null; }

service_install() { apt_install redis-server redis-tools; }

service_version() { redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/'; }

service_user() { :; }

service_port_count() { say 1; }

service_create() { :; }

# The append-only file keeps the data through a kill as well as through a restart. The process title
# stays as it is, because a process is recognised by its command line.
service_start() {
    launch redis redis-server --bind 127.0.0.1 --port "${PORTS[0]}" --dir "$DATA" \
        --appendonly yes --save '' --set-proc-title no
}

service_ready() { [[ $(timeout 3 redis-cli -h 127.0.0.1 -p "${PORTS[0]}" PING) == PONG ]]; }

service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say REDIS_URL; }

service_url() { say "redis://127.0.0.1:${PORTS[0]}/"; }
