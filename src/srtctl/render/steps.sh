# shellcheck shell=bash
# Steps: how the job starts each, watches it and stops it. The same file in every bundle; job.sh sources it.
# SC2016: what stands in single quotes here expands in the shell that it is given to. SC2034, SC2153: job.sh and runtime.sh have the rest.
# shellcheck disable=SC2016,SC2034,SC2153

declare -A STEP_TASKS=()
STEPS=()
FRONTENDS=() # those of the steps that take requests
CPU_BIND=()
CONTAINERS=none  # how steps enter images: none, pyxis, apptainer
CONTAINER_ENV=() # variables whose values here count inside too, whatever an image says
MOUNTS=()
IMAGE=     # of the steps that follow; empty: they run on the node itself
WRITABLE=  # whether those change their image as they see it
OPTIONS=() # further options of srun for the steps that follow

choose_cpu_bind() { # an engine must not be bound to the one CPU of its task; clusters that bind nothing complain when told so
  if scontrol show config | grep -Eq '^TaskPlugin .*(affinity|cgroup)'; then CPU_BIND=(--cpu-bind=none); fi
}

service() { start_step "$1" "$2" "$3"; await_steps "$STARTUP_TIMEOUT" "$1"; } # ready before the next line runs
frontend() { FRONTENDS+=("$1") && start_step "$1" "$2" "$3"; }
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
    exec env -u SLURM_NTASKS_PER_NODE "${ENTER_ENV[@]}" STEP="$name" ${hosts:+SLURM_HOSTFILE="$hosts"} srun --overlap --kill-on-bad-exit=1 --wait=$((STOP_GRACE + 10)) --input=none \
      "${CPU_BIND[@]}" "${tasks[@]}" "${OPTIONS[@]}" --job-name="$name" --output="$LOG_FILES/$name.log" \
      "${SRUN_ENTERS[@]}" "${ENTER[@]}" bash "$RUN_DIR/$4"
  )
  code=$?
  put "$STATE/$name.step" "$code"
  event step_ended step="$name" code:="$code"
}

check_steps() { # the first step that failed or ended ends the job, and so does what a signal asked for
  local name code
  obey
  for name in "${STEPS[@]}"; do
    [[ $name != "$CLIENT" && (-e $STATE/$name.failed || -e $STATE/$name.step) ]] || continue
    if [[ ! -e $STATE/$name.failed ]]; then
      code=$(<"$STATE/$name.step")
      ((code != 0 && code != 143)) || await_cancel # as it ends when it is told to, or was not yet running
    fi
    finish failed 1 "$(failure_cause "$name")"
  done
}

await_cancel() { # a step was stopped from outside: where nothing ended by itself the job's own TERM comes in a moment
  local try
  for ((try = 0; try < 25; try++)); do
    ! grep -qs -E '"event":"(exited|not_listening)"' "$EVENTS"/node-*.jsonl || return
    pause 0.2
    obey
  done
}

failure_cause() { # failure_cause STEP: what the processes of the job said first, in words
  local step=$1
  first_words '(exited|not_listening)' 20 || step_words "$step"
}

step_words() { # step_words STEP: how it ended, and what its own log says: of an image that cannot be had no process tells
  local said code=
  [[ ! -e $STATE/$1.step ]] || code=$(<"$STATE/$1.step")
  said=$(sed -nE 's/^(.*\[ERROR\]|FATAL:) *//p' "$LOGS/$1.log" 2>/dev/null | head -n 1) # enroot's or Apptainer's; Slurm only echoes it
  [[ $said ]] || said=$(last_words "$LOGS/$1.log" 2>/dev/null)
  echo "step $1 ended${code:+ with exit code $code}${said:+: $said}; see logs/$1.log"
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
      finish failed 1 "not ready after $seconds s: ${missing[*]}; see logs/${missing[0]}*.log, or raise health_check.max_attempts"
    fi
    pause 0.3
  done
}

ready_tasks() { # ready_tasks STEP: how many of its tasks have said so
  shopt -s nullglob
  local files=("$STATE/$1".*.ready)
  echo "${#files[@]}"
}

drain() { # before anything else the frontends stop: they take no new requests, and end with the last stream that they have
  signal_steps TERM "${FRONTENDS[@]}"
  await_ended $((STOP_GRACE / 2)) "${FRONTENDS[@]}"
}

stop_steps() { # TERM to each step, grace, then KILL; bounded whatever the steps do
  local signal
  for signal in TERM KILL; do
    signal_steps "$signal" "${STEPS[@]}"
    await_ended $((STOP_GRACE + 5)) "${STEPS[@]}" && return
  done
  say "some steps did not end; Slurm removes them with the job"
}

signal_steps() { # signal_steps SIGNAL STEP...: to those that have not ended
  local signal=$1 name
  shift
  for name in "$@"; do
    [[ ! -e $STATE/$name.step ]] || continue
    # By step id: a TERM to the srun client can become a KILL of the remote task.
    if [[ -s $STATE/$name.stepid ]]; then
      scancel --signal="$signal" "$SLURM_JOB_ID.$(<"$STATE/$name.stepid")" 2>/dev/null
    elif [[ -s $STATE/$name.srun ]]; then
      kill "-$signal" "$(<"$STATE/$name.srun")" 2>/dev/null
    fi
  done
}

await_ended() { # await_ended SECONDS STEP...: false when one of them has not ended by then
  local deadline=$((SECONDS + $1)) name
  shift
  for name in "$@"; do
    until [[ -e $STATE/$name.step ]]; do
      ((SECONDS < deadline)) || return
      pause 0.2
    done
  done
}
