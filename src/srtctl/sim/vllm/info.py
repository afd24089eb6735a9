"""What a serving process tells about itself: the answers of `vllm.Control`, as fields of its messages."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from srtctl.sim.address import ANY_HOST
from srtctl.sim.faults import WRONG_PORT_OFFSET, Faults
from srtctl.sim.rank import Rank
from srtctl.sim.vllm.config import Config
from srtctl.sim.vllm.messages import API_VERSION

VERSION = "0.21.0+sim"
INSTANCE = uuid.uuid4().hex


def server_info(config: Config, context_length: int, faults: Faults) -> dict[str, Any]:
    """The fields of ServerInfo; `parallelism` is a mapping of its own."""
    topology, served = config.topology, config.served_ranks
    dp = topology.dp if faults.report_dp_size is None else faults.report_dp_size
    return {
        "engine_version": VERSION,
        "api_version": API_VERSION,
        "instance_id": INSTANCE,
        "parallelism": {
            "tensor_parallel_size": topology.tp,
            "pipeline_parallel_size": topology.pp,
            "data_parallel_size": dp,
            "data_parallel_rank": served[0],
            "data_parallel_size_local": min(len(served), dp),
            "decode_context_parallel_size": 1,
            "world_size": topology.world_size,
        },
        "max_model_len": context_length,
        "kv_block_size": config.block_size,
        "total_kv_blocks": config.kv_blocks * len(served),
        "max_running_requests": config.max_sequences,
        "max_batched_tokens": config.max_batched_tokens,
    }


def model_info(config: Config) -> dict[str, Any]:
    """The fields of ModelInfo; `model_id` is where its tokenizer is."""
    name, *aliases = config.served_model_names
    return {
        "model_id": config.model,
        "served_model_name": name,
        "served_model_aliases": aliases,
        "supports_text_input": True,
        "supports_token_ids_input": True,
    }


def kv_event_sources(config: Config, ranks: Mapping[int, Rank], faults: Faults) -> list[dict[str, Any]]:
    """The fields of each KvEventSource: the address that the publisher of each of this node's ranks is bound to.

    With the fault `wrong_port` it is bound elsewhere.
    """
    events = config.kv_events
    if events is None or faults.no_sources:
        return []
    host = "*" if events.host in ANY_HOST else events.host
    off = WRONG_PORT_OFFSET if faults.wrong_port else 0
    return [
        {
            "transport": "zmq",
            "endpoint": f"tcp://{host}:{(rank.port or 0) - off}",
            "topic": events.topic,
            "data_parallel_rank": dp_rank,
            "encoding": "msgpack",
            "schema_version": 1,
            "buffer_steps": 10_000,
            "hwm": 100_000,
            "max_queue_size": 100_000,
        }
        for dp_rank, rank in ranks.items()
    ]
