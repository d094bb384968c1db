# shellcheck shell=bash
# The life of one service. A service is one file, services.d/<name>.sh, with these functions:
#
#   service_installed    succeeds when its programs are on this machine
#   service_install      gets them; returns 1 with cause and fix in $REASON when it cannot
#   service_version      prints its version
#   service_user         prints the user that runs it when we are root; nothing = ourselves
#   service_port_count   prints how many ports it listens on
#   service_create       makes its files in $DATA; called once in the life of $DATA
#   service_start        calls `launch LABEL COMMAND…` for each of its processes
#   service_ready        succeeds when it answers; returns within a few seconds
#   service_prepare      makes account, database, cluster; called at every start: idempotent
#   service_stop_signal  prints the signal that asks for a quick, clean end
#   service_variable     prints the name of the variable that holds its address
#   service_url          prints that address
#
# and, where one address does not tell everything:
#
#   service_more_variables   prints further lines VARIABLE=value for `env`
#
# and, where a server is too large to run all the time:
#
#   service_is_instance_only   makes it known to `instance` alone; never called
#
# They find: $NAME, $STATE (our notes: pids, ports, log), $DATA (its files), ${PORTS[@]}, and
# ${AS_OWNER[@]} to put before a command that must run as the service's user. Each service is
# handled in a subshell, so the functions of one never meet those of another.

READY_WAIT_SECONDS=180
LOCK_WAIT_SECONDS=300
# The exit status that says "cannot be had, and the reason is on record".
UNAVAILABLE=3

service_more_variables() { :; }

# For services with TLS: a certificate in $DATA/tls, signed by itself.
make_certificate() {
    mkdir -p "$DATA/tls"
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=localhost \
        -addext 'subjectAltName=IP:127.0.0.1,DNS:localhost' -addext 'basicConstraints=critical,CA:FALSE' \
        -keyout "$DATA/tls/server.key" -out "$DATA/tls/server.crt"
    cat "$DATA/tls/server.key" "$DATA/tls/server.crt" >"$DATA/tls/server.pem"
}

# enter_service NAME STATE WANTED_DATA: call in a subshell.
enter_service() {
    NAME=$1 STATE=$2 WANTED_DATA=$3
    # shellcheck source=/dev/null
    source "$DEV_DIR/services.d/$NAME.sh"
    recall_data
    recall_ports
}

# The main path. Each step does nothing when its work is done already.
bring_up() {
    local started=$SECONDS
    take_lock
    rm -f "$STATE/unavailable"
    service_installed || service_install || give_up "$REASON"
    choose_owner
    choose_data
    choose_ports
    create_once
    start_processes
    await_ready
    step "preparing it" service_prepare
    WAITED=$((SECONDS - started))
}

take_down() {
    [[ -d $STATE ]] || return 0
    take_lock
    stop_processes "$(service_stop_signal)"
}

crash() {
    [[ -d $STATE ]] || return 0
    take_lock
    kill_processes
}

# One command at a time works on a service; a second `up` waits for the first and finds it done.
take_lock() {
    if [[ -n ${LOCK-} ]]; then return 0; fi
    mkdir -p "$STATE"
    exec {LOCK}>"$STATE/lock"
    flock --wait "$LOCK_WAIT_SECONDS" "$LOCK" ||
        fail "$NAME: another dev/services has been at work on it for $LOCK_WAIT_SECONDS s" \
            "wait for it, or end it"
}

# give_up REASON: this service cannot be had; the others go on. Tests read the record.
give_up() {
    say "$1" >"$STATE/unavailable"
    note "$NAME: unavailable: $1"
    exit "$UNAVAILABLE"
}

create_once() {
    local mark="$DATA/created-by-postrider"
    if [[ -e $mark ]]; then return 0; fi
    if [[ -n $(ls -A "$DATA") ]]; then
        give_up "$DATA holds files of a creation that did not finish; delete that folder"
    fi
    step "creating its data" service_create
    : >"$mark"
}

start_processes() {
    local port
    if all_processes_run; then return 0; fi
    if [[ -z $(our_pids) ]]; then
        if [[ -f $STATE/log ]]; then mv "$STATE/log" "$STATE/log.previous"; fi
        for port in "${PORTS[@]}"; do
            if port_is_taken "$port"; then
                give_up "another process listens on its port $port; stop that one, or delete \
$STATE to begin afresh on another port"
            fi
        done
    fi
    service_start
}

await_ready() {
    local deadline=$((SECONDS + READY_WAIT_SECONDS)) label
    until service_ready >/dev/null 2>&1; do
        while read -r label; do
            if process_is_gone "$(process_pid "$label")"; then
                give_up "it ended while starting: $(last_words)"
            fi
        done < <(process_labels)
        if ((SECONDS >= deadline)); then
            give_up "no answer within $READY_WAIT_SECONDS s: $(last_words)"
        fi
        sleep 0.1
    done
}

# step WHAT FUNCTION: runs it with its output in the log. In the background, because bash ignores
# `set -e` inside a function that is called as a condition.
step() {
    "$2" >>"$STATE/log" 2>&1 &
    wait $! || give_up "$1 failed: $(last_words)"
}

last_words() {
    local words
    words=$(grep -iE 'error|fatal' "$STATE/log" 2>/dev/null | tail -n 1)
    say "${words:-$(tail -n 1 "$STATE/log" 2>/dev/null)} (log: $STATE/log)"
}

# up, down, crashed (a process is missing), mute (runs but does not answer) or unavailable.
service_state() {
    if [[ -s $STATE/unavailable ]]; then
        say unavailable
    elif all_processes_run; then
        if service_ready >/dev/null 2>&1; then say up; else say mute; fi
    elif [[ -n $(process_labels) ]]; then
        say crashed
    else
        say down
    fi
}
