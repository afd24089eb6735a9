"""Every example serves on the sandbox with the real Dynamo, and every check that applies passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Sandbox
from tests.support import EXAMPLES, REPOSITORY, example_id

pytestmark = pytest.mark.e2e

#: Rank targets of `kv_events`: prefill ranks where prefill and decode are apart.
KV_TARGETS = {
    "sglang-ordinary-dp-2n": 4,
    "sglang-attention-dp-2n": 2,
    "sglang-ordinary-dp-4n": 4,
    "sglang-attention-dp-4n": 2,
    "sglang-tp8-dp2-4n": 2,
    "sglang-colocated-1n": 1,
}


def test_every_example_is_tried() -> None:
    assert sorted(KV_TARGETS) == sorted(map(example_id, EXAMPLES))


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_it_serves_and_proves_it(sandbox: Sandbox, example: Path) -> None:
    status = sandbox.apply(example.relative_to(REPOSITORY))
    run = status["run"]
    try:
        checks = json.loads((sandbox.run_dir(run) / "checks.json").read_text())
        assert {c["verdict"] for c in checks["checks"]} == {"pass"}
        targets = {c["name"]: len(c["targets"]) for c in checks["checks"]}
        assert targets["kv_events"] == KV_TARGETS[example_id(example)]
    finally:
        sandbox.cli("cancel", run, "--wait")
