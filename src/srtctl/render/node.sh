# shellcheck shell=bash
# One task of a step, on its node: the same file in every bundle. The scripts of workers, services and frontends call
# enter_step, then supervise or run_client; the job's probes call probe_node and survey_node.
# SC1091: checked by itself. SC2153: STEP comes from run_step in job.sh.
# shellcheck disable=SC1091,SC2153
source "$RUN_DIR/runtime.sh"

declare -A PART_PID=()
STOPPING=
EACH_TASK=
setup=() # a step's script names its set-up commands here, each an array
# shellcheck disable=SC2034 # run_part reads it by name
setup_env=()

enter_step() { # who am I: by my own node name, never by list order
  load_nodes
  local index
  for index in "${!NODE_NAME[@]}"; do
    [[ ${NODE_NAME[index]} != "$SLURMD_NODENAME" ]] || NODE_INDEX=$index
  done
  : "${NODE_INDEX:?"$SLURMD_NODENAME is not a node of this run"}"
  RANK_HERE=${SLURM_LOCALID:-0} # other than 0 only in a step with several tasks on a node
  SCRATCH=${TMPDIR:-/tmp}/srtctl-$SLURM_JOB_ID/$STEP.$NODE_INDEX # node-local; gone when the task ends
  ((RANK_HERE == 0)) || SCRATCH+=.$RANK_HERE
  [[ ${SLURM_STEP_ID:-} ]] || return 0 # not every image passes it on; the step is then stopped through its srun
  printf '%s\n' "$SLURM_STEP_ID" >"$STATE/$STEP.stepid.$NODE_INDEX.$RANK_HERE" # every task of the step has one to move
  steadily mv "$STATE/$STEP.stepid.$NODE_INDEX.$RANK_HERE" "$STATE/$STEP.stepid"
}

