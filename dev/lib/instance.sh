# shellcheck shell=bash
# Instances: private servers for single tests, with the same functions as the shared ones. Only
# their data is in the test's folder. Our notes (pids, port, log) are in target/services/instances,
# so that a server can still be stopped, and its log read, when the test's folder is gone.

INSTANCES_DIR="$SERVICES_DIR/instances"

# enter_instance NAME FOLDER
enter_instance() {
    local key
    key=$(printf '%s' "$2" | sha256sum | cut -c 1-16)
    enter_service "$1" "$INSTANCES_DIR/$1-$key" "$2/$1"
}

# Prints the address alone, for url=$(dev/services instance …).
instance_start() {
    enter_instance "$1" "$INSTANCE_FOLDER"
    mkdir -p "$STATE" "$INSTANCE_FOLDER"
    # Temporary folders have mode 0700, but the server's user must get through to its data.
    chmod a+x "$INSTANCE_FOLDER"
    say "$1" >"$STATE/service"
    say "$INSTANCE_FOLDER" >"$STATE/folder"
    bring_up
    service_url
}

instance_stop() {
    enter_instance "$1" "$INSTANCE_FOLDER"
    take_down
}

instance_kill() {
    enter_instance "$1" "$INSTANCE_FOLDER"
    crash
}

# A server that hangs: connections are taken, and nothing is answered.
instance_freeze() {
    enter_instance "$1" "$INSTANCE_FOLDER"
    signal_processes STOP
}

instance_thaw() {
    enter_instance "$1" "$INSTANCE_FOLDER"
    signal_processes CONT
}

# sweep_instances all|leftover: stops instances and forgets them. A leftover is one whose folder is
# gone: the test that started it has ended without stopping it.
sweep_instances() {
    local which=$1 state
    for state in "$INSTANCES_DIR"/*/; do
        if [[ ! -s $state/folder ]]; then continue; fi
        if [[ $which == leftover && -d $(<"$state/folder") ]]; then continue; fi
        sweep_instance "${state%/}" &
        wait $! || note "could not stop the instance of $state"
    done
}

sweep_instance() {
    enter_service "$(<"$1/service")" "$1" "$(<"$1/folder")/$(<"$1/service")"
    if [[ -n $(our_pids) ]]; then note "$NAME: stopping an instance left in $WANTED_DATA"; fi
    # The data of a leftover is not read again, so there is nothing to flush for.
    if [[ -d $DATA ]]; then take_down; else crash; fi
    # Data that had to move to /var/tmp has no other owner than this record.
    if [[ $DATA == /var/tmp/postrider-* ]]; then rm -rf "$DATA"; fi
    rm -rf "$STATE"
}
