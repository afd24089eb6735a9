"""Registrations as Dynamo 1.6.1 writes them: the sidecar's side, and what the frontend takes from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from srtctl.sim.direct.engine import EngineInfo

CARDS, INSTANCES = "v1/mdc/", "v1/instances/"
ENDPOINT_KEY, MODE_KEY = "native_grpc_endpoint", "native_grpc_mode"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
_CARD_FILES = (
    ("model_info", "hf_config_json", "config.json"),
    ("tokenizer", "hf_tokenizer_json", "tokenizer.json"),
    ("prompt_formatter", "hf_tokenizer_config_json", "tokenizer_config.json"),
    ("gen_config", "hf_generation_config_json", "generation_config.json"),
)
_WORKER_TYPES = {"agg": "aggregated", "prefill": "prefill", "decode": "decode"}


@dataclass(frozen=True)
class Place:
    """Where a worker registers: `worker_id` under `namespace/component/endpoint`."""

    namespace: str
    component: str
    endpoint: str
    worker_id: int

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.component}/{self.endpoint}/{self.worker_id:x}"


@dataclass(frozen=True)
class Member:
    """A registered worker, as a frontend sees it. `plane` is its request plane, `direct` its engine's gRPC address
    (empty: not advertised), `tokenizer` a URL."""

    worker_id: int
    model: str
    ranks: range
    plane: str
    direct: str
    mode: str
    tokenizer: str


def registrations(
    place: Place, info: EngineInfo, *, status: str, plane: str, mode: str, advertised: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key and value of a worker's model card and instance. `status` is the `host:port` of its status server."""
    where = {"namespace": place.namespace, "component": place.component, "endpoint": place.endpoint}
    common = {**where, "instance_id": place.worker_id}
    slug = info.served_name.replace("/", "_")
    base = f"http://{status}/v1/metadata/{place.namespace}/{place.component}/{place.endpoint}/{slug}/_base"
    direct = {ENDPOINT_KEY: advertised, MODE_KEY: mode} if advertised else {}
    card = {
        "display_name": info.served_name,
        "slug": slug,
        "source_path": info.model_path,
        **{part: {kind: {"path": f"{base}/{file}"}} for part, kind, file in _CARD_FILES},
        "context_length": info.context_length,
        "kv_cache_block_size": info.block_size,
        "model_type": "Chat | Completions",
        "model_input": "Tokens",
        "worker_type": _WORKER_TYPES[mode],
        "runtime_config": {
            "context_length": info.context_length,
            "total_kv_blocks": info.blocks,
            "data_parallel_start_rank": info.ranks.start,
            "data_parallel_size": len(info.ranks),
            "runtime_data": {"grpc_service": "vllm", **direct},
        },
    }
    yield INSTANCES + place.path, {"type": "Endpoint", **common, "transport": {"grpc": plane}}
    yield CARDS + place.path, {"type": "Model", **common, "card_json": card}


def members(cards: Mapping[str, Any], instances: Mapping[str, Any]) -> dict[int, Member]:
    """The workers that have registered completely, by worker id."""
    found = {}
    for key, value in cards.items():
        instance = instances.get(INSTANCES + key.removeprefix(CARDS))
        if instance is None:
            continue
        card = value["card_json"]
        config = card["runtime_config"]
        data, first = config.get("runtime_data") or {}, int(config["data_parallel_start_rank"])
        found[int(value["instance_id"])] = Member(
            worker_id=int(value["instance_id"]),
            model=card["display_name"],
            ranks=range(first, first + int(config["data_parallel_size"])),
            plane=instance["transport"]["grpc"],
            direct=str(data.get(ENDPOINT_KEY) or ""),
            mode=str(data.get(MODE_KEY) or "agg"),
            tokenizer=card["tokenizer"]["hf_tokenizer_json"]["path"],
        )
    return found
