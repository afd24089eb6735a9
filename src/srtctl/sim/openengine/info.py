"""Discovery: what GetServerInfo, GetModelInfo and GetKvEventSources answer about an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from srtctl.sim.faults import Faults
from srtctl.sim.openengine.engine import Facts
from srtctl.sim.openengine.schema import MESSAGES, MINIMUM_CLIENT_REVISION, RELEASE, REVISION, ROLES


def _flag(text: str) -> bool:
    return text == "true"


#: Facts that the fault `openengine` can falsify, and how its text is read.
FALSIFIABLE: Mapping[str, Callable[[str], Any]] = {
    "revision": int,
    "minimum_client": int,
    "role": str,
    "served_name": str,
    "transport": str,
    "profile": str,
    "lora": _flag,
    "multimodal": _flag,
}


class Discovery:
    """The three answers. A fault `openengine=FACT:VALUE` replaces one fact in them, nowhere else."""

    def __init__(self, facts: Facts, instance_id: str, faults: Faults) -> None:
        """Raises ValueError for a fault that names no fact."""
        self._facts = facts
        self._instance_id = instance_id
        self._told: dict[str, Any] = {}
        if faults.openengine:
            name, _, value = faults.openengine.partition(":")
            if name not in FALSIFIABLE:
                raise ValueError(f"openengine={faults.openengine}: no such fact; known: {', '.join(FALSIFIABLE)}")
            self._told[name] = FALSIFIABLE[name](value)

    def server_info(self) -> Any:
        """A ServerInfo."""
        facts = self._facts
        ranks = {"data_parallel_size": facts.dp, "data_parallel_start_rank": facts.start_rank}
        info = MESSAGES["ServerInfo"](
            engine_name=facts.engine,
            engine_version=facts.version,
            engine_role=ROLES[self._told.get("role", facts.role)],
            instance_id=self._instance_id,
            supported_models=[self._name],
            parallelism=MESSAGES["ParallelismInfo"](
                tensor_parallel_size=facts.tp, pipeline_parallel_size=facts.pp, **ranks
            ),
            kv_connector=self._connector(),
            schema_revision=self._told.get("revision", REVISION),
            minimum_client_revision=self._told.get("minimum_client", MINIMUM_CLIENT_REVISION),
            schema_release=RELEASE,
        )
        if facts.block_size:
            info.capacity.kv_block_size = facts.block_size
        return info

    def model_info(self) -> Any:
        """A ModelInfo."""
        facts = self._facts
        others = dict.fromkeys((*facts.aliases, facts.model_path))
        return MESSAGES["ModelInfo"](
            model_id=facts.model_path,
            served_model_name=self._name,
            served_model_aliases=[other for other in others if other != facts.served_name],
            max_context_length=facts.context_length,
            supports_text_input=False,
            supports_token_ids_input=True,
            supports_lora=self._told.get("lora", facts.lora),
            supports_multimodal=self._told.get("multimodal", facts.multimodal),
        )

    def event_sources(self, ranks: list[int]) -> Any:
        """A GetKvEventSourcesResponse, of those DP ranks (none: of all)."""
        source = MESSAGES["KvEventSource"]
        return MESSAGES["GetKvEventSourcesResponse"](
            sources=[
                source(
                    transport=self._told.get("transport", found.transport),
                    endpoint_addr=MESSAGES["KvEndpoint"](host=found.host, port=found.port, protocol="tcp"),
                    topic=found.topic,
                    data_parallel_rank=found.dp_rank,
                    encoding="msgpack",
                )
                for found in self._facts.sources
                if not ranks or found.dp_rank in ranks
            ]
        )

    @property
    def _name(self) -> str:
        return str(self._told.get("served_name", self._facts.served_name))

    def _connector(self) -> Any:
        handoff = self._facts.handoff
        if handoff is None:
            return MESSAGES["KvConnectorInfo"](enabled=False)
        endpoint = MESSAGES["KvEndpoint"](host=handoff.host, port=handoff.port, protocol=handoff.protocol)
        return MESSAGES["KvConnectorInfo"](
            enabled=True,
            transfer_backend=handoff.backend,
            local_endpoints=[endpoint] if handoff.port else [],
            supported_protocols=[handoff.protocol],
            supports_drain=True,
            handoff_profile=self._told.get("profile", handoff.profile),
            supports_client_bootstrap=False,
        )
