# shellcheck shell=bash
# What every part of an srtctl job shares: words, events, small network tools. The same file in every bundle.
# job.sh (the job, on the first node) and node.sh (one task of a step) source it.
# SC2016: what stands in single quotes here expands in the shell that it is given to. SC2034: job.sh and node.sh read these.
# shellcheck disable=SC2016,SC2034
set -u -o pipefail

: "${RUN_DIR:?is set by job.sbatch}"
export RUN_DIR
LOGS=$RUN_DIR/logs
LOG_FILES=${LOGS//%/%%} # the same for Slurm, which fills in what follows a %
STATE=$RUN_DIR/state
EVENTS=$RUN_DIR/events

STOP_GRACE=${STOP_GRACE:-20}         # seconds between TERM and KILL for one process
STARTUP_TIMEOUT=${STARTUP_TIMEOUT:-1800} # seconds a process may take until its port answers

json() { # json TEXT: JSON is that as a JSON string. As in `clock`, no subshell: it would end with the step's signal
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/ }
  text=${text//[[:cntrl:]]/}
  JSON="\"$text\""
}

clock() { # NOW in seconds with six decimals; without a process where bash can, for Slurm signals every process of a step
  NOW=${EPOCHREALTIME:-}
  NOW=${NOW/,/.}
  until [[ $NOW ]]; do NOW=$(date +%s.%6N); done
}

event() { # event NAME [key=text | key:=number]...: one line in this writer's own file
  local line pair
  clock
  line="{\"ts\":$NOW,\"node\":${NODE_INDEX:-null},\"event\":\"$1\""
  shift
  for pair in "$@"; do
    case $pair in
    [a-z_]*:=*) line+=",\"${pair%%:=*}\":${pair#*:=}" ;;
    *)
      json "${pair#*=}"
      line+=",\"${pair%%=*}\":$JSON"
      ;;
    esac
  done
  printf '%s}\n' "$line" >>"$EVENTS/${NODE_INDEX:+node-}${NODE_INDEX:-job}.jsonl"
}

steadily() { # steadily COMMAND...: again when a signal ended it, for Slurm signals every process of a step
  local code
  while
    "$@"
    code=$?
    ((code > 128))
  do :; done
  return "$code"
}

put() { # put FILE TEXT: whole or not at all
  printf '%s\n' "$2" >"$1.new"
  steadily mv "$1.new" "$1"
}

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }

is_ipv4() { [[ $1 =~ ^[0-9]{1,3}(\.[0-9]{1,3}){3}$ ]]; }

port_open() { # port_open HOST PORT
  timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2" 2>/dev/null
}

last_words() { # last_words LOG: its last error line, else its last line
  local text line
  text=$(tail -n 60 "$1" | tr -d '\r' | sed 's/\x1b\[[0-9;]*m//g' | grep -v '^[[:space:]]*$')
  line=$(grep -E '^[A-Za-z_.]+(Error|Exception|Exit|Interrupt)(:|$)' <<<"$text" | tail -n 1)
  [[ $line ]] || line=$(grep -iE '\b(error|fatal|panicked)\b' <<<"$text" | tail -n 1)
  [[ $line ]] || line=$(tail -n 1 <<<"$text")
  printf '%s' "${line:0:500}"
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

joined() { (IFS=,; echo "$*"); }

indices_of() { # indices_of 0-1,4 -> 0, 1, 4, a line each
  local part
  for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done
}

names_of() { # names_of 0-1,4 -> the host names, comma separated
  local index out=()
  for index in $(indices_of "$1"); do out+=("${NODE_NAME[index]}"); done
  joined "${out[@]}"
}

addresses_of() { # addresses_of 0-1,4:8080 -> ADDRESS:8080 of each of these nodes, a line each
  local index
  for index in $(indices_of "${1%:*}"); do echo "${NODE_ADDR[index]}:${1##*:}"; done
}
