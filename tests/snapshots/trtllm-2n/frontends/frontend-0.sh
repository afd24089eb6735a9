#!/bin/bash
# frontend-0 on node 0
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

frontend=(
  python3 -m dynamo.frontend
  --http-host 0.0.0.0
  --http-port 8000
  --router-mode kv
)
frontend_env=(
  'DYN_DISCOVERY_BACKEND=etcd'
  'DYN_EVENT_PLANE=zmq'
  "DYN_EVENT_PLANE_HOST=${NODE_ADDR[0]}"
  'DYN_REQUEST_PLANE=tcp'
  'DYN_SDK_DISABLE_ANSI_LOGGING=1'
  "DYN_TCP_RESPONSE_STREAM_HOST=${NODE_ADDR[0]}"
  "ETCD_ENDPOINTS=http://${NODE_ADDR[0]}:2379"
)

supervise frontend-0 "${NODE_ADDR[0]}:8000" frontend
