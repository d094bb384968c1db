# shellcheck shell=bash
# Processes of one service: started apart from the caller, known by pid files in $STATE/pids, and
# signalled only after /proc has confirmed that the pid is still the process that we started.

STOP_WAIT_SECONDS=30

# launch LABEL COMMAND…: starts COMMAND as $OWNER unless LABEL runs already. The command line must
# contain $DATA: that is how the process is recognised later.
launch() {
    local label=$1
    shift
    if process_is_ours "$label"; then return 0; fi
    mkdir -p "$STATE/pids"
    # setsid: a Ctrl-C at the terminal must not reach the server. The lock must not be inherited, or
    # the server would hold it for as long as it lives.
    (cd "$DATA" && exec setsid "${AS_OWNER[@]}" "$@") \
        </dev/null >>"$STATE/log" 2>&1 {LOCK}>&- &
    echo $! >"$STATE/pids/$label"
}

# The labels that have a pid file, running or not. With $ONE_PROCESS, only that one.
process_labels() {
    local file
    for file in "$STATE"/pids/*; do
        if [[ -f $file && ${ONE_PROCESS:-${file##*/}} == "${file##*/}" ]]; then say "${file##*/}"; fi
    done
}

# Without the pid files nothing is known of the processes. One that was ended alone keeps its own,
# so that the next start finds it missing.
forget_processes() {
    if [[ -z ${ONE_PROCESS-} ]]; then rm -rf "$STATE/pids"; fi
}

process_pid() { cat "$STATE/pids/$1" 2>/dev/null; }

process_is_ours() {
    local pid
    pid=$(process_pid "$1") && pid_is_ours "$pid"
}

# Pids are reused: after a reboot a pid file may name somebody else's process.
pid_is_ours() {
    local command
    command=$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline") || return 1
    [[ $command == *"$DATA"* ]]
}

# Succeeds once the process holds nothing any more: no port, no file lock. A zombie counts only
# when its last thread has ended, since the main thread may end before the others.
process_is_gone() {
    local pid=$1 threads
    [[ -d /proc/$pid ]] || return 0
    threads=("/proc/$pid/task/"*)
    [[ ${#threads[@]} -eq 1 ]] && grep -q '^State:[[:space:]]*[ZX]' "/proc/$pid/status" 2>/dev/null
}

# await_gone SECONDS PID…
await_gone() {
    local deadline=$((SECONDS + $1)) pid
    shift
    for pid in "$@"; do
        until process_is_gone "$pid"; do
            if ((SECONDS >= deadline)); then return 1; fi
            sleep 0.05
        done
    done
}

# The pids of this service that are confirmed as ours, one a line.
our_pids() {
    local label
    while read -r label; do
        if process_is_ours "$label"; then process_pid "$label"; fi
    done < <(process_labels)
}

# Every process of the service runs, and there is at least one.
all_processes_run() {
    local labels label
    mapfile -t labels < <(process_labels)
    [[ ${#labels[@]} -gt 0 ]] || return 1
    for label in "${labels[@]}"; do process_is_ours "$label" || return 1; done
}

# stop_processes SIGNAL: asks with SIGNAL, and kills what has not ended in time.
stop_processes() {
    local signal=$1 pids
    mapfile -t pids < <(our_pids)
    if [[ ${#pids[@]} -gt 0 ]]; then
        kill -s "$signal" "${pids[@]}" 2>/dev/null || true
        if ! await_gone "$STOP_WAIT_SECONDS" "${pids[@]}"; then
            note "$NAME: still running $STOP_WAIT_SECONDS s after SIG$signal; killing it"
            kill_processes
        fi
    fi
    forget_processes
}

# A crash: nothing is flushed, no client is told. The parent is frozen first, so that it can neither
# start new children nor tidy up while they die; with a child of PostgreSQL alive, a new server
# would refuse to start on the same data.
kill_processes() {
    local pids pid victims=()
    mapfile -t pids < <(our_pids)
    for pid in "${pids[@]}"; do
        kill -s STOP "$pid" 2>/dev/null || continue
        mapfile -t -O "${#victims[@]}" victims < <(children_of "$pid")
        victims+=("$pid")
    done
    if [[ ${#victims[@]} -gt 0 ]]; then
        kill -s KILL "${victims[@]}" 2>/dev/null || true
        await_gone "$STOP_WAIT_SECONDS" "${victims[@]}" ||
            fail "$NAME: a killed process has not ended: ${victims[*]}" "look for a hanging disk"
    fi
    forget_processes
}

# signal_processes SIGNAL: to each process and its children.
signal_processes() {
    local pid pids
    mapfile -t pids < <(our_pids)
    [[ ${#pids[@]} -gt 0 ]] || fail "$NAME: there is no process to send SIG$1" "start it first"
    for pid in "${pids[@]}"; do
        mapfile -t -O "${#pids[@]}" pids < <(children_of "$pid")
    done
    kill -s "$1" "${pids[@]}"
}

# Read from /proc, because small Debian images have neither ps nor pgrep.
children_of() {
    local file
    while read -r file; do
        file=${file%/status}
        say "${file##*/}"
    done < <(grep -sl "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status)
}
