"""What a process tells about itself: the JSON of GetServerInfo and `/get_server_info`, and of GetModelInfo."""

from __future__ import annotations

import dataclasses
from typing import Any

from srtctl.sim.faults import SAME_GROUP, Faults
from srtctl.sim.model import Model
from srtctl.sim.sglang.config import Config

VERSION = "0.5.21+sim"


def server_info(config: Config, model: Model, faults: Faults) -> dict[str, Any]:
    """All keys that Dynamo 1.6.1's sidecar reads, and the sizes. `kv_event_sources` lists this node's ranks only."""
    topology = config.topology
    info: dict[str, Any] = {
        "version": VERSION,
        "status": "ready",
        "model_path": config.model_path,
        "tokenizer_path": config.model_path,
        "served_model_name": config.served_model_name,
        "host": config.host,
        "port": config.port,
        "grpc_port": config.grpc_port,
        "dist_init_addr": _dist_init(config, faults),
        "nnodes": topology.nnodes,
        "node_rank": config.node_rank,
        "tp_size": topology.tp,
        "pp_size": topology.pp,
        "dp_size": topology.dp,
        "dcp_size": 1,
        "enable_dp_attention": topology.dp_attention,
        "page_size": config.page_size,
        "max_total_num_tokens": config.max_total_tokens,
        "max_running_requests": config.max_running_requests,
        "max_prefill_tokens": config.max_prefill_tokens,
        "context_length": config.context_length or model.context_length,
        "incremental_streaming_output": config.incremental_streaming,
        "disaggregation_mode": config.disaggregation_mode,
        "disaggregation_bootstrap_port": config.bootstrap_port,
        "disable_radix_cache": not config.prefix_cache,
        "speculative_algorithm": None,
        "kv_events": None,
        "kv_event_sources": [],
    }
    if faults.report_dp_size is not None:
        info |= {"dp_size": faults.report_dp_size, "attn_dp_size": topology.dp}
    if events := config.kv_events:
        info["kv_events"] = {
            "publisher": "zmq",
            "endpoint_host": events.host,
            "endpoint_port_base": events.port,
            "topic": events.topic,
            "block_size": config.page_size,
            "dp_size": info["dp_size"],
        }
        info["kv_event_sources"] = [
            {
                "dp_rank": rank,
                "endpoint": events.local_endpoint(rank),
                "topic": events.topic,
                "block_size": config.page_size,
                "replay_endpoint": None,
            }
            for rank in config.local_ranks
        ]
    if faults.no_sources:
        del info["kv_event_sources"]
    return info


def _dist_init(config: Config, faults: Faults) -> str | None:
    if faults.same_group:
        return SAME_GROUP
    address = config.dist_init
    if address and faults.wrong_group:
        address = dataclasses.replace(address, port=address.port + 1 + config.node_rank)
    return str(address) if address else None


def model_info(model: Model) -> dict[str, Any]:
    """What GetModelInfo and `/get_model_info` answer."""
    return {
        "model_path": model.path,
        "tokenizer_path": model.path,
        "architectures": list(model.architectures),
        "is_generation": True,
    }
