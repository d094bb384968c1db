# shellcheck shell=bash
# Redis Cluster: three masters, no replicas. The contract of these functions is in
# ../lib/service.sh.

service_installed() { command -v redis-server >/dev/null && command -v redis-cli >/dev/null; }

service_install() { apt_install redis-server redis-tools; }

service_version() { redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/'; }

service_user() { :; }

service_port_count() { say 3; }

service_create() { mkdir -p "$DATA"/node-{1,2,3}; }

# As in redis.sh, once per node. The bus between the nodes listens 10,000 above each port.
service_start() {
    local node
    for node in 1 2 3; do
        launch "node-$node" redis-server --bind 127.0.0.1 --port "${PORTS[node - 1]}" \
            --dir "$DATA/node-$node" --appendonly yes --save '' --set-proc-title no \
            --cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 5000
    done
}

# The nodes answer. Whether they form a cluster is service_prepare's business.
service_ready() {
    local port
    for port in "${PORTS[@]}"; do
        [[ $(timeout 3 redis-cli -h 127.0.0.1 -p "$port" PING) == PONG ]] || return 1
    done
}

service_prepare() {
    if [[ $(cluster_info "${PORTS[0]}") == *cluster_slots_assigned:0* ]]; then
        timeout 60 redis-cli --cluster create "${PORTS[@]/#/127.0.0.1:}" \
            --cluster-replicas 0 --cluster-yes
    fi
    await_cluster
}

service_stop_signal() { say TERM; }

service_variable() { say REDIS_CLUSTER_URL; }

service_url() {
    local IFS=,
    say "redis://${PORTS[*]/#/127.0.0.1:}"
}

cluster_info() { timeout 3 redis-cli -h 127.0.0.1 -p "$1" CLUSTER INFO; }

# After a restart a node takes writes only when it has seen the others again, about two seconds.
await_cluster() {
    local deadline=$((SECONDS + READY_WAIT_SECONDS)) port
    for port in "${PORTS[@]}"; do
        until [[ $(cluster_info "$port") == *cluster_state:ok* ]]; do
            if ((SECONDS >= deadline)); then
                note "error: node $port does not say cluster_state:ok"
                return 1
            fi
            sleep 0.1
        done
    done
}
