#!/bin/bash
# agg-0: trtllm, agg, DP1, nodes 0-1
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

engine=(
  trtllm-llmapi-launch python3 -m tensorrt_llm.commands.serve qwen3-0.6b
  --grpc
  --grpc-protocol openengine
  --host 0.0.0.0
  --port 9100
  --extra_llm_api_options "${RUN_DIR}/state/files/trtllm-agg.yaml"
)

engine_env=(
  'CUDA_VISIBLE_DEVICES=0,1'
  "MASTER_ADDR=${NODE_ADDR[0]}"
  'MASTER_PORT=29500'
)

sidecar=(
  python3 -m dynamo.trtllm.sidecar
  --grpc-endpoint 127.0.0.1:9100
  --model-path qwen3-0.6b
  --context-length 8192
)

sidecar_env=(
  'DYN_DISCOVERY_BACKEND=etcd'
  'DYN_EVENT_PLANE=zmq'
  "DYN_EVENT_PLANE_HOST=${NODE_ADDR[0]}"
  'DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS=0'
  'DYN_PREFILL_DRAIN_TIMEOUT_S=0'
  'DYN_REQUEST_PLANE=tcp'
  'DYN_SDK_DISABLE_ANSI_LOGGING=1'
  "DYN_SYSTEM_HOST=${NODE_ADDR[0]}"
  'DYN_SYSTEM_PORT=7500'
  "DYN_TCP_RPC_HOST=${NODE_ADDR[0]}"
  "ETCD_ENDPOINTS=http://${NODE_ADDR[0]}:2379"
)

case $NODE_INDEX in
0) # leader: serves
  supervise_rank agg-0.0 127.0.0.1:9100 engine sidecar
  ;;
1) # follower: engine only
  supervise_rank agg-0.1 - engine
  ;;
esac
