# shellcheck shell=bash
# The job itself, in the batch script on the first node: the same file in every bundle. job.sbatch calls, in this order,
# open_run, bind_nodes, probe_claims, probe_stack, service, frontend, worker, expect, reach, gate, run_checks, and at the end serve or benchmark.
# The job ends with its first failure, with a named cause. Every way out goes through `finish`.
# SC2016: what stands in single quotes here expands in the shell that it is given to. SC1091: checked by itself. SC2153: from runtime.sh.
# shellcheck disable=SC2016,SC1091,SC2153
source "$RUN_DIR/runtime.sh"

declare -A STEP_TASKS=()
STEPS=()
EXPECTED=()
REACHES=()
CPU_BIND=()
CONTAINERS=none  # how steps enter images: none, pyxis, apptainer
CONTAINER_ENV=() # variables whose values here count inside too, whatever an image says
MOUNTS=()
IMAGE=     # of the steps that follow; empty: they run on the node itself
WRITABLE=  # whether those change their image as they see it
OPTIONS=() # further options of srun for the steps that follow
SERVING=
CLIENT= # the step whose end is no failure by itself
CLEANUP_TIMEOUT=60 # seconds that Slurm may take to clear away an earlier job of this bundle

open_run() { # what an earlier job of this bundle left moves to attempts/<job id>
  mkdir -p "$LOGS" "$STATE" "$EVENTS"
  local earlier
  if [[ -s $STATE/job_id ]]; then
    earlier=$(<"$STATE/job_id")
    until [[ $earlier == "$SLURM_JOB_ID" || -z $(squeue --noheader --jobs "$earlier" --format %T 2>/dev/null) ]]; do
      # A job that has said how it ended is only being cleaned up by Slurm.
      if [[ ! -e $STATE/end.json ]] || ((SECONDS > CLEANUP_TIMEOUT)); then
        say "job $earlier is still using $RUN_DIR: render the recipe to another folder, or cancel that job first"
        exit 1
      fi
      pause 0.5
    done
    [[ $earlier != "$SLURM_JOB_ID" ]] || earlier+=.$((${SLURM_RESTART_COUNT:-1} - 1))
    mkdir -p "$RUN_DIR/attempts/$earlier"
    mv "$STATE" "$EVENTS" "$RUN_DIR/attempts/$earlier/"
    [[ ! -e $RUN_DIR/checks.json ]] || mv "$RUN_DIR/checks.json" "$RUN_DIR/attempts/$earlier/"
    mkdir -p "$STATE" "$EVENTS" "$RUN_DIR/attempts/$earlier/logs"
    find "$LOGS" -mindepth 1 -maxdepth 1 \( -name '*.log' -o -type d \) ! -name "job.$SLURM_JOB_ID.log" -exec mv -t "$RUN_DIR/attempts/$earlier/logs" {} +
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
  if [[ $CLIENT ]]; then
    finish time_limit 1 "the time limit came before the $CLIENT ended"
  elif [[ $SERVING ]]; then
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
    bash -c 'source "$RUN_DIR/node.sh"; enter_step; probe_node "$0"' "$RUN_DIR/$1"; then
    event claims_free
    return
  fi
  local busy
  busy=$(grep -h '"event":"port_busy"' "$EVENTS"/node-*.jsonl 2>/dev/null | sed -n 's/.*"words":"\(.*\)"}$/\1/p' | head -n 3 | paste -sd ';')
  finish failed 1 "${busy:-the port probe could not run: see logs/probe.log}"
}

probe_stack() { # probe_stack NODE PYTHON: the installed Dynamo has what the plan uses, or the job ends here and says what it lacks
  local said code
  entering
  said=$(env "${ENTER_ENV[@]}" srun --overlap --input=none --nodes=1 --ntasks=1 --nodelist="$(names_of "$1")" --job-name=probe-stack \
    "${SRUN_ENTERS[@]}" "${ENTER[@]}" timeout 10 "$2" "$RUN_DIR/lib/srtctl/checks/stack.py" "$RUN_DIR/plan.json" 2>"$LOGS/probe-stack.log")
  code=$?
  [[ ! $said || $code == 4 ]] || say "$said"
  case $code in
  0) ;;
  4) finish failed 1 "$said" ;;
  *) say "what the installed Dynamo can do is not known (exit code $code): see logs/probe-stack.log" ;;
  esac
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
task_worker() { TASKS_A_NODE=$4 start_step "$1" "$2" "$3"; } # the same with so many tasks on each of its nodes
mpi_worker() { start_step "$@"; } # the same as one MPI job: so many ranks on each of its nodes, rank 0 on the first

