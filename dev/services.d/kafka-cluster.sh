# shellcheck shell=bash
# Apache Kafka with two brokers, for tests in which the leader of a partition changes. The contract
# of these functions is in ../lib/service.sh.
#
# node-1 is the controller as well, so that it can name a new leader when node-2 is killed or
# frozen. Three ports: a listener per broker, and the controller's.

# shellcheck source=/dev/null
source "$DEV_DIR/services.d/kafka.sh"

service_is_instance_only() { :; }

service_port_count() { say 3; }

service_create() {
    local node id
    id=$(head -c 16 /dev/urandom | base64 | tr '+/' 'ab' | tr -d =)
    for node in 1 2; do
        mkdir -p "$DATA/node-$node"
        write_node_settings "$node"
        kafka_java kafka.tools.StorageTool format --cluster-id "$id" \
            --config "$DATA/node-$node/server.properties"
    done
}

service_start() {
    local node
    for node in 1 2; do
        write_node_settings "$node"
        launch "node-$node" java "${KAFKA_JAVA_OPTIONS[@]}" -Xmx256m -cp "$KAFKA_JARS/*" \
            kafka.Kafka "$DATA/node-$node/server.properties"
    done
}

service_ready() { broker_answers "${PORTS[0]}" && broker_answers "${PORTS[1]}"; }

service_url() { say "127.0.0.1:${PORTS[0]},127.0.0.1:${PORTS[1]}"; }

# A broker that has said nothing for 3 s is no longer the leader. Leaders go back to the first of
# a partition's replicas within a second of its return, so that a test can take them away again.
write_node_settings() {
    local node=$1 roles=broker listeners
    listeners="PLAINTEXT://127.0.0.1:${PORTS[$1 - 1]}"
    if [[ $node -eq 1 ]]; then
        roles=broker,controller
        listeners+=",CONTROLLER://127.0.0.1:${PORTS[2]}"
    fi
    cat >"$DATA/node-$node/server.properties" <<SETTINGS
process.roles=$roles
node.id=$node
controller.quorum.voters=1@127.0.0.1:${PORTS[2]}
controller.listener.names=CONTROLLER
listeners=$listeners
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$DATA/node-$node/logs
auto.create.topics.enable=false
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=3000
leader.imbalance.check.interval.seconds=1
leader.imbalance.per.broker.percentage=0
SETTINGS
}
