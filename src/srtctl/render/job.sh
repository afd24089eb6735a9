# shellcheck shell=bash
# The job itself, in the batch script on the first node: the same file in every bundle. job.sbatch calls, in this order,
# open_run, bind_nodes, probe_claims, probe_stack, service, frontend, worker, expect, reach, gate, run_checks, and at the end serve or benchmark.
# The job ends with its first failure, with a named cause. Every way out goes through `finish`.
# SC2016: what stands in single quotes here expands in the shell that it is given to. SC1091: checked by itself. SC2153: from runtime.sh.
# shellcheck disable=SC2016,SC1091,SC2153
source "$RUN_DIR/runtime.sh"
source "$RUN_DIR/steps.sh"

EXPECTED=()
REACHES=()
ASKED= # what a signal asked for: cancelled, time_limit
SERVING=
CLIENT= # the step whose end is no failure by itself
CLEANUP_TIMEOUT=60 # seconds that Slurm may take to clear away an earlier job of this bundle

open_run() { # what an earlier job of this bundle left moves to attempts/<job id>
  mkdir -p "$LOGS" "$STATE" "$EVENTS"
  local earlier state
  if [[ -s $STATE/job_id ]]; then
    earlier=$(<"$STATE/job_id")
    while [[ $earlier != "$SLURM_JOB_ID" ]] && state=$(state_of "$earlier"); do
      # A job that has said how it ended is only being cleaned up by Slurm.
      if [[ $state != unknown && ! -e $STATE/end.json ]] || ((SECONDS > CLEANUP_TIMEOUT)); then
        say "job $earlier ($state) is still using $RUN_DIR: render the recipe to another folder, or cancel that job first"
        exit 1
      fi
      pause 0.5
    done
    [[ $earlier != "$SLURM_JOB_ID" ]] || earlier+=.$((${SLURM_RESTART_COUNT:-1} - 1))
    mkdir -p "$RUN_DIR/attempts/$earlier"
    mv "$STATE" "$EVENTS" "$RUN_DIR/attempts/$earlier/"
    mkdir -p "$STATE" "$EVENTS" "$RUN_DIR/attempts/$earlier/logs"
    find "$RUN_DIR" -maxdepth 1 -name 'checks*.json' -exec mv -t "$RUN_DIR/attempts/$earlier" {} +
    find "$LOGS" -mindepth 1 -maxdepth 1 \( -name '*.log' -o -type d \) ! -name "job.$SLURM_JOB_ID.log" -exec mv -t "$RUN_DIR/attempts/$earlier/logs" {} +
  fi
  printf '%s\n' "$SLURM_JOB_ID" >"$STATE/job_id"
  note_signals
  choose_cpu_bind
  event job_started job_id="$SLURM_JOB_ID"
  say "job $SLURM_JOB_ID, run $RUN_DIR"
}

state_of() { # state_of JOB: what Slurm calls its state, `unknown` while Slurm does not answer; false when there is no such job any more
  local said ask=(squeue --noheader --jobs "$1" --format %T)
  if said=$("${ask[@]}" 2>/dev/null); then
    [[ $said ]] && echo "$said"
  else
    [[ $("${ask[@]}" 2>&1) != *"Invalid job id"* ]] && echo unknown
  fi
}

note_signals() { # only noted in a trap: bash leaves one that runs during `read -t` when that time is over, whatever it was doing
  trap 'ASKED=cancelled' TERM INT
  trap 'ASKED=time_limit' USR1
}

obey() { # what a signal asked for, between two steps of the work
  case $ASKED in
  cancelled) finish cancelled 0 "cancelled" ;;
  time_limit) on_time_limit ;;
  esac
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
  json "$cause"
  put "$STATE/end.json" "{\"state\": \"$state\", \"exit_code\": $code, \"cause\": $JSON}"
  # Who was not stopped by a failure gets the answers to what was asked.
  [[ $state == failed || ! $SERVING ]] || drain
  stop_steps
  event job_ended state="$state" exit_code:="$code" cause="$cause"
  say "ended"
  exit "$code"
}

attend() { # attend COMMAND...: in the background, for a signal is noted only between commands of the foreground
  "$@" &
  local code=0
  wait $! || code=$?
  obey
  return "$code"
}