start_step() { # start_step NAME NODES SCRIPT [RANKS,... MPI]
  local name=$1 names count
  names=$(names_of "$2")
  count=$(($(tr -cd , <<<"$names" | wc -c) + 1))
  STEPS+=("$name")
  STEP_TASKS[$name]=$((count * ${TASKS_A_NODE:-1}))
  event step_started step="$name"
  say "starting $name on $names"
  run_step "$name" "$names" "$count" "$3" "${@:4}" &
}

containers() { # containers RUNTIME [VARIABLE...]: how steps enter their images, and whose values here count inside
  CONTAINERS=$1
  CONTAINER_ENV=("${@:2}")
}

mounts() { MOUNTS=("$@"); } # mounts SOURCE:TARGET[:OPTIONS]...: what every image sees of the nodes
in_image() { IMAGE=$1 WRITABLE=; } # in_image IMAGE: the steps that follow run there
in_writable_image() { IMAGE=$1 WRITABLE=1; } # the same, and their set-up changes it; each step has its own
on_the_node() { IMAGE=; } # the steps that follow run on the node itself
with_options() { OPTIONS=("$@"); } # with_options [OPTION...]: srun starts the steps that follow with these too

joined() { (IFS=,; echo "$*"); }

entering() { # what leads into IMAGE: environment of srun in ENTER_ENV, its options in SRUN_ENTERS, words before the command in ENTER
  ENTER_ENV=() SRUN_ENTERS=() ENTER=()
  [[ $IMAGE ]] || return 0
  # A TMPDIR of the node need not exist in the image, whose /tmp does.
  [[ " ${CONTAINER_ENV[*]} " == *' TMPDIR '* ]] || ENTER_ENV=(-u TMPDIR)
  case $CONTAINERS in
  pyxis)
    SRUN_ENTERS=(--container-image="$IMAGE" --container-mounts="$(joined "${MOUNTS[@]}")" --no-container-mount-home --no-container-entrypoint
      ${WRITABLE:+--container-writable})
    ((${#CONTAINER_ENV[@]} == 0)) || SRUN_ENTERS+=(--container-env="$(joined "${CONTAINER_ENV[@]}")")
    ;;
  apptainer)
    local name
    for name in "${CONTAINER_ENV[@]}"; do ENTER_ENV+=("APPTAINERENV_$name=${!name}"); done
    [[ ! $WRITABLE ]] || ENTER_ENV+=(SETUP_EACH_RANK=1) # every rank has an overlay of its own
    ENTER=(apptainer exec --nv ${WRITABLE:+--writable-tmpfs} --bind "$(joined "${MOUNTS[@]}")" "$IMAGE")
    ;;
  esac
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
  local name=$1 code hosts='' a_node=${TASKS_A_NODE:-1}
  local tasks=(--nodes="$3" --ntasks=$(($3 * a_node)) --ntasks-per-node="$a_node" --nodelist="$2")
  ((a_node == 1)) || tasks+=(--overcommit)
  trap : TERM INT USR1
  entering
  if (($# > 4)); then
    hosts=$STATE/$name.hosts # a list, because nodes may have different numbers of ranks
    rank_hosts "$2" "$5" >"$hosts"
    tasks=(--mpi="$6" --overcommit --ntasks="$(wc -l <"$hosts")" --distribution=arbitrary)
  fi
  (
    trap - TERM INT USR1
    printf '%d\n' "$BASHPID" >"$STATE/$name.srun"
    exec env -u SLURM_NTASKS_PER_NODE "${ENTER_ENV[@]}" STEP="$name" ${hosts:+SLURM_HOSTFILE="$hosts"} srun --overlap --kill-on-bad-exit=1 --wait=30 --input=none \
      "${CPU_BIND[@]}" "${tasks[@]}" "${OPTIONS[@]}" --job-name="$name" --output="$LOGS/$name.log" \
      "${SRUN_ENTERS[@]}" "${ENTER[@]}" bash "$RUN_DIR/$4"
  )
  code=$?
  printf '%d\n' "$code" >"$STATE/$name.step.new"
  mv "$STATE/$name.step.new" "$STATE/$name.step"
  event step_ended step="$name" code:="$code"
}

check_steps() { # the first step that ended ends the job
  local name
  for name in "${STEPS[@]}"; do
    [[ $name != "$CLIENT" && -e $STATE/$name.step ]] || continue
    [[ $(<"$STATE/$name.step") != 143 ]] || await_cancel
    finish failed 1 "$(failure_cause "$name")"
  done
}

await_cancel() { # a step was stopped from outside: where nothing ended by itself the job's own TERM comes in a moment
  local try
  for ((try = 0; try < 25; try++)); do
    ! grep -qs -E '"event":"(exited|not_listening)"' "$EVENTS"/node-*.jsonl || return
    pause 0.2
  done
}

failure_cause() { # failure_cause STEP: what the processes of the job said first, in words
  local step=$1
  first_words '(exited|not_listening)' 20 || echo "step $step ended with exit code $(<"$STATE/$step.step"); see logs/$step.log"
}

first_words() { # first_words EVENTS TRIES: the words of the first such event of any node; false where there is none
  local line try words
  for ((try = 0; try < $2; try++)); do # another node's file may appear late on a shared file system
    line=$(grep -h -E "\"event\":\"$1\"" "$EVENTS"/node-*.jsonl 2>/dev/null | sort | head -n 1)
    words=$(sed -n 's/.*"words":"\(.*\)"}$/\1/p' <<<"$line" | sed 's/\\\(.\)/\1/g')
    if [[ $words ]]; then
      printf '%s\n' "$words"
      return
    fi
    pause 0.25
  done
  return 1
}

await_steps() { # await_steps SECONDS STEP...: every task of these steps has said that it is ready
  # A node that gives up says which process it was, and what its log said: it gets the time to.
  local seconds=$1 deadline=$((SECONDS + $1 + STOP_GRACE)) name missing
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
      finish failed 1 "not ready after $seconds s: ${missing[*]}"
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

reach() { # reach NODE ENGINE_NODE PORT OWNER: from NODE that gRPC port must be reachable before the gate passes
  REACHES+=("$*")
}

probe_reaches() { # every `reach` holds, or the job ends here and says which port cannot be reached from where
  local node nodes said
  mapfile -t nodes < <(printf '%s\n' "${REACHES[@]}" | cut -d ' ' -f 1 | sort -nu)
  for node in "${nodes[@]}"; do
    said=$(STEP=reach srun --overlap --input=none --nodes=1 --ntasks=1 --nodelist="$(names_of "$node")" --job-name=reach \
      bash -c 'source "$RUN_DIR/node.sh"; enter_step; reach_node "$@"' reach "${REACHES[@]}" 2>"$LOGS/reach.log") ||
      finish failed 1 "${said:-whether the engines can be reached from ${NODE_NAME[node]} could not be tried: see logs/reach.log}"
  done
}

gate() { # gate FRONTEND,... TIMEOUT [PYTHON]: every process is up, then every planned worker is registered with every planned rank
  local frontends=$1 timeout=$2 python=${3:-} deadline missing why before=
  await_steps "$STARTUP_TIMEOUT" "${STEPS[@]}"
  event processes_ready
  ((${#REACHES[@]} == 0)) || probe_reaches
  if [[ $frontends == - ]]; then
    event gate_passed
    return
  fi
  say "every process is up; waiting for registrations at ${frontends//,/ and }"
  deadline=$((SECONDS + timeout))
  until missing=$(missing_registrations "$frontends"); do
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

missing_registrations() { # missing_registrations FRONTEND,...: says what the first incomplete router lacks and fails, or says nothing and succeeds
  local frontend said
  for frontend in ${1//,/ }; do
    said=$(missing_at "$frontend") && continue
    [[ $1 != *,* ]] || said+=" (frontend at $frontend)"
    echo "$said"
    return 1
  done
}

missing_at() { # missing_at FRONTEND
  local metrics spec type workers ranks sources pairs have_workers have_ranks
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
    have_ranks=$(grep -c . <<<"$pairs")
    have_workers=$(cut -d' ' -f1 <<<"$pairs" | sort -u | grep -c .)
    if [[ $have_ranks != "${ranks#ranks=}" || $have_workers != "${workers#workers=}" ]]; then
      echo "$type: $workers $ranks expected, the router has $have_workers workers and $have_ranks ranks"
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
    bash -c 'source "$RUN_DIR/node.sh"; enter_step; survey_node' || say "not every node could be surveyed: see logs/survey.log"
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

benchmark() { # benchmark NAME NODE SCRIPT: as serve, until the client ends; its end is the end of the job
  local name=$1 code words
  SERVING=1
  event serving
  CLIENT=$name
  event client_started step="$name"
  start_step "$@"
  until [[ -e $STATE/$name.step ]]; do
    pause 0.3
    check_steps
  done
  code=$(<"$STATE/$name.step")
  ((code)) || finish completed 0 "$name finished"
  # A client that lost what it talks to ends first: what ended before or beside it says so in a moment.
  if words=$(first_words '(exited|not_listening)' 8); then finish failed 1 "$words"; fi
  [[ $code != 143 ]] || await_cancel
  words=$(first_words client_ended 8) || words="step $name ended with exit code $code; see logs/$name.log"
  finish failed 1 "$words"
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
