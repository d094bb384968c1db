# shellcheck shell=bash
# NATS with JetStream, a single node. The contract of these functions is in ../lib/service.sh.

service_installed() { [[ -n $(nats_server) ]] && command -v openssl >/dev/null; }

service_install() { apt_install nats-server openssl; }

service_version() { "$(nats_server)" --version | sed 's/.*v//'; }

service_user() { :; }

service_port_count() { say 1; }

service_create() {
    make_certificate
    cat >"$DATA/nats.conf" <<SETTINGS
tls { cert_file: "$DATA/tls/server.crt", key_file: "$DATA/tls/server.key" }
allow_non_tls: true
SETTINGS
}

# No account, and TLS for those who ask for it: the port is on the loopback address only.
service_start() {
    launch nats "$(nats_server)" --config "$DATA/nats.conf" --addr 127.0.0.1 --port "${PORTS[0]}" \
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

service_more_variables() { printf 'NATS_CA=%q\n' "$DATA/tls/server.crt"; }

# Debian keeps the server out of a plain user's PATH.
nats_server() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v nats-server || true; }