supervise() { # supervise PROCESS READY PART...: start the first part, wait for READY (host:port or -), start the others;
  # when any ends, whatever its exit code, stop the others and fail
  local process=$1 ready=$2
  shift 2
  trap 'STOPPING=1' TERM INT
  mkdir -p "$SCRATCH"
  ((${#setup[@]} == 0)) || set_up "$process"
  spawn "$process" "$1"
  [[ $ready == - ]] || await_port "$process" "$1" "${ready%:*}" "${ready##*:}"
  shift
  while (($#)) && [[ ! $STOPPING ]]; do
    spawn "$process" "$1"
    shift
  done
  [[ $STOPPING ]] || [[ $RANK_HERE != 0 && ! $EACH_TASK ]] || : >"$STATE/$STEP.$NODE_INDEX${EACH_TASK:+.$RANK_HERE}.ready"
  while [[ ! $STOPPING ]]; do
    leave_when_ended "$process"
    pause 0.2
  done
  stop_parts "$process"
  leave_step 0 # to stop when told to is no failure: any other code has Slurm signal those again that are still stopping
}

run_client() { # run_client PROCESS PART: the end of the part is the end of the task, with its exit code
  local process=$1 part=$2 code last
  trap 'STOPPING=1' TERM INT
  mkdir -p "$SCRATCH" "$LOGS/$process"
  spawn "$process" "$part"
  until [[ $STOPPING || -e $STATE/$process.$part.exit ]]; do pause 0.2; done
  if [[ ! $STOPPING ]]; then
    read -r code <"$STATE/$process.$part.exit"
    last=$(last_words "$LOGS/$process.$part.log")
    kill -KILL -- "-${PART_PID[$part]}" 2>/dev/null # what it left in the background
    event client_ended process="$process" part="$part" code:="$code" last="$last" words="the $process $(how_it_ended "$code" "$last")"
    leave_step "$code"
  fi
  stop_parts "$process"
  leave_step 143
}

supervise_task() { # as supervise, where each task of the node is a process of its own: all of them are waited for
  EACH_TASK=1
  supervise "$@"
}

supervise_rank() { # as supervise, in each task of an MPI step: rank 0 has all the parts, the others the engine alone
  local process=$1
  ((RANK_HERE == 0)) || process+=.rank$SLURM_PROCID
  if ((SLURM_PROCID == 0)); then
    supervise "$@"
  else
    supervise "$process" - "$3"
  fi
}

set_up() { # set_up PROCESS: the step's set-up commands, in order, once a node; the first that fails ends the task
  local process=$1 command done=$STATE/$STEP.$NODE_INDEX.set_up
  if ((RANK_HERE)) && [[ ! ${SETUP_EACH_RANK:-} ]]; then # the first rank of the node does it for all
    until [[ -e $done || $STOPPING ]]; do pause 0.2; done
  else
    : >"$LOGS/$process.setup.log"
    for command in "${setup[@]}"; do
      [[ ! $STOPPING ]] || break
      spawn "$process" setup "$command"
      until [[ $STOPPING || -e $STATE/$process.setup.exit ]]; do pause 0.2; done
      [[ ! $STOPPING ]] || break
      [[ $(<"$STATE/$process.setup.exit") == 0 ]] || leave_when_ended "$process"
      wait "${PART_PID[setup]}"
      unset "PART_PID[setup]"
    done
    [[ $STOPPING ]] || : >"$done"
  fi
  [[ $STOPPING ]] || return 0
  stop_parts "$process"
  leave_step 0
}

spawn() { # spawn PROCESS PART [ARRAY]: runs the array PART, or ARRAY, with the environment PART_env, in a process group of its own
  local process=$1 part=$2
  rm -f "$STATE/$process.$part.exit"
  [[ ${3:-} ]] || : >"$LOGS/$process.$part.log"
  set -m
  run_part "$process" "$part" "${3:-$part}" 2>/dev/null &
  PART_PID[$part]=$!
  set +m
}

run_part() { # in the background: one process, its real exit code in state/<process>.<part>.exit
  local process=$1 part=$2
  local -n words=$3 environment=${part}_env
  set +m
  trap : TERM INT # the whole group gets the signal; stay to record how the process took it
  (
    trap - TERM INT
    event started process="$process" part="$part" pid:="$BASHPID"
    # Dynamo and engines leave files in TMPDIR: they go with the scratch folder.
    exec env TMPDIR="$SCRATCH" "${environment[@]}" "${words[@]}" >>"$LOGS/$process.$part.log" 2>&1 </dev/null
  )
  record_exit "$process" "$part" $?
}

record_exit() { put "$STATE/$1.$2.exit" "$3"; } # record_exit PROCESS PART CODE

await_port() { # await_port PROCESS PART HOST PORT: while watching that the part lives
  local process=$1 part=$2 deadline=$((SECONDS + STARTUP_TIMEOUT)) last
  until port_open "$3" "$4"; do
    [[ ! $STOPPING ]] || return
    leave_when_ended "$process"
    if ((SECONDS > deadline)); then
      last=$(last_words "$LOGS/$process.$part.log")
      failed not_listening process="$process" port:="$4" last="$last" words="$process $part on $SLURMD_NODENAME did not listen on port $4 within $STARTUP_TIMEOUT s: see logs/$process.$part.log"
      stop_parts "$process"
      leave_step 1
    fi
    pause 0.2
  done
  event listening process="$process" port:="$4"
}

leave_when_ended() { # leave_when_ended PROCESS: the first part that has ended by itself ends the others and the task
  local process=$1 part code last how engine_says
  for part in "${!PART_PID[@]}"; do
    [[ ! $STOPPING && -e $STATE/$process.$part.exit ]] || continue
    read -r code <"$STATE/$process.$part.exit"
    kill -KILL -- "-${PART_PID[$part]}" 2>/dev/null # children that outlived it, with its ports and GPUs
    unset "PART_PID[$part]"
    last=$(last_words "$LOGS/$process.$part.log")
    how=$(how_it_ended "$code" "$last")
    engine_says=
    [[ $part != sidecar ]] || engine_says=$(engine_facts)
    failed exited process="$process" part="$part" code:="$code" last="$last" ${engine_says:+engine="$engine_says"} \
      words="$process $part on $SLURMD_NODENAME $how"
    stop_parts "$process"
    leave_step $((code ? code : 1)) # exit code 0 is a failure too: nothing here is meant to end by itself
  done
}

failed() { # failed EVENT...: written, and shown to the job at once: Slurm may tell it of a step's end ten seconds late
  event "$@"
  : >"$STATE/$STEP.failed"
}

how_it_ended() { # how_it_ended CODE LAST_WORDS: in words
  local no_command='^env:.*[^[:alnum:]/._-]([[:alnum:]/._-]+)[^[:alnum:]]*: No such file or directory$' # `env` of run_part
  if (($1 > 128 && $1 <= 192)); then
    echo "was killed by SIG$(kill -l "$(($1 - 128))")"
  elif (($1 == 127)) && [[ ${2:-} =~ $no_command ]]; then
    echo "could not be started: there is no command ${BASH_REMATCH[1]} where it runs; is it in the image, and on PATH?"
  else
    echo "exited with $1${2:+: $2}"
  fi
}

# shellcheck disable=SC2154 # the worker's script fills `sidecar`
engine_facts() { # what the engine beside an ended sidecar says of itself, in one line; nothing where it does not answer
  local word before='' endpoint='' python=python3
  [[ ${sidecar[1]:-} != -m ]] || python=${sidecar[0]} # a sidecar of its own binary is no Python
  for word in "${sidecar[@]}"; do
    [[ $before != --grpc-endpoint ]] || endpoint=$word
    before=$word
  done
  [[ ! $endpoint ]] ||
    PYTHONPATH=$RUN_DIR/lib timeout 5 "$python" -m srtctl.checks.engine_info "${endpoint%:*}" "${endpoint##*:}" 2>/dev/null
}

stop_parts() { # stop_parts PROCESS: TERM to the group of each part, grace, KILL; the record says how long each took
  local process=$1 part deadline=$((SECONDS + STOP_GRACE)) began
  STOPPING=1
  clock
  began=${NOW/./}
  for part in "${!PART_PID[@]}"; do kill -TERM -- "-${PART_PID[$part]}" 2>/dev/null; done
  while ((${#PART_PID[@]})); do
    for part in "${!PART_PID[@]}"; do
      if [[ -e $STATE/$process.$part.exit ]] || ((SECONDS > deadline)); then end_part "$process" "$part" "$began"; fi
    done
    ((${#PART_PID[@]} == 0)) || pause 0.1
  done
}

end_part() { # end_part PROCESS PART BEGAN: what ignored TERM, or children that outlived their parent, are killed
  local process=$1 part=$2 took code
  kill -KILL -- "-${PART_PID[$part]}" 2>/dev/null
  wait "${PART_PID[$part]}" 2>/dev/null
  unset "PART_PID[$part]"
  [[ -e $STATE/$process.$part.exit ]] || record_exit "$process" "$part" 137
  read -r code <"$STATE/$process.$part.exit"
  clock
  took=$(((${NOW/./} - $3) / 1000))
  printf -v took '%d.%03d' $((took / 1000)) $((took % 1000))
  event stopped process="$process" part="$part" code:="$code" seconds:="$took"
}

leave_step() { # leave_step CODE
  steadily rm -rf "$SCRATCH"
  rmdir "${SCRATCH%/*}" 2>/dev/null
  exit "$1"
}

probe_node() { # probe_node CLAIMS: false when a claimed port of this node is already listened on
  local -A holder=()
  local hex inode node first count purpose owner port busy=0
  while read -r hex inode; do holder[$((16#$hex))]=$inode; done < <(listeners)
  while IFS=$'\t' read -r node first count purpose owner; do
    [[ $node == "$NODE_INDEX" ]] || continue
    for ((port = first; port < first + count; port++)); do
      [[ ${holder[$port]:-} ]] || continue
      busy=1
      local who
      who=$(holder_of "${holder[$port]}")
      event port_busy port:="$port" purpose="$purpose" owner="$owner" holder="$who" \
        words="port $port on $SLURMD_NODENAME ($purpose of $owner) is already taken by ${who:-a process that is not visible to you}"
    done
  done <"$1"
  return "$busy"
}

reach_node() { # reach_node LINE...: false when a port that a `reach` of this node names does not answer; says the first such
  local line from node port owner
  for line in "$@"; do
    read -r from node port owner <<<"$line"
    [[ $from == "$NODE_INDEX" ]] || continue
    if ! port_open "${NODE_ADDR[node]}" "$port"; then
      echo "port $port on ${NODE_NAME[node]} (gRPC of $owner) cannot be reached from $SLURMD_NODENAME, where the frontend runs: does it listen on ${NODE_ADDR[node]}, and does a firewall let it through?"
      return 1
    fi
  done
}

listeners() { # port (hexadecimal) and inode of every listening TCP socket of this node
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { n = split($2, at, ":"); print at[n], $10 }'
}

survey_node() { # this node's name, its processes of this job that live, with their GPUs, its listening ports and whose they are
  local -A owner=()
  local hex inode process part pid file=$STATE/survey.$NODE_INDEX.tsv
  {
    printf 'node\t%s\n' "$SLURMD_NODENAME"
    while read -r process part pid; do
      [[ -r /proc/$pid/environ ]] || continue
      printf 'process\t%s\t%s\t%s\t%s\n' "$process" "$part" "$pid" "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p')"
      while read -r inode; do owner[$inode]=$process; done < <(sockets_of "$pid")
    done < <(sed -n 's/.*"event":"started","process":"\([^"]*\)","part":"\([^"]*\)","pid":\([0-9]*\)}$/\1 \2 \3/p' "$EVENTS/node-$NODE_INDEX.jsonl")
    while read -r hex inode; do printf 'listen\t%d\t%s\n' "$((16#$hex))" "${owner[$inode]:-}"; done < <(listeners)
  } >"$file.new"
  mv "$file.new" "$file"
}

sockets_of() { # sockets_of PID: the inode of every socket of its process group; engines start processes of their own
  local group pid
  group=$(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 3)
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v group="$group" '{ pid = $1; sub(/.*\) /, ""); if ($3 == group) print pid }' |
    while read -r pid; do find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null; done | tr -dc '0-9\n'
}

holder_of() { # holder_of INODE: pid and name of the process behind a socket, where visible
  local fd pid
  for fd in /proc/[0-9]*/fd/*; do
    if [[ $(readlink "$fd" 2>/dev/null) == "socket:[$1]" ]]; then
      pid=${fd#/proc/}
      pid=${pid%%/*}
      echo "process $pid ($(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-120 | sed 's/ *$//'))"
      return
    fi
  done
}
