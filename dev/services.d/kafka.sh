# shellcheck shell=bash
# Apache Kafka, a single node in KRaft mode. The contract of these functions is in ../lib/service.sh.
#
# Four ports: PLAINTEXT, its own controller, SASL over TLS, and TLS with a certificate of the client.
# The last two are for tests of credentials and certificates: users `postrider` (PLAIN and
# SCRAM-SHA-256), password `postrider`, certificate $DATA/tls/server.crt, signed by itself and trusted
# as that of a client.

KAFKA_VERSION=4.3.1
# Outside target/: a second checkout, or `cargo clean`, does not download it again.
KAFKA_JARS="${XDG_CACHE_HOME:-$HOME/.cache}/postrider/kafka-$KAFKA_VERSION"

service_installed() { command -v java openssl >/dev/null && [[ -d $KAFKA_JARS ]]; }

service_install() {
    local missing=()
    command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
    command -v mvn >/dev/null || missing+=(maven)
    command -v openssl >/dev/null || missing+=(openssl)
    if [[ ${#missing[@]} -gt 0 ]]; then apt_install "${missing[@]}" || return 1; fi
    [[ -d $KAFKA_JARS ]] || download_jars
}

service_version() { say "$KAFKA_VERSION"; }

service_user() { :; }

service_port_count() { say 4; }

service_create() {
    make_certificate
    write_settings
    kafka_java kafka.tools.StorageTool format --config "$DATA/server.properties" \
        --cluster-id "$(head -c 16 /dev/urandom | base64 | tr '+/' 'ab' | tr -d =)" \
        --add-scram 'SCRAM-SHA-256=[name=postrider,password=postrider]'
}

service_start() {
    write_settings
    launch kafka java "${KAFKA_JAVA_OPTIONS[@]}" -cp "$KAFKA_JARS/*" kafka.Kafka \
        "$DATA/server.properties"
}

service_ready() { broker_answers "${PORTS[0]}"; }

# broker_answers PORT: asks for the API versions and waits for the head of the answer. Kafka opens
# its port early, but takes requests only when it serves its topics.
broker_answers() {
    local answer
    # shellcheck disable=SC2016 # $0 is the inner shell's
    answer=$(timeout 3 bash -c '
        exec 3<>"/dev/tcp/127.0.0.1/$0"
        printf "\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff" >&3
        head -c 8 <&3 | od -An -tx1' "$1")
    [[ $answer == *"00 00 00 01" ]]
}

service_prepare() { :; }

service_stop_signal() { say TERM; }

service_variable() { say KAFKA_BROKERS; }

service_url() { say "127.0.0.1:${PORTS[0]}"; }

service_more_variables() {
    say "KAFKA_SECURE_BROKERS=127.0.0.1:${PORTS[2]}"
    say "KAFKA_MUTUAL_BROKERS=127.0.0.1:${PORTS[3]}"
    printf 'KAFKA_CA=%q\n' "$DATA/tls/server.crt"
    printf 'KAFKA_KEY=%q\n' "$DATA/tls/server.key"
}

# A small heap is plenty; the serial collector needs no threads of its own.
KAFKA_JAVA_OPTIONS=(-Xms128m -Xmx512m -XX:+UseSerialGC
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true)

kafka_java() { java "${KAFKA_JAVA_OPTIONS[@]}" -cp "$KAFKA_JARS/*" "$@"; }

# Maven resolves what Kafka needs from Maven Central. The folder appears complete or not at all.
download_jars() {
    local folder log="$STATE/maven.log"
    folder=$(mktemp -d)
    mkdir -p "${KAFKA_JARS%/*}"
    note "kafka: downloading Apache Kafka $KAFKA_VERSION from Maven Central into $KAFKA_JARS"
    kafka_pom >"$folder/pom.xml"
    if ! mvn --batch-mode --file "$folder/pom.xml" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$KAFKA_JARS.$$" >"$log" 2>&1; then
        rm -rf "$folder" "$KAFKA_JARS.$$"
        REASON="Maven could not get Kafka: $(grep -m 1 ERROR "$log") (all of it: $log)"
        return 1
    fi
    rm -rf "$folder"
    # Another checkout may have been first.
    mv -T "$KAFKA_JARS.$$" "$KAFKA_JARS" 2>/dev/null || rm -rf "$KAFKA_JARS.$$"
}

kafka_pom() {
    cat <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>postrider</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
POM
}

# Everybody may do everything, until a test takes a right away.
# Topics exist because somebody made them: an unknown one must be an error, as in production. The
# short session lets a killed node come back after 3 s; by default, it waits 9 s for its own ghost.
write_settings() {
    local login='org.apache.kafka.common.security'
    cat >"$DATA/server.properties" <<SETTINGS
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${PORTS[1]}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:${PORTS[0]},CONTROLLER://127.0.0.1:${PORTS[1]},SASL_SSL://127.0.0.1:${PORTS[2]},SSL://127.0.0.1:${PORTS[3]}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
inter.broker.listener.name=PLAINTEXT
log.dirs=$DATA/logs
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location=$DATA/tls/server.pem
listener.name.ssl.ssl.keystore.type=PEM
listener.name.ssl.ssl.keystore.location=$DATA/tls/server.pem
listener.name.ssl.ssl.truststore.type=PEM
listener.name.ssl.ssl.truststore.location=$DATA/tls/server.crt
listener.name.ssl.ssl.client.auth=required
listener.name.sasl_ssl.plain.sasl.jaas.config=$login.plain.PlainLoginModule required username="postrider" password="postrider" user_postrider="postrider";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=$login.scram.ScramLoginModule required;
SETTINGS
}
