#!/bin/bash
# nginx on node 0
# shellcheck disable=SC1091,SC2034 # node.sh is checked by itself; it reads the arrays below by name
source "$RUN_DIR/node.sh"
enter_step

service=(
  nginx -p "${SCRATCH}" -e stderr -c "${RUN_DIR}/state/files/nginx.conf"
)
service_env=()

supervise nginx "${NODE_ADDR[0]}:8000" service
