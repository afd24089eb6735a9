#!/bin/bash
# benchmark on node 0: runs command.sh beside this file, as the recipe says
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

client=(
  bash "${RUN_DIR}/client/command.sh"
)
client_env=(
  "AIPERF_SERVER_METRICS_URLS=http://${NODE_ADDR[0]}:7500/metrics"
  'REQUESTS=4'
  "SRT_AGG_ENDPOINTS=${NODE_ADDR[0]}:7500"
  "SRT_AGG_IPS=${NODE_ADDR[0]}"
  "SRT_FRONTEND_HOST=${NODE_ADDR[0]}"
  'SRT_FRONTEND_PORT=8000'
  "SRT_FRONTEND_URL=http://${NODE_ADDR[0]}:8000"
  'SRT_GPUS_PER_NODE=1'
  'SRT_MODEL_NAME=Qwen/Qwen3-0.6B'
  'SRT_MODEL_PATH=qwen3-0.6b'
  "SRT_RESULTS_DIR=${RUN_DIR}/logs/benchmark"
)

run_client benchmark client
