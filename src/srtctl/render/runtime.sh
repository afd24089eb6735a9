# shellcheck shell=bash
# The runtime of every srtctl job: the same file in every bundle. job.sbatch and each step's script source it.
#
#   in job.sbatch   open_run, bind_nodes, probe_claims, service, frontend, worker, expect, gate, run_checks, serve
#   in a step       supervise
#
# The job ends with its first failure, with a named cause. Every way out goes through `finish`.
# SC2016: what stands in single quotes here expands in the shell that it is given to. SC2153: STEP comes from run_step.
# shellcheck disable=SC2016,SC2153
set -u -o pipefail

: "${RUN_DIR:?is set by job.sbatch}"
export RUN_DIR
LOGS=$RUN_DIR/logs
STATE=$RUN_DIR/state
EVENTS=$RUN_DIR/events

STOP_GRACE=${STOP_GRACE:-10}         # seconds between TERM and KILL for one process
STARTUP_TIMEOUT=${STARTUP_TIMEOUT:-1800} # seconds a process may take until its port answers

# ------------------------------------------------------------------------------------------------ words and events

json() { # json TEXT -> a JSON string
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/ }
  text=${text//[[:cntrl:]]/}
  printf '"%s"' "$text"
}

event() { # event NAME [key=text | key:=number]...: one line in this writer's own file
  local line pair
  line="{\"ts\":$(date +%s.%6N),\"node\":${NODE_INDEX:-null},\"event\":\"$1\""
  shift
  for pair in "$@"; do
    case $pair in
    [a-z_]*:=*) line+=",\"${pair%%:=*}\":${pair#*:=}" ;;
    *) line+=",\"${pair%%=*}\":$(json "${pair#*=}")" ;;
    esac
  done
  printf '%s}\n' "$line" >>"$EVENTS/${NODE_INDEX:+node-}${NODE_INDEX:-job}.jsonl"
}

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }

is_ipv4() { [[ $1 =~ ^[0-9]{1,3}(\.[0-9]{1,3}){3}$ ]]; }

port_open() { # port_open HOST PORT
  timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2" 2>/dev/null
}

http_get() { # http_get HOST:PORT PATH -> the answer with its headers
  timeout 10 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "GET %s HTTP/1.0\r\nHost: %s:%s\r\n\r\n" "$2" "$0" "$1" >&3 && cat <&3' \
    "${1%:*}" "${1##*:}" "$2" 2>/dev/null
}

exec {NOTHING}<> <(:) # a pipe that nobody writes to
pause() { # pause SECONDS: a builtin, so traps run at once and no process is started
  read -rt "$1" -u "$NOTHING"
  :
}

load_nodes() { # NODE_NAME and NODE_ADDR of every plan node
  local index name address
  NODE_NAME=() NODE_ADDR=()
  while IFS=$'\t' read -r index name address; do
    NODE_NAME[index]=$name
    NODE_ADDR[index]=$address
  done <"$STATE/nodes.tsv"
}

# ------------------------------------------------------------------------------------------------ the job

declare -A STEP_TASKS=()
STEPS=()
EXPECTED=()
CPU_BIND=()
SERVING=

open_run() { # what an earlier job of this bundle left moves to attempts/<job id>
  mkdir -p "$LOGS" "$STATE" "$EVENTS"
  local earlier
  if [[ -s $STATE/job_id ]]; then
    earlier=$(<"$STATE/job_id")
    if [[ $earlier != "$SLURM_JOB_ID" && -n $(squeue --noheader --jobs "$earlier" --format %T 2>/dev/null) ]]; then
      say "job $earlier is still using $RUN_DIR: render the recipe to another folder, or cancel that job first"
      exit 1
    fi
    [[ $earlier != "$SLURM_JOB_ID" ]] || earlier+=.$((${SLURM_RESTART_COUNT:-1} - 1))
    mkdir -p "$RUN_DIR/attempts/$earlier"
    mv "$STATE" "$EVENTS" "$RUN_DIR/attempts/$earlier/"
    [[ ! -e $RUN_DIR/checks.json ]] || mv "$RUN_DIR/checks.json" "$RUN_DIR/attempts/$earlier/"
    mkdir -p "$STATE" "$EVENTS" "$RUN_DIR/attempts/$earlier/logs"
    find "$LOGS" -maxdepth 1 -name '*.log' ! -name "job.$SLURM_JOB_ID.log" -exec mv -t "$RUN_DIR/attempts/$earlier/logs" {} +
  fi
  printf '%s\n' "$SLURM_JOB_ID" >"$STATE/job_id"
  trap 'finish cancelled 0 "cancelled"' TERM INT
  trap 'on_time_limit' USR1
  # An engine must not be bound to the one CPU of its task; clusters that bind nothing complain when told so.
  if scontrol show config | grep -Eq '^TaskPlugin .*(affinity|cgroup)'; then CPU_BIND=(--cpu-bind=none); fi
  event job_started job_id="$SLURM_JOB_ID"
  say "job $SLURM_JOB_ID, run $RUN_DIR"
}

