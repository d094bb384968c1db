# shellcheck shell=bash
# Where a service lives: its user, its data folder, its ports. Each is chosen at the first start and
# remembered in $STATE, so that a restart finds the same data on the same port.

# All ports lie below the range from which Linux takes the ports of outgoing connections (32768 and
# up), also those 10,000 above, which Redis Cluster uses between its nodes: nobody takes them by
# chance while a server restarts.
FIRST_PORT=15000
LAST_PORT=21999
CLUSTER_BUS_OFFSET=10000

# Who runs the servers: ourselves, or the service's own user when we are root.
choose_owner() {
    OWNER=
    AS_OWNER=()
    if [[ $EUID -eq 0 ]]; then OWNER=$(service_user); fi
    if [[ -z $OWNER ]]; then return 0; fi
    id -u "$OWNER" >/dev/null 2>&1 ||
        give_up "it does not run as root, and there is no user $OWNER; run: useradd --system $OWNER"
    # setpriv becomes the command, so the pid that we note is the server's; su and runuser stay
    # between.
    AS_OWNER=(setpriv "--reuid=$OWNER" "--regid=$(id -g "$OWNER")" --init-groups --)
}

# Sets DATA: the remembered folder, else $WANTED_DATA, else a folder in /var/tmp where the owner
# cannot reach that one (a home folder with mode 0700 above it, say).
choose_data() {
    recall_data
    if [[ -d $DATA ]]; then return 0; fi
    DATA=$WANTED_DATA
    mkdir -p "$DATA"
    own_folder "$DATA"
    if ! "${AS_OWNER[@]}" test -w "$DATA/." 2>/dev/null; then
        rmdir "$DATA"
        DATA=$(mktemp -d "/var/tmp/postrider-$NAME.XXXXXX")
        own_folder "$DATA"
        note "$NAME: user $OWNER cannot reach $WANTED_DATA; data goes to $DATA"
    fi
    say "$DATA" >"$STATE/data-folder"
}

recall_data() {
    DATA=$WANTED_DATA
    if [[ -s $STATE/data-folder ]]; then DATA=$(<"$STATE/data-folder"); fi
}

own_folder() {
    chmod 0700 "$1"
    if [[ -n $OWNER ]]; then chown "$OWNER:" "$1"; fi
}

# Sets PORTS to as many ports as the service wants.
choose_ports() {
    recall_ports
    local wanted registry lock
    wanted=$(service_port_count)
    if [[ ${#PORTS[@]} -eq $wanted ]]; then return 0; fi
    # One register for all checkouts of this user: a port belongs to a stopped service too, and two
    # that start at the same moment do not pick the same one.
    registry="${TMPDIR:-/tmp}/postrider-ports-$EUID"
    mkdir -p "$registry"
    exec {lock}>"$registry/lock"
    flock "$lock"
    PORTS=()
    while [[ ${#PORTS[@]} -lt $wanted ]]; do
        PORTS+=("$(reserve_port "$registry")")
    done
    exec {lock}>&-
    printf '%s\n' "${PORTS[@]}" >"$STATE/ports"
}

recall_ports() {
    PORTS=()
    if [[ -s $STATE/ports ]]; then mapfile -t PORTS <"$STATE/ports"; fi
}

# reserve_port REGISTRY: prints a port that is neither listened on nor reserved.
reserve_port() {
    local registry=$1 port holder tries
    for ((tries = 0; tries < 1000; tries++)); do
        port=$((FIRST_PORT + (RANDOM * 32768 + RANDOM) % (LAST_PORT - FIRST_PORT + 1)))
        if port_is_taken "$port" || port_is_taken $((port + CLUSTER_BUS_OFFSET)); then continue; fi
        # A reservation ends with the state folder that it was made for.
        if [[ -s $registry/$port ]]; then
            holder=$(<"$registry/$port")
            if [[ $holder == "$STATE" || -s $holder/ports ]]; then continue; fi
        fi
        say "$STATE" >"$registry/$port"
        say "$port"
        return 0
    done
    fail "found no free port between $FIRST_PORT and $LAST_PORT" \
        "stop other servers, or empty $registry"
}

# Somebody listens on the port. Read from /proc, since ss and netstat may be missing.
port_is_taken() {
    local hex
    printf -v hex '%04X' "$1"
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 0A " /proc/net/tcp /proc/net/tcp6
}
