"""Rows of the diagnosis table: what goes wrong once every rank is registered: routing, events, transfer, load."""

from __future__ import annotations

from srtctl.checks.symptom import Row, Symptom

_SILENT = "no Stored event reached the router"
_PREFILL_REMEDY = "use an SGLang with the fix (sgl-project/sglang#29733), or one worker a rank (`data-parallel-size: 1`), or attention DP"


def _is_later_ordinary_prefill(symptom: Symptom) -> bool:
    return symptom.role == "prefill" and symptom.ordinary_dp and bool(symptom.dp_rank)


def _sidecar_ready(symptom: Symptom) -> bool:
    health = symptom.evidence.get("sidecar_health")
    return isinstance(health, list) and "ready" in health


def _listens_elsewhere(symptom: Symptom) -> bool:
    return bool(symptom.evidence.get("listening_unclaimed"))


ROWS: tuple[Row, ...] = (
    Row(
        "ordinary-DP prefill bootstrap",
        ("rank_routing", "transfer"),
        r"follow_bootstrap_room conflict.*dp_rank (?P<seen>\d+) but bootstrap_room \d+ implies dp_rank (?P<implied>\d+)",
        "{worker} rank {dp_rank} on {node} answers HTTP 500: with ordinary DP, SGLang's prefill checks attention rank {seen} "
        "against the bootstrap room of rank {implied} (sgl-project/sglang#29725); the engine reports [{engine}]",
        _PREFILL_REMEDY,
        ("engine_log",),
        _is_later_ordinary_prefill,
    ),
    Row(
        "likely ordinary-DP prefill bootstrap",
        ("rank_routing", "transfer"),
        r"HTTP 500",
        "{worker} rank {dp_rank} on {node} answers HTTP 500: most likely SGLang's prefill with ordinary DP, which checks "
        "attention rank 0 against the bootstrap room of rank {dp_rank} (sgl-project/sglang#29725); the engine reports "
        "[{engine}]",
        _PREFILL_REMEDY,
        when=_is_later_ordinary_prefill,
    ),
    Row(
        "NIXL handshake",
        ("rank_routing", "transfer"),
        r"NIXL (?P<what>handshake with|transfer from) (?P<address>\S+) failed: (?P<why>.*)",
        "the KV cache of a request does not reach its decode engine: NIXL {what} {address} failed: {why}",
        "is `VLLM_NIXL_SIDE_CHANNEL_HOST` the prefill node's own address (vLLM's default is localhost), and is its side channel "
        "(base port + what the rank adds) reachable from the decode nodes?",
        ("engine_log",),
    ),
    Row(
        "dead engine",
        ("rank_routing", "transfer"),
        r"HTTP 503|HTTP 500.*(?i:unavailable|connection refused)",
        "the engine of {worker} ({process} on {node}) serves no request, while its sidecar still says `ready`: a "
        "sidecar's health says nothing about its engine",
        "look at logs/{process}.engine.log, and restart the run: engine and sidecar end together only when a process ends",
        when=_sidecar_ready,
    ),
    Row(
        "engine error",
        ("rank_routing", "transfer"),
        r"HTTP 500 from the frontend: (?P<said>.*?)(; see logs|$)",
        "the engine behind {worker} rank {dp_rank} (on {node}) failed the request: {said}",
        "look at logs/{process}.engine.log for the request's error",
    ),
    Row(
        "zero tokens",
        ("rank_routing", "load"),
        r"without generating a token",
        "the engine {worker} ends requests as successful without one generated token",
        "look at the engine's log for aborted requests; check `context-length`, the tokenizer's stop tokens and the "
        "model's weights",
    ),
    # ---- events, from the engine's socket to the router's index
    Row(
        "address not published",
        ("publishers",),
        r"names (no address|\d+ addresses) for rank",
        "the plan leaves the port of the KV publisher of {worker} rank {dp_rank} to {process} on {node}, and that engine does "
        "not tell it; it reports [{engine}]",
        "use a vLLM whose native server answers GetKvEventSources for every rank of its node, or take the endpoint with port 0 "
        "out of `kv-events-config`, so that srtctl chooses",
    ),
    Row(
        "publisher of another process",
        ("publishers",),
        r"publishes on port (?P<port>\d+) on .*, but that is the socket of (?P<owner>.*)",
        "{process} on {node} should publish rank {dp_rank} on port {port}, which {owner} has: its events would be taken for "
        "those of another rank",
        "let each engine bind its own ports: no `kv-events-config` endpoint by hand on workers that share a node",
    ),
    Row(
        "publisher on a wrong port",
        ("publishers",),
        r"does not listen on port (?P<port>\d+)",
        "{process} on {node} publishes rank {dp_rank} on another port than {port}: it listens on "
        "{evidence[listening_unclaimed]}, which nothing claims",
        "the engine binds base + global DP rank: start it with the planned `--kv-events-config` endpoint",
        when=_listens_elsewhere,
    ),
    Row(
        "no publisher",
        ("publishers",),
        r"does not listen on port (?P<port>\d+)",
        "{process} on {node} has no KV publisher for rank {dp_rank} on port {port}; the engine reports [{engine}]",
        "is `--kv-events-config` among the engine's flags, and does that rank live on that node?",
    ),
    Row(
        "wrong topic",
        ("publishers",),
        r"publishes under topic (?P<found>.*?), the plan has (?P<planned>.*)",
        "{process} on {node} publishes the events of rank {dp_rank} under topic {found}; its sidecar subscribes to "
        "{planned} and hears nothing, silently",
        "use one topic for the engine's `--kv-events-config` and its server info",
    ),
    Row(
        "wrong rank in events",
        ("publishers",),
        r"its batches carry (?P<found>no DP rank|DP rank \d+)",
        "the events of {worker} rank {dp_rank} ({process} on {node}) carry {found}: the sidecar accepts and counts them, "
        "the router drops them (`Dropping KV event batch whose payload disagrees with its source advertisement`)",
        "use an engine that puts the global DP rank into each batch (SGLang's `[timestamp, events, DP rank]`)",
    ),
    Row(
        "wrong rank in dropped events",
        ("kv_events",),
        r"Dropping KV event batch.*expected_dp_rank=(?P<expected>\d+).*event_dp_rank=(?P<found>\d+)",
        "the router drops the events of {worker} rank {dp_rank} ({process} on {node}): they carry DP rank {found}, or none, "
        "which counts as 0, in place of {expected}; the sidecar counts them as accepted",
        "use an engine that puts the global DP rank into each batch (SGLang's `[timestamp, events, DP rank]`)",
        ("frontend",),
    ),
    Row(
        "wrong block size",
        ("publishers",),
        r"blocks of (?P<found>[\d, ]+) tokens, the worker registered blocks of (?P<planned>\d+)",
        "the events of {worker} rank {dp_rank} ({process} on {node}) have blocks of {found} tokens, the router's index has "
        "blocks of {planned}, so the sidecar publishes none of them",
        "use one `page-size` on all processes of the worker, and an engine whose events follow it",
    ),
    Row(
        "block size that the sidecar refuses",
        ("kv_events",),
        r"Block size must be (?P<planned>\d+) tokens",
        "the events of {worker} rank {dp_rank} ({process} on {node}) have another block size than the {planned} tokens that "
        "the worker registered, so the sidecar publishes none of them",
        "use one `page-size` on all processes of the worker, and an engine whose events follow it",
        ("sidecar",),
    ),
    Row(
        "undecodable events",
        ("publishers",),
        r"cannot be used: (?P<why>.*)",
        "{process} on {node} publishes what Dynamo cannot decode: {why}",
        "use an engine whose KV events are msgpack arrays `[timestamp, events, DP rank]` in three frames",
    ),
    Row(
        "silent publisher",
        ("kv_events",),
        _SILENT,
        "no KV event of {worker} rank {dp_rank} ({process} on {node}) arrives, though the engine answers; it reports "
        "[{engine}]",
        "is the prefix cache on, and `--kv-events-config` among its flags? Look at logs/{process}.engine.log",
    ),
    # ---- transfer and load
    Row(
        "failed transfer",
        ("rank_routing", "transfer"),
        r"KVTransferError: (?P<why>.*)",
        "the KV cache does not cross from prefill to decode: {why}",
        "can the decode nodes reach the prefill leader's bootstrap port, and the engines each other?",
        ("message", "engine_log"),
    ),
)
