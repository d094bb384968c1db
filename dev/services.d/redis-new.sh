# shellcheck shell=bash
# Redis of a newer Debian, a single node: it says when its append-only file is on the disk (WAITAOF,
# since 7.2), which the machine's own may not. The contract of these functions is in ../lib/service.sh.

service_installed() { [[ -d $(newer_folder trixie redis) ]]; }

service_install() { newer_packages trixie redis redis-server redis-tools; }

service_version() {
    newer_program trixie redis bin/redis-server
    "${NEWER[@]}" --version | sed 's/.* v=\([^ ]*\).*/\1/'
}

service_user() { :; }

service_port_count() { say 1; }

service_create() { :; }

# As the service `redis`.
service_start() {
    newer_program trixie redis bin/redis-server
    launch redis "${NEWER[@]}" --bind 127.0.0.1 --port "${PORTS[0]}" --dir "$DATA" \
        --appendonly yes --save '' --set-proc-title no
}

service_ready() {
    newer_program trixie redis bin/redis-cli
    [[ $(timeout 3 "${NEWER[@]}" -h 127.0.0.1 -p "${PORTS[0]}" PING) == PONG ]]
}

service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say REDIS_NEW_URL; }

service_url() { say "redis://127.0.0.1:${PORTS[0]}/"; }
