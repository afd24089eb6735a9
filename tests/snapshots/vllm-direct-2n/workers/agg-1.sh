#!/bin/bash
# agg-1: vllm, agg, DP1, node 1
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

engine=(
  vllm-rs serve qwen3-0.6b
  --served-model-name qwen3-0.6b
  --block-size 16
  --tensor-parallel-size 2
  --host 0.0.0.0
  --port 6100
  --grpc-port 9100
)

engine_env=(
  'CUDA_VISIBLE_DEVICES=0,1'
)

sidecar=(
  python3 -m dynamo.vllm.sidecar
  --grpc-endpoint 127.0.0.1:9100
  --advertise-grpc-endpoint "${NODE_ADDR[1]}:9100"
)

sidecar_env=(
  'DYN_DISCOVERY_BACKEND=etcd'
  'DYN_EVENT_PLANE=zmq'
  "DYN_EVENT_PLANE_HOST=${NODE_ADDR[1]}"
  'DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS=0'
  'DYN_PREFILL_DRAIN_TIMEOUT_S=0'
  'DYN_REQUEST_PLANE=tcp'
  'DYN_SDK_DISABLE_ANSI_LOGGING=1'
  "DYN_SYSTEM_HOST=${NODE_ADDR[1]}"
  'DYN_SYSTEM_PORT=7500'
  "DYN_TCP_RPC_HOST=${NODE_ADDR[1]}"
  "ETCD_ENDPOINTS=http://${NODE_ADDR[0]}:2379"
)

case $NODE_INDEX in
1) # leader: serves
  supervise agg-1.0 127.0.0.1:9100 engine sidecar
  ;;
esac
