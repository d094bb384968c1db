# shellcheck shell=bash
# RabbitMQ, a single node. The contract of these functions is in ../lib/service.sh.
#
# Three ports: AMQP, Erlang's own protocol, and epmd, the name server of Erlang nodes. With an epmd
# of its own the node neither sees nor disturbs another RabbitMQ on this machine.

# Debian's /usr/sbin/rabbitmq-server insists on the system's own user and folders; this one does not.
RABBITMQ_SERVER=/usr/lib/rabbitmq/bin/rabbitmq-server

service_installed() { [[ -x $RABBITMQ_SERVER ]] && command -v epmd >/dev/null; }

service_install() { apt_install rabbitmq-server; }

service_version() { dpkg-query --show --showformat '${Version}' rabbitmq-server | cut -d - -f 1; }

service_user() { :; }

service_port_count() { say 3; }

# The account is made at the first start of the node.
service_create() {
    cat >"$DATA/rabbitmq.conf" <<'SETTINGS'
default_user = postrider
default_pass = postrider
log.console = true
log.console.level = warning
log.file = false
SETTINGS
    say '[].' >"$DATA/enabled_plugins"
    : >"$DATA/environment"
}

# Each process is recognised by $DATA in its command line: epmd has it as its name, and the node as
# an argument that nobody reads. RUNNING_UNDER_SYSTEMD makes the script become the node, so that the
# pid is the node's.
service_start() {
    # shellcheck disable=SC2016 # $0 and $@ are the inner shell's
    launch epmd bash -c 'exec -a "$0" epmd "$@"' "epmd of $DATA" \
        -port "${PORTS[2]}" -address 127.0.0.1
    launch rabbitmq env HOME="$DATA" RUNNING_UNDER_SYSTEMD=1 \
        ERL_EPMD_PORT="${PORTS[2]}" ERL_EPMD_ADDRESS=127.0.0.1 \
        RABBITMQ_NODENAME="postrider-${PORTS[0]}@localhost" \
        RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="${PORTS[0]}" \
        RABBITMQ_DIST_PORT="${PORTS[1]}" \
        RABBITMQ_CONF_ENV_FILE="$DATA/environment" RABBITMQ_CONFIG_FILE="$DATA/rabbitmq.conf" \
        RABBITMQ_ENABLED_PLUGINS_FILE="$DATA/enabled_plugins" \
        RABBITMQ_MNESIA_BASE="$DATA/mnesia" RABBITMQ_LOG_BASE="$DATA" \
        RABBITMQ_PID_FILE="$DATA/rabbitmq.pid" \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} \
            -postrider_data $DATA" \
        "$RABBITMQ_SERVER"
}

# The node answers an AMQP header with its first frame: a method (1) on channel 0.
service_ready() {
    local answer
    # shellcheck disable=SC2016 # $0 is the inner shell's
    answer=$(timeout 3 bash -c '
        exec 3<>"/dev/tcp/127.0.0.1/$0"
        printf "AMQP\0\0\x09\x01" >&3
        head -c 3 <&3 | od -An -tx1' "${PORTS[0]}")
    [[ $answer == *"01 00 00" ]]
}

service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say RABBITMQ_URL; }

service_url() { say "amqp://postrider:postrider@127.0.0.1:${PORTS[0]}/%2f"; }
