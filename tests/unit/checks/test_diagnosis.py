"""Every row of the diagnosis table: a symptom that it recognises, by name, with all its words filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from srtctl.checks.diagnosis import ROWS, diagnose
from srtctl.checks.symptom import BEFORE, Symptom

ENGINE = "SGLang 0.5.21: dp_size=1, attn_dp_size=2, nnodes=2, node_rank=1, kv_event_sources of ranks [1]"
RANK = Symptom(
    "",
    "",
    worker="agg-0",
    dp_rank=1,
    role="agg",
    process="agg-0.1",
    node="node-b",
    engine=ENGINE,
    dynamo="Dynamo 1.6.1",
)
PREFILL = replace(RANK, worker="prefill-0", role="prefill", ordinary_dp=True, process="prefill-0.0")
DROPPED = (
    "ERROR worker_query: Dropping KV event batch whose payload disagrees with its source advertisement publisher_id=1 "
    "expected_dp_rank=1 event_dp_rank=0"
)
WAITING = 'INFO Waiting for SGLang leader for local KV publishing node_rank=1 group="dist_init:tcp://10.0.0.1:8301"'


def ended(words: str) -> Symptom:
    return replace(RANK, check=BEFORE, message=f"agg-0.1 sidecar on node-b exited with 1: {words}")


def failed(check: str, message: str, of: Symptom = RANK, **more: object) -> Symptom:
    return replace(of, check=check, message=message, **more)  # type: ignore[arg-type]


CASES: list[tuple[str, Symptom, list[str]]] = [
    (
        "schema revisions apart",
        failed(
            "capabilities",
            "agg-0: speaks schema revision 3, for clients from revision 2; the sidecar has revision 1 and takes servers "
            "from revision 1",
        ),
        ["agg-0 (agg-0.1 on node-b)", "revision 3", "clients from revision 2", "Dynamo 1.6.1", "sidecar.kind: native"],
    ),
    (
        "another role",
        failed("capabilities", "agg-0: reports role prefill, the plan has it as agg"),
        ["its role is prefill, it was planned as agg", "--server_role"],
    ),
    (
        "another model",
        failed("capabilities", "agg-0: serves model a, /models/a, the plan serves b"),
        ["answers to a, /models/a and not to b", "served-model-name"],
    ),
    (
        "KV events by other means",
        failed("capabilities", "agg-0: publishes the KV events of rank 1 on port 6201, the plan on port 5201"),
        ["publishes the KV events of rank 1 on port 6201, the plan on port 5201", "kv_events: false"],
    ),
    (
        "handoffs apart",
        failed("capabilities", "decode-0: hands KV caches over as a.v1 by nixl, prefill-0 as b.v1 by ucx"),
        ["as a.v1 by nixl, that of prefill-0 as b.v1 by ucx", "transfer backend"],
    ),
    (
        "feature missing",
        failed("capabilities", "agg-0: reports no lora support, which its flags in the plan ask for"),
        ["was started for lora", "logs/agg-0.1.engine.log"],
    ),
    (
        "not advertised",
        failed("direct_dispatch", "agg-0: it advertises no gRPC endpoint, the plan has 10.0.0.1:9100; see logs/x"),
        ["told to advertise 10.0.0.1:9100", "Dynamo 1.6.1", "direct_dispatch: false"],
    ),
    (
        "another endpoint advertised",
        failed("direct_dispatch", "agg-0: it advertises http://h:1, the plan has 10.0.0.1:9100; see logs/x"),
        ["advertises http://h:1", "DYN_ADVERTISE_GRPC_ENDPOINT"],
    ),
    (
        "another endpoint advertised",
        failed("direct_dispatch", "agg-0: it advertises http://h:1, but the plan keeps it on the request plane; see x"),
        ["advertises http://h:1"],
    ),
    (
        "engine not connected",
        failed(
            "direct_dispatch",
            "agg-0: the frontend has no connection to its gRPC port 9100",
            frontend=[
                "WARN direct dispatch: connect failed; requests use the request plane until the next membership change "
                'worker_id=1 endpoint="http://10.0.0.1:9100" error="UNAVAILABLE"'
            ],
        ),
        ["could not connect to the engine of agg-0", "UNAVAILABLE", "node-b"],
    ),
    (
        "frontend without direct dispatch",
        failed("direct_dispatch", "agg-0: 4 of 4 requests still came through its sidecar"),
        ["ignores `DYN_ROUTER_DIRECT_DISPATCH`", "router-mode: kv"],
    ),
    (
        "folded dp_size",
        ended("RuntimeError: KV source rank 1 is outside dp_size 1"),
        ["dp_size=1, attn_dp_size=2", "Dynamo 1.6.1", "`KV source rank 1 is outside dp_size 1`", "SGLang 0.5.21"],
    ),
    (
        "engine too old",
        ended("RuntimeError: telemetry-only mode requires GetServerInfo.kv_event_sources; upgrade SGLang"),
        ["too old", "SGLang 0.5.21", "sglang#39659"],
    ),
    (
        "engine too old",
        ended("GetServerInfo does not map DP ranks to publisher hosts (nnodes=2, dp_size=2)"),
        ["kv_event_sources"],
    ),
    ("follower without publisher", ended("telemetry-only node has no local KV sources; do not launch"), ["node-b"]),
    ("group already published", ended("local KV rank 1 is already published by the leader"), ["rank 1 itself"]),
    (
        "one group for two workers",
        ended("multiple SGLang leaders registered for group dist_init:tcp://127.0.0.1:5000"),
        ["dist_init:tcp://127.0.0.1:5000", "its own `--dist-init-addr`"],
    ),
    ("no incremental output", ended("SGLang sidecar requires incremental streaming output; restart"), ["increments"]),
    (
        "no bootstrap host",
        ended("could not derive a routable prefill bootstrap host; set --bootstrap-host"),
        ["leader"],
    ),
    ("port taken", ended("OSError: [Errno 98] Address already in use"), ["base + global DP rank", "port_offset"]),
    ("NATS not there", ended("WARN NATS not reachable yet; retrying startup connection"), ["dynamo.event_plane"]),
    ("module missing", ended("/usr/bin/python3: No module named dynamo.sglang.sidecar"), ["dynamo.sglang.sidecar"]),
    ("flag unknown", ended("error: unexpected argument '--bootstrap-host' found"), ["--bootstrap-host"]),
    (
        "sidecar not started",
        failed("placement", "agg-0: agg-0.1 sidecar does not run on node-b; nothing listens on port 7500"),
        ["the sidecar of agg-0.1 on node-b", "telemetry mode by itself"],
    ),
    (
        "wrong GPUs",
        failed("placement", "agg-0: agg-0.1 engine on node-b has GPUs 0,1, the plan gives it 1"),
        ["agg-0.1 engine runs on GPUs 0,1 of node-b, its own are 1", "CUDA_VISIBLE_DEVICES"],
    ),
    (
        "one group for two workers",
        failed("registration", "agg-0 rank 1: agg-0 and agg-1 registered as one distributed group, tcp://h:5"),
        ["agg-0 and agg-1", "tcp://h:5"],
    ),
    (
        "leader not found",
        failed("registration", "agg-0 rank 1: no KV event source registered, the plan has one", sidecar=[WAITING]),
        ["group dist_init:tcp://10.0.0.1:8301", "agg-0.1 on node-b"],
    ),
    (
        "wrong bootstrap address",
        failed(
            "registration",
            "prefill-0 rank 1: announces its bootstrap server at 10.0.0.2:8998, the plan has it at 10.0.0.1:8998 (node-a); see l",
            PREFILL,
        ),
        ["at 10.0.0.1:8998, on node-a", "only the prefill leader's sidecar"],
    ),
    (
        "router mode",
        failed(
            "registration", "agg-0 rank 1: registered in discovery, but not ...; the router has nobody, is its mode"
        ),
        ["--router-mode kv"],
    ),
    (
        "fewer ranks",
        failed("registration", "agg-0 rank 1: agg-0 registered DP ranks [0], the plan has [0, 1]; which dp_size"),
        ["[0] of [0, 1]", "dp_size=1, attn_dp_size=2"],
    ),
    (
        "engine not healthy",
        failed(
            "registration",
            "agg-0 rank 1: no registration of its sidecar at 10.0.0.1:7500",
            sidecar=["WARN SGLang not healthy yet; retrying attempt=1"],
        ),
        ["not healthy", "logs/agg-0.1.engine.log"],
    ),
    (
        "no event source",
        failed(
            "registration",
            "agg-0 rank 1: no KV event source registered, the plan has one, published on node 1 port 5201",
        ),
        ["agg-0 rank 1", "node-b port 5201"],
    ),
    (
        "ordinary-DP prefill bootstrap",
        failed(
            "rank_routing",
            "prefill-0 rank 1: HTTP 500 from the frontend: Internal server error; see logs/prefill-0.0.engine.log",
            PREFILL,
            engine_log=[
                "follow_bootstrap_room conflict: dispatched to dp_rank 0 but bootstrap_room 7 implies dp_rank 1"
            ],
        ),
        ["prefill-0 rank 1", "HTTP 500", "attention rank 0", "sglang#29725"],
    ),
    (
        "likely ordinary-DP prefill bootstrap",
        failed("rank_routing", "prefill-0 rank 1: HTTP 500 from the frontend: Internal server error", PREFILL),
        ["most likely", "attention rank 0", "rank 1"],
    ),
    (
        "NIXL handshake",
        failed(
            "rank_routing",
            "prefill-0 rank 1: HTTP 500 from the frontend: Internal server error",
            PREFILL,
            ordinary_dp=False,
            engine_log=[
                "ERROR Failed: rid=1 NIXL handshake with localhost:5600 failed: [Errno 111] Connection refused"
            ],
        ),
        ["NIXL handshake with localhost:5600 failed: [Errno 111]", "VLLM_NIXL_SIDE_CHANNEL_HOST"],
    ),
    (
        "dead engine",
        failed("rank_routing", "agg-0 rank 1: HTTP 503 from the frontend", evidence={"sidecar_health": ["ready"]}),
        ["still says `ready`"],
    ),
    (
        "engine error",
        failed("rank_routing", "agg-0 rank 1: HTTP 500 from the frontend: boom; see logs/agg-0.0.engine.log"),
        ["agg-0 rank 1", "boom"],
    ),
    ("zero tokens", failed("rank_routing", "agg-0 rank 1: answered without generating a token"), ["agg-0"]),
    (
        "engine not healthy",
        failed(
            "registration",
            "agg-0 rank 1: no registration of its sidecar at 10.0.0.1:7500",
            engine="vLLM 0.21.0: data_parallel_size=2, KV event sources of ranks [1], not SERVING",
        ),
        ["agg-0.1 on node-b listens, but says that it is not healthy"],
    ),
    (
        "address not published",
        failed("publishers", "agg-0 rank 1: agg-0.1 names no address for rank 1; it names ranks []"),
        ["agg-0 rank 1", "agg-0.1 on node-b", "GetKvEventSources"],
    ),
    (
        "publisher of another process",
        failed(
            "publishers",
            "agg-0 rank 1: agg-0.1 publishes on port 5201 on node-b, but that is the socket of agg-1.0",
        ),
        ["rank 1 on port 5201, which agg-1.0 has"],
    ),
    (
        "publisher on a wrong port",
        failed(
            "publishers",
            "agg-0 rank 1: its KV publisher does not listen on port 5201 on node-b",
            evidence={"listening_unclaimed": [6201]},
        ),
        ["[6201]", "5201", "rank 1"],
    ),
    (
        "no publisher",
        failed("publishers", "agg-0 rank 1: its KV publisher does not listen on port 5201 on node-b"),
        ["agg-0.1 on node-b", "5201"],
    ),
    (
        "wrong topic",
        failed("publishers", "agg-0 rank 1: ... but it publishes under topic 'a', the plan has 'kv-events'"),
        ["topic 'a'", "'kv-events'"],
    ),
    (
        "wrong rank in events",
        failed("publishers", "agg-0 rank 1: ... but its batches carry no DP rank, which counts as rank 0, not 1"),
        ["no DP rank", "the router drops them"],
    ),
    (
        "wrong rank in dropped events",
        failed("kv_events", "agg-0 rank 1: no Stored event reached the router in 3 s", frontend=[DROPPED]),
        ["DP rank 0", "in place of 1", "accepted"],
    ),
    (
        "wrong block size",
        failed(
            "publishers", "agg-0 rank 1: ... its events have blocks of 8 tokens, the worker registered blocks of 16"
        ),
        ["blocks of 8 tokens", "blocks of 16"],
    ),
    (
        "block size that the sidecar refuses",
        failed(
            "kv_events",
            "agg-0 rank 1: no Stored event reached the router in 3 s",
            sidecar=["WARN Block not published. Block size must be 16 tokens to be published. Block size is: 8"],
        ),
        ["the 16 tokens"],
    ),
    (
        "undecodable events",
        failed("publishers", "agg-0 rank 1: what port 5201 on node-b sends cannot be used: a batch is not an array"),
        ["a batch is not an array"],
    ),
    (
        "silent publisher",
        failed("kv_events", "agg-0 rank 1: no Stored event reached the router in 3 s (2 tries, ...)"),
        ["no KV event of agg-0 rank 1"],
    ),
    (
        "failed transfer",
        failed(
            "transfer",
            "prefill-0 rank 0: HTTP 502",
            PREFILL,
            engine_log=["with exception KVTransferError: timed out after 5s"],
        ),
        ["timed out after 5s"],
    ),
]


@pytest.mark.parametrize(
    ("name", "symptom", "words"), CASES, ids=[f"{n}: {name}" for n, (name, _, _) in enumerate(CASES)]
)
def test_a_symptom_is_recognised(name: str, symptom: Symptom, words: list[str]) -> None:
    found = diagnose(symptom)
    assert found is not None
    text = f"{found.cause} {found.remedy}"
    for word in words:
        assert word in text
    assert "{" not in text
    row = next(row for row in ROWS if row.name == name)
    assert found.remedy.startswith(row.remedy.partition("{")[0])


def test_every_row_has_a_case() -> None:
    assert {row.name for row in ROWS} == {name for name, _, _ in CASES}


@pytest.mark.parametrize(
    "symptom",
    [
        ended("segmentation fault"),
        failed("load", "3 of 40 requests failed"),
        failed("rank_routing", "agg-0 rank 1: HTTP 503 from the frontend", evidence={"sidecar_health": ["refused"]}),
        failed("registration", "KV event sources are fine", frontend=[DROPPED]),
    ],
)
def test_what_is_not_understood_gets_no_diagnosis(symptom: Symptom) -> None:
    assert diagnose(symptom) is None


def test_the_engine_that_nobody_could_ask_is_said_so() -> None:
    found = diagnose(replace(ended("KV source rank 1 is outside dp_size 1"), engine="", dynamo=""))
    assert found is not None
    assert "could not be asked" in found.cause


def test_the_documentation_has_every_row() -> None:
    text = (Path(__file__).parents[3] / "docs" / "checks.md").read_text()
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")][
        -len(ROWS) :
    ] == [row.name for row in ROWS]