bind_nodes() { # bind_nodes COUNT [INTERFACE]: plan node i is the i-th host of the allocation
  local count=$1 interface=${2:-} names name index=0 line address table=
  local -A known=()
  mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  if ((${#names[@]} != count)); then
    finish failed 1 "the plan needs $count nodes, the allocation has ${#names[@]} ($SLURM_JOB_NODELIST): submit job.sbatch without --nodes of your own"
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
    table+="${table:+$'\n'}$index"$'\t'"$name"$'\t'"$address"
    index=$((index + 1))
  done
  put "$STATE/nodes.tsv" "$table"
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
  if STEP=probe attend srun --overlap --input=none --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --job-name=probe --output="$LOG_FILES/probe.log" \
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
  attend env "${ENTER_ENV[@]}" srun --overlap --input=none --nodes=1 --ntasks=1 --nodelist="$(names_of "$1")" "${OPTIONS[@]}" --job-name=probe-stack \
    "${SRUN_ENTERS[@]}" "${ENTER[@]}" timeout 10 "$2" "$RUN_DIR/lib/srtctl/checks/stack.py" "$RUN_DIR/plan.json" >"$STATE/probe-stack" 2>"$LOGS/probe-stack.log"
  code=$?
  said=$(<"$STATE/probe-stack")
  [[ ! $said || $code == 4 ]] || say "$said"
  case $code in
  0) ;;
  4) finish failed 1 "$said" ;;
  *) say "what the installed Dynamo can do is not known (exit code $code): see logs/probe-stack.log" ;;
  esac
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
    STEP=reach attend srun --overlap --input=none --nodes=1 --ntasks=1 --nodelist="$(names_of "$node")" --job-name=reach \
      bash -c 'source "$RUN_DIR/node.sh"; enter_step; reach_node "$@"' reach "${REACHES[@]}" >"$STATE/reach" 2>"$LOGS/reach.log" && continue
    said=$(<"$STATE/reach")
    finish failed 1 "${said:-whether the engines can be reached from ${NODE_NAME[node]} could not be tried: see logs/reach.log}"
  done
}

gate() { # gate TIMEOUT PYTHON|- [NODES:PORT...]: every process is up, then every planned worker is registered with every planned rank at
  # the router of each of these frontends. PYTHON runs the checks that say why one is not
  local timeout=$1 python=${2#-} frontends deadline missing why before=
  shift 2
  mapfile -t frontends < <(for place; do addresses_of "$place"; done)
  await_steps "$STARTUP_TIMEOUT" "${STEPS[@]}"
  event processes_ready
  ((${#REACHES[@]} == 0)) || probe_reaches
  if ((${#frontends[@]} == 0)); then
    event gate_passed
    return
  fi
  say "every process is up; waiting for registrations at ${frontends[*]}"
  deadline=$((SECONDS + timeout))
  until missing=$(missing_registrations "${frontends[@]}"); do
    [[ $missing == "$before" ]] || event gate_waiting reason="$missing"
    before=$missing
    check_steps
    if ((SECONDS > deadline)); then
      why_not_registered "$python" >"$STATE/unregistered" # no substitution: a signal would wait for its end
      why=$(<"$STATE/unregistered")
      event gate_failed reason="${why:-$missing}"
      finish failed 1 "not registered after $timeout s: ${why:-$missing}"
    fi
    pause 0.5
  done
  event gate_passed
  say "every planned worker is registered, with every planned rank"
}

missing_registrations() { # missing_registrations ADDRESS:PORT...: says what the first incomplete router lacks and fails, or says nothing and succeeds
  local frontend said
  for frontend; do
    said=$(missing_at "$frontend") && continue
    (($# == 1)) || said+=" (frontend at $frontend)"
    echo "$said"
    return 1
  done
}

missing_at() { # missing_at ADDRESS:PORT
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
  STEP=survey attend srun --overlap --input=none --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --job-name=survey --output="$LOG_FILES/survey.log" \
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
  local name=$1 code tries words
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
  # A client that lost what it talks to ends first: what ended beside it says so in a moment, a sidecar once its engine was
  # asked. Of a client that is content only what was lost before it ended counts: that step may still be stopping its parts.
  tries=$((code ? 24 : 1))
  if words=$(first_words '(exited|not_listening)' "$tries"); then finish failed 1 "$words"; fi
  ((code)) || finish completed 0 "$name finished"
  [[ $code != 143 ]] || await_cancel
  words=$(first_words client_ended 8) || words=$(step_words "$name")
  finish failed 1 "$words"
}