on_time_limit() {
  if [[ $SERVING ]]; then
    finish time_limit 0 "served until its time limit"
  else
    finish time_limit 1 "the time limit came before the deployment was ready"
  fi
}

finish() { # finish STATE EXIT_CODE CAUSE: the only way out
  local state=$1 code=$2 cause=$3
  trap : TERM INT USR1
  say "$state: $cause"
  event stopping reason="$cause"
  printf '{"state": "%s", "exit_code": %d, "cause": %s}\n' "$state" "$code" "$(json "$cause")" >"$STATE/end.json.new"
  mv "$STATE/end.json.new" "$STATE/end.json"
  stop_steps
  event job_ended state="$state" exit_code:="$code" cause="$cause"
  say "ended"
  exit "$code"
}

bind_nodes() { # bind_nodes COUNT [INTERFACE]: plan node i is the i-th host of the allocation
  local count=$1 interface=${2:-} names name index=0 line address table=
  local -A known=()
  mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  if ((${#names[@]} != count)); then
    finish failed 1 "the plan needs $count nodes, the allocation has ${#names[@]}: $SLURM_JOB_NODELIST"
  fi
  if [[ $interface ]]; then
    while read -r name address; do known[$name]=$address; done < <(
      srun --overlap --input=none --nodes="$count" --ntasks="$count" --ntasks-per-node=1 bash -c \
        'echo "$SLURMD_NODENAME $(ip -o -4 addr show dev "$0" | sed -n "s/.* inet \([0-9.]*\).*/\1/p" | head -n 1)"' "$interface"
    )
  else
    while read -r line; do
      [[ $line =~ NodeName=([^ ]+) ]] || continue
      name=${BASH_REMATCH[1]}
      [[ $line =~ NodeAddr=([^ ]+) ]] && known[$name]=${BASH_REMATCH[1]}
    done < <(scontrol show node --oneliner "$SLURM_JOB_NODELIST")
  fi
  for name in "${names[@]}"; do
    address=${known[$name]:-$name}
    # An address in slurm.conf is the administrator's word; a name that resolves to loopback is the distribution's /etc/hosts.
    if ! is_ipv4 "$address"; then
      address=$(getent ahostsv4 "$address" | sed -n '1s/ .*//p')
      [[ $address != 127.* ]] || address=
    fi
    if ! is_ipv4 "$address"; then
      finish failed 1 "no address found for node $name: set network_interface in the cluster profile"
    fi
    table+="$index"$'\t'"$name"$'\t'"$address"$'\n'
    index=$((index + 1))
  done
  printf '%s' "$table" >"$STATE/nodes.tsv.new"
  mv "$STATE/nodes.tsv.new" "$STATE/nodes.tsv"
  load_nodes
  event nodes_bound count:="$count"
  for index in "${!NODE_NAME[@]}"; do say "node $index is ${NODE_NAME[index]}, ${NODE_ADDR[index]}"; done
}

bind_files() { # what commands read: files/* with the addresses of this allocation filled in, in state/files
  local file text index
  mkdir -p "$STATE/files"
  for file in "$RUN_DIR"/files/*; do
    text=$(<"$file")
    for index in "${!NODE_ADDR[@]}"; do text=${text//"\${NODE_ADDR[$index]}"/"${NODE_ADDR[index]}"}; done
    printf '%s\n' "$text" >"$STATE/files/${file##*/}"
  done
}

probe_claims() { # probe_claims FILE: every planned port is free on its node, or the job ends here and says which is not
  local count=${#NODE_NAME[@]}
  if STEP=probe srun --overlap --input=none --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --job-name=probe --output="$LOGS/probe.log" \
    bash -c 'source "$RUN_DIR/runtime.sh"; enter_step; probe_node "$0"' "$RUN_DIR/$1"; then
    event claims_free
    return
  fi
  local busy
  busy=$(grep -h '"event":"port_busy"' "$EVENTS"/node-*.jsonl 2>/dev/null | sed -n 's/.*"words":"\(.*\)"}$/\1/p' | head -n 3 | paste -sd ';')
  finish failed 1 "${busy:-the port probe could not run: see logs/probe.log}"
}

names_of() { # names_of 0-1,4 -> the host names, comma separated
  local part index out=()
  for part in ${1//,/ }; do
    for ((index = ${part%-*}; index <= ${part#*-}; index++)); do out+=("${NODE_NAME[index]}"); done
  done
  (IFS=,; echo "${out[*]}")
}

service() { start_step "$1" "$2" "$3"; await_steps "$STARTUP_TIMEOUT" "$1"; } # ready before the next line runs
frontend() { start_step "$1" "$2" "$3"; }
worker() { start_step "$1" "$2" "$3"; } # one step over its nodes: Slurm stops them together
mpi_worker() { start_step "$@"; } # the same as one MPI job: so many ranks on each of its nodes, rank 0 on the first

start_step() { # start_step NAME NODES SCRIPT [RANKS,... MPI]
  local name=$1 names count
  names=$(names_of "$2")
  count=$(($(tr -cd , <<<"$names" | wc -c) + 1))
  STEPS+=("$name")
  STEP_TASKS[$name]=$count
  event step_started step="$name"
  say "starting $name on $names"
  run_step "$name" "$names" "$count" "$3" "${@:4}" &
}

rank_hosts() { # rank_hosts NAMES RANKS: the host of each MPI rank, a line a rank
  local names ranks index rank
  IFS=, read -ra names <<<"$1"
  IFS=, read -ra ranks <<<"$2"
  for index in "${!names[@]}"; do
    for ((rank = 0; rank < ranks[index]; rank++)); do echo "${names[index]}"; done
  done
}

run_step() { # in the background: one srun, its exit code in state/<step>.step
  local name=$1 code hosts='' tasks=(--nodes="$3" --ntasks="$3" --ntasks-per-node=1 --nodelist="$2")
  trap : TERM INT USR1
  if (($# > 4)); then
    hosts=$STATE/$name.hosts # a list, because nodes may have different numbers of ranks
    rank_hosts "$2" "$5" >"$hosts"
    tasks=(--mpi="$6" --overcommit --ntasks="$(wc -l <"$hosts")" --distribution=arbitrary)
  fi
  (
    trap - TERM INT USR1
    printf '%d\n' "$BASHPID" >"$STATE/$name.srun"
    exec env -u SLURM_NTASKS_PER_NODE STEP="$name" ${hosts:+SLURM_HOSTFILE="$hosts"} srun --overlap --kill-on-bad-exit=1 --wait=30 --input=none \
      "${CPU_BIND[@]}" "${tasks[@]}" --job-name="$name" --output="$LOGS/$name.log" bash "$RUN_DIR/$4"
  )
  code=$?
  printf '%d\n' "$code" >"$STATE/$name.step.new"
  mv "$STATE/$name.step.new" "$STATE/$name.step"
  event step_ended step="$name" code:="$code"
}

check_steps() { # the first step that ended ends the job
  local name
  for name in "${STEPS[@]}"; do
    [[ ! -e $STATE/$name.step ]] || finish failed 1 "$(failure_cause "$name")"
  done
}

failure_cause() { # failure_cause STEP: what the processes of the job said first, in words
  local step=$1 line try words
  for ((try = 0; try < 20; try++)); do # another node's file may appear late on a shared file system
    line=$(grep -h -E '"event":"(exited|not_listening)"' "$EVENTS"/node-*.jsonl 2>/dev/null | sort | head -n 1)
    words=$(sed -n 's/.*"words":"\(.*\)"}$/\1/p' <<<"$line" | sed 's/\\\(.\)/\1/g')
    if [[ $words ]]; then
      printf '%s\n' "$words"
      return
    fi
    pause 0.25
  done
  echo "step $step ended with exit code $(<"$STATE/$step.step"); see logs/$step.log"
}

await_steps() { # await_steps SECONDS STEP...: every task of these steps has said that it is ready
  local deadline=$((SECONDS + $1)) name missing
  shift
  while :; do
    missing=()
    for name in "$@"; do
      (($(ready_tasks "$name") >= STEP_TASKS[$name])) || missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    check_steps
    if ((SECONDS > deadline)); then
      event gate_failed reason="not ready in time: ${missing[*]}"
      finish failed 1 "not ready after $1 s: ${missing[*]}"
    fi
    pause 0.3
  done
}

ready_tasks() { # ready_tasks STEP: how many of its tasks have said so
  shopt -s nullglob
  local files=("$STATE/$1".*.ready)
  echo "${#files[@]}"
}

expect() { # expect TYPE workers=N ranks=N [kv_sources=all]: what the router must have registered
  EXPECTED+=("$*")
}

gate() { # gate ENDPOINT TIMEOUT [PYTHON]: every process is up, then every planned worker is registered with every planned rank
  local frontend=$1 timeout=$2 python=${3:-} deadline missing why before=
  await_steps "$STARTUP_TIMEOUT" "${STEPS[@]}"
  event processes_ready
  if [[ $frontend == - ]]; then
    event gate_passed
    return
  fi
  say "every process is up; waiting for registrations at $frontend"
  deadline=$((SECONDS + timeout))
  until missing=$(missing_registrations "$frontend"); do
    [[ $missing == "$before" ]] || event gate_waiting reason="$missing"
    before=$missing
    check_steps
    if ((SECONDS > deadline)); then
      why=$(why_not_registered "$python")
      event gate_failed reason="${why:-$missing}"
      finish failed 1 "not registered after $timeout s: ${why:-$missing}"
    fi
    pause 0.5
  done
  event gate_passed
  say "every planned worker is registered, with every planned rank"
}

missing_registrations() { # says what is missing and fails, or says nothing and succeeds
  local metrics spec type workers ranks sources pairs
  if ((${#EXPECTED[@]} == 0)); then # a router that exports no registrations
    http_get "$1" /v1/models | grep -q '"id"' && return
    echo "no model is listed at $1"
    return 1
  fi
  metrics=$(http_get "$1" /metrics) || {
    echo "the frontend does not answer at $1"
    return 1
  }
  for spec in "${EXPECTED[@]}"; do
    read -r type workers ranks sources <<<"$spec"
    pairs=$(sed -n "/^dynamo_component_router_worker_registered{.*worker_type=\"$type\".*} 1\$/s/.*dp_rank=\"\([0-9]*\)\".*router_worker_id=\"\([0-9]*\)\".*/\2 \1/p" <<<"$metrics" | sort -u)
    if [[ $(grep -c . <<<"$pairs") != "${ranks#ranks=}" || $(cut -d' ' -f1 <<<"$pairs" | sort -u | grep -c .) != "${workers#workers=}" ]]; then
      echo "$type: $workers $ranks expected, the router has $(cut -d' ' -f1 <<<"$pairs" | sort -u | grep -c .) workers and $(grep -c . <<<"$pairs") ranks"
      return 1
    fi
    if [[ $sources == kv_sources=all ]] && ! grep -Eq "^dynamo_component_router_kv_event_source_mismatch_workers\{.*worker_type=\"$type\".*\} 0\$" <<<"$metrics"; then
      echo "$type: the router lacks KV event sources of some ranks"
      return 1
    fi
  done
}

why_not_registered() { # why_not_registered PYTHON: what the first checks find, in one line; nothing where they cannot run
  [[ $1 ]] || return
  survey >&2
  checks "$1" --through registration --timeout 5 --cause
}

checks() { # checks PYTHON OPTION...: their results go to checks.json
  local python=$1
  shift
  PYTHONPATH=$RUN_DIR/lib "$python" -m srtctl.checks --plan "$RUN_DIR/plan.json" --nodes "$STATE/nodes.tsv" --out "$RUN_DIR/checks.json" "$@"
}

survey() { # what runs where, as each node sees itself, in state/survey.<node index>.tsv
  local count=${#NODE_NAME[@]}
  STEP=survey srun --overlap --input=none --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --job-name=survey --output="$LOGS/survey.log" \
    bash -c 'source "$RUN_DIR/runtime.sh"; enter_step; survey_node' || say "not every node could be surveyed: see logs/survey.log"
}

run_checks() { # run_checks PYTHON: post-launch checks, while the processes are watched
  local pid code
  event checks_started
  survey
  checks "$1" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    pause 0.3
    check_steps
  done
  wait "$pid"
  code=$?
  event checks_ended code:="$code"
  case $code in
  0) say "checks passed" ;;
  3) finish checks_failed 3 "post-launch checks failed: see checks.json" ;;
  *) finish failed 1 "the post-launch checks could not run (exit code $code): see this log" ;;
  esac
}

serve() { # until cancelled, or the first failure
  SERVING=1
  event serving
  say "serving"
  while :; do
    pause 0.5
    check_steps
  done
}

stop_steps() { # TERM to each step, grace, then KILL; bounded whatever the steps do
  local name signal deadline
  for signal in TERM KILL; do
    for name in "${STEPS[@]}"; do
      [[ ! -e $STATE/$name.step ]] || continue
      # By step id: a TERM to the srun client can become a KILL of the remote task.
      if [[ -s $STATE/$name.stepid ]]; then
        scancel --signal="$signal" "$SLURM_JOB_ID.$(<"$STATE/$name.stepid")" 2>/dev/null
      else
        kill "-$signal" "$(<"$STATE/$name.srun")" 2>/dev/null
      fi
    done
    deadline=$((SECONDS + STOP_GRACE + 5))
    while ((SECONDS < deadline)); do
      all_steps_ended && return
      pause 0.2
    done
  done
  say "some steps did not end; Slurm removes them with the job"
}

all_steps_ended() {
  local name
  for name in "${STEPS[@]}"; do [[ -e $STATE/$name.step ]] || return 1; done
}

# ------------------------------------------------------------------------------------------------ one node of a step

declare -A PART_PID=()
STOPPING=

enter_step() { # who am I: by my own node name, never by list order
  load_nodes
  local index
  for index in "${!NODE_NAME[@]}"; do
    [[ ${NODE_NAME[index]} != "$SLURMD_NODENAME" ]] || NODE_INDEX=$index
  done
  : "${NODE_INDEX:?"$SLURMD_NODENAME is not a node of this run"}"
  RANK_HERE=${SLURM_LOCALID:-0} # other than 0 only in an MPI step
  SCRATCH=${TMPDIR:-/tmp}/srtctl-$SLURM_JOB_ID/$STEP.$NODE_INDEX # node-local; gone when the task ends
  ((RANK_HERE == 0)) || SCRATCH+=.$RANK_HERE
  printf '%s\n' "$SLURM_STEP_ID" >"$STATE/$STEP.stepid.$NODE_INDEX"
  mv "$STATE/$STEP.stepid.$NODE_INDEX" "$STATE/$STEP.stepid"
}

supervise() { # supervise PROCESS READY PART...: start the first part, wait for READY (host:port or -), start the others;
  # when any ends, whatever its exit code, stop the others and fail
  local process=$1 ready=$2
  shift 2
  trap 'STOPPING=1' TERM INT
  mkdir -p "$SCRATCH"
  spawn "$process" "$1"
  [[ $ready == - ]] || await_port "$process" "$1" "${ready%:*}" "${ready##*:}"
  shift
  while (($#)) && [[ ! $STOPPING ]]; do
    spawn "$process" "$1"
    shift
  done
  [[ $STOPPING ]] || ((RANK_HERE)) || : >"$STATE/$STEP.$NODE_INDEX.ready"
  while [[ ! $STOPPING ]]; do
    leave_when_ended "$process"
    pause 0.2
  done
  stop_parts "$process"
  leave_step 143
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

spawn() { # spawn PROCESS PART: runs the array PART with the environment PART_env, in a process group of its own
  local process=$1 part=$2
  rm -f "$STATE/$process.$part.exit"
  set -m
  run_part "$process" "$part" 2>/dev/null &
  PART_PID[$part]=$!
  set +m
}

run_part() { # in the background: one process, its real exit code in state/<process>.<part>.exit
  local process=$1 part=$2
  local -n words=$part environment=${part}_env
  set +m
  trap : TERM INT # the whole group gets the signal; stay to record how the process took it
  (
    trap - TERM INT
    event started process="$process" part="$part" pid:="$BASHPID"
    # Dynamo and engines leave files in TMPDIR: they go with the scratch folder.
    exec env TMPDIR="$SCRATCH" "${environment[@]}" "${words[@]}" >"$LOGS/$process.$part.log" 2>&1 </dev/null
  )
  record_exit "$process" "$part" $?
}

record_exit() { # record_exit PROCESS PART CODE: whole or not at all
  printf '%d\n' "$3" >"$STATE/$1.$2.exit.new"
  mv "$STATE/$1.$2.exit.new" "$STATE/$1.$2.exit"
}

await_port() { # await_port PROCESS PART HOST PORT: while watching that the part lives
  local process=$1 part=$2 deadline=$((SECONDS + STARTUP_TIMEOUT))
  until port_open "$3" "$4"; do
    [[ ! $STOPPING ]] || return
    leave_when_ended "$process"
    if ((SECONDS > deadline)); then
      event not_listening process="$process" port:="$4" words="$process $part on $SLURMD_NODENAME did not listen on port $4 within $STARTUP_TIMEOUT s: see logs/$process.$part.log"
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
    code=$(<"$STATE/$process.$part.exit")
    unset "PART_PID[$part]"
    last=$(last_words "$LOGS/$process.$part.log")
    if ((code > 128 && code <= 192)); then
      how="was killed by SIG$(kill -l "$((code - 128))")"
    else
      how="exited with $code${last:+: $last}"
    fi
    engine_says=
    [[ $part != sidecar ]] || engine_says=$(engine_facts)
    event exited process="$process" part="$part" code:="$code" last="$last" ${engine_says:+engine="$engine_says"} \
      words="$process $part on $SLURMD_NODENAME $how"
    stop_parts "$process"
    leave_step $((code ? code : 1)) # exit code 0 is a failure too: nothing here is meant to end by itself
  done
}

# shellcheck disable=SC2154 # the worker's script fills `sidecar`
engine_facts() { # what the engine beside an ended sidecar says of itself, in one line; nothing where it does not answer
  local word before='' endpoint=''
  for word in "${sidecar[@]}"; do
    [[ $before != --grpc-endpoint ]] || endpoint=$word
    before=$word
  done
  [[ ! $endpoint ]] ||
    PYTHONPATH=$RUN_DIR/lib timeout 5 "${sidecar[0]}" -m srtctl.checks.engine_info "${endpoint%:*}" "${endpoint##*:}" 2>/dev/null
}

stop_parts() { # stop_parts PROCESS: TERM to the group of each part, grace, KILL
  local process=$1 part pid deadline=$((SECONDS + STOP_GRACE))
  STOPPING=1
  for part in "${!PART_PID[@]}"; do kill -TERM -- "-${PART_PID[$part]}" 2>/dev/null; done
  for part in "${!PART_PID[@]}"; do
    pid=${PART_PID[$part]}
    until [[ -e $STATE/$process.$part.exit ]] || ((SECONDS > deadline)); do pause 0.1; done
    kill -KILL -- "-$pid" 2>/dev/null # what ignored TERM, or children that outlived their parent
    wait "$pid" 2>/dev/null
    [[ -e $STATE/$process.$part.exit ]] || record_exit "$process" "$part" 137
    event stopped process="$process" part="$part" code:="$(<"$STATE/$process.$part.exit")"
  done
  PART_PID=()
}

last_words() { # last_words LOG: its last error line, else its last line
  local text line
  text=$(tail -n 60 "$1" | tr -d '\r' | sed 's/\x1b\[[0-9;]*m//g' | grep -v '^[[:space:]]*$')
  line=$(grep -E '^[A-Za-z_.]+(Error|Exception|Exit|Interrupt)(:|$)' <<<"$text" | tail -n 1)
  [[ $line ]] || line=$(grep -iE '\b(error|fatal|panicked)\b' <<<"$text" | tail -n 1)
  [[ $line ]] || line=$(tail -n 1 <<<"$text")
  printf '%s' "${line:0:500}"
}

leave_step() { # leave_step CODE
  rm -rf "$SCRATCH"
  rmdir "${SCRATCH%/*}" 2>/dev/null
  exit "$1"
}

# ------------------------------------------------------------------------------------------------ ports

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

listeners() { # port (hexadecimal) and inode of every listening TCP socket of this node
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { n = split($2, at, ":"); print at[n], $10 }'
}

survey_node() { # this node's name, its listening ports, its processes of this job that live, with their GPUs
  local hex process part pid file=$STATE/survey.$NODE_INDEX.tsv
  {
    printf 'node\t%s\n' "$SLURMD_NODENAME"
    while read -r hex _; do printf 'listen\t%d\n' "$((16#$hex))"; done < <(listeners)
    while read -r process part pid; do
      [[ -r /proc/$pid/environ ]] || continue
      printf 'process\t%s\t%s\t%s\t%s\n' "$process" "$part" "$pid" "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p')"
    done < <(sed -n 's/.*"event":"started","process":"\([^"]*\)","part":"\([^"]*\)","pid":\([0-9]*\)}$/\1 \2 \3/p' "$EVENTS/node-$NODE_INDEX.jsonl")
  } >"$file.new"
  mv "$file.new" "$file"
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
