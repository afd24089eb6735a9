"""Every example serves on the sandbox with the real Dynamo, and every check that applies passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Sandbox
from tests.support import EXAMPLES, REPOSITORY, example_id

pytestmark = pytest.mark.e2e

#: Rank targets of `kv_events`: prefill ranks where prefill and decode are apart; none where the engine has no events.
KV_TARGETS = {
    "sglang-ordinary-dp-2n": 4,
    "sglang-attention-dp-2n": 2,
    "sglang-ordinary-dp-4n": 4,
    "sglang-attention-dp-4n": 2,
    "sglang-tp8-dp2-4n": 2,
    "sglang-colocated-1n": 1,
    "sglang-benchmark-1n": 1,
    "mocker-1n": 4,
    "sglang-frontends-2n": 4,
    "vllm-hybrid-dp-2n": 4,
    "vllm-tp-2n": 1,
    "vllm-2n": 2,
    "trtllm-tp-2n": 0,
    "trtllm-2n": 0,
}


#: What the sandbox's Dynamo cannot: tests/e2e/test_direct_dispatch.py.
ELSEWHERE = {"vllm-direct-2n"}
HERE = [example for example in EXAMPLES if example_id(example) not in ELSEWHERE]


def test_every_example_is_tried() -> None:
    assert sorted(KV_TARGETS) == sorted(map(example_id, HERE))


@pytest.mark.parametrize("example", HERE, ids=example_id)
def test_it_serves_and_proves_it(sandbox: Sandbox, example: Path) -> None:
    status = sandbox.apply(example.relative_to(REPOSITORY))
    run = status["run"]
    try:
        checks = json.loads((sandbox.run_dir(run) / "checks.json").read_text())
        assert {c["verdict"] for c in checks["checks"]} == {"pass"}
        targets = {c["name"]: len(c["targets"]) for c in checks["checks"]}
        assert targets.get("kv_events", 0) == KV_TARGETS[example_id(example)]
    finally:
        sandbox.cli("cancel", run, "--wait")
