#!/bin/bash
# prefill-0: vllm, prefill, DP2, node 0
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

engine=(
  vllm-rs serve qwen3-0.6b
  --served-model-name Qwen/Qwen3-0.6B
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
  --block-size 16
  --data-parallel-size 2
  --host 0.0.0.0
  --port 6100
  --grpc-port 9100
  --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","topic":"kv-events","endpoint":"tcp://*:5200"}'
)

engine_env=(
  'CUDA_VISIBLE_DEVICES=0,1'
  "VLLM_NIXL_SIDE_CHANNEL_HOST=${NODE_ADDR[0]}"
  'VLLM_NIXL_SIDE_CHANNEL_PORT=5600'
)

sidecar=(
  python3 -m dynamo.vllm.sidecar
  --grpc-endpoint 127.0.0.1:9100
  --disaggregation-mode prefill
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
0) # leader: serves; publishes rank 0 on 5200, rank 1 on 5201
  supervise prefill-0.0 127.0.0.1:9100 engine sidecar
  ;;
esac
