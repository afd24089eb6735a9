#!/bin/bash
# etcd on node 0
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

service=(
  etcd
  --name etcd
  --data-dir "${SCRATCH}/etcd"
  --listen-client-urls "http://${NODE_ADDR[0]}:2379"
  --advertise-client-urls "http://${NODE_ADDR[0]}:2379"
  --listen-peer-urls "http://${NODE_ADDR[0]}:2380"
  --initial-advertise-peer-urls "http://${NODE_ADDR[0]}:2380"
  --initial-cluster "etcd=http://${NODE_ADDR[0]}:2380"
)
service_env=()

supervise etcd "${NODE_ADDR[0]}:2379" service
