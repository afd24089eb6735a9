#!/bin/bash
# agg-0: mocker, agg, DP2, node 0
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

engine=(
  python3 -m dynamo.mocker
  --model-path qwen3-0.6b
  --model-name Qwen/Qwen3-0.6B
  --engine-type vllm
  --speedup-ratio 0
  --zmq-kv-events-ports 5200
  --block-size 16
  --data-parallel-size 2
)

engine_env=(
  'CUDA_VISIBLE_DEVICES=0'
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
0) # leader; publishes rank 0 on 5200, rank 1 on 5201
  supervise agg-0.0 "${NODE_ADDR[0]}:7500" engine
  ;;
esac
