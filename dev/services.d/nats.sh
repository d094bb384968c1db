# shellcheck shell=bash
# NATS with JetStream, a single node. The contract of these functions is in ../lib/service.sh.

service_installed() { [[ -n $(nats_server) ]]; }

service_install() { apt_install nats-server; }

service_version() { "$(nats_server)" --version | sed 's/.*v//'; }

service_user() { :; }

service_port_count() { say 1; }

service_create() { :; }

# No account and no TLS: the port is on the loopback address only.
service_start() {
    launch nats "$(nats_server)" --addr 127.0.0.1 --port "${PORTS[0]}" \
        --jetstream --store_dir "$DATA" --pid "$DATA/nats.pid"
}

# The server greets each client with a line that tells about itself.
service_ready() {
    local greeting
    # shellcheck disable=SC2016 # $0 and $line are the inner shell's
    greeting=$(timeout 3 bash -c 'read -r line <"/dev/tcp/127.0.0.1/$0"; echo "$line"' "${PORTS[0]}")
    [[ $greeting == INFO*'"jetstream":true'* ]]
}

service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say NATS_URL; }

service_url() { say "nats://127.0.0.1:${PORTS[0]}"; }

# Debian keeps the server out of a plain user's PATH.
nats_server() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v nats-server || true; }
