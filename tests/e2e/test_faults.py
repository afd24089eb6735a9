"""Every fault of the diagnosis table, on a real Slurm with the real Dynamo: what fails, what follows, what it says.

A row applies a recipe with a fault of the simulated engine, or runs a bundle by hand whose scripts were changed: a
launcher's mistake. What is not in `failed` must pass, or be skipped because of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Sandbox, wait_until

pytestmark = pytest.mark.e2e

ATTENTION = "examples/agg/sglang-attention-dp-2n.yaml"
ORDINARY = "examples/agg/sglang-ordinary-dp-2n.yaml"
PD_ORDINARY = "examples/disagg/sglang-ordinary-dp-4n.yaml"
PD_ATTENTION = "examples/disagg/sglang-attention-dp-4n.yaml"
COLOCATED = "examples/disagg/sglang-colocated-1n.yaml"

# A fault shows at once; nobody needs to wait for the defaults.
SHORT = (
    "health_check.max_attempts=6",
    "health_check.interval_seconds=1",
    "checks.registration.timeout=6",
    "checks.publishers.timeout=2",
    "checks.kv_events.timeout=3",
)
EDITED = str.maketrans({" ": "-"})


@dataclass(frozen=True)
class Row:
    """`edits`: file of the bundle -> (text, its replacement). `failed`: the one check and its targets; none where the
    job ended before them. `words` stand in the diagnosis; `after` are the checks that cannot run."""

    recipe: str
    code: int
    words: tuple[str, ...]
    check: str = ""
    failed: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    fault: str = ""
    sets: tuple[str, ...] = ()
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    cause: tuple[str, ...] = ()


EVENTS = ("kv_events", "cache_reuse")
ROUTED = ("publishers", *EVENTS, "load")

ROWS: dict[str, Row] = {
    "folded dp_size": Row(
        ATTENTION,
        1,
        ("agg-0.1 sidecar on sandbox-1", "dp_size=1, attn_dp_size=2", "Dynamo 1.6.1", "rank 1 is outside dp_size 1"),
        fault="report_dp_size=1",
        cause=("agg-0.1 sidecar on sandbox-1 exited with 1",),
    ),
    "engine too old": Row(
        ATTENTION,
        1,
        ("agg-0.1 sidecar on sandbox-1", "no kv_event_sources", "Dynamo 1.6.1", "sglang#39659"),
        fault="no_sources@1",
    ),
    "one group for two workers": Row(
        ATTENTION,
        1,
        ("127.0.0.1:5000", "sandbox-", "--dist-init-addr"),
        fault="same_group",
        sets=("roles.agg.nodes=4", "roles.agg.workers=2"),
    ),
    "ordinary-DP prefill": Row(
        PD_ORDINARY,
        3,
        ("prefill-0 rank 1 on sandbox-0 answers HTTP 500", "attention rank 0", "sglang#29725", "data-parallel-size: 1"),
        "rank_routing",
        ("prefill-0 rank 1", "prefill-1 rank 1"),
        ("load",),
        fault="ordinary_dp_bootstrap",
    ),
    "dead engine": Row(
        ORDINARY,
        3,
        ("agg-0 (agg-0.0 on sandbox-0) serves no request", "ready", "logs/agg-0.0.engine.log"),
        "rank_routing",
        ("agg-0 rank 0", "agg-0 rank 1", "agg-1 rank 0", "agg-1 rank 1"),
        ROUTED,
        fault="dead_engine",
    ),
    "zero tokens": Row(
        ORDINARY,
        3,
        ("agg-0", "without one generated token"),
        "rank_routing",
        ("agg-0 rank 0", "agg-0 rank 1", "agg-1 rank 0", "agg-1 rank 1"),
        ROUTED,
        fault="zero_tokens",
    ),
    "zero tokens under load": Row(
        ORDINARY,
        3,
        ("without one generated token",),
        "load",
        ("",),
        fault="zero_tokens",
        sets=tuple(f"checks.{name}=false" for name in ("rank_routing", "publishers", "kv_events", "cache_reuse")),
    ),
    "engine error": Row(
        ATTENTION,
        3,
        ("agg-0 rank 1 (on sandbox-1)", "Internal server error", "logs/agg-0.1.engine.log"),
        "rank_routing",
        ("agg-0 rank 1",),
        ("load",),
        fault="error_500=1",
    ),
    "publisher on a wrong port": Row(
        ATTENTION,
        3,
        ("agg-0.1 on sandbox-1 publishes rank 1 on another port than 5201", "[6201]", "--kv-events-config"),
        "publishers",
        ("agg-0 rank 1",),
        fault="wrong_port@1",
    ),
    "silent publisher": Row(
        ATTENTION,
        3,
        ("no KV event of agg-0 rank 1 (agg-0.1 on sandbox-1) arrives", "--kv-events-config"),
        "kv_events",
        ("agg-0 rank 1",),
        ("publishers", "cache_reuse"),
        fault="silent_kv=1",
    ),
    "wrong rank": Row(
        ATTENTION,
        3,
        ("agg-0 rank 1 (agg-0.1 on sandbox-1) carry DP rank 2", "the router drops them", "global DP rank"),
        "publishers",
        ("agg-0 rank 1",),
        fault="bad_rank@1",
    ),
    "missing rank": Row(
        ATTENTION,
        3,
        ("agg-0 rank 1 (agg-0.1 on sandbox-1) carry no DP rank",),
        "publishers",
        ("agg-0 rank 1",),
        fault="no_rank",
    ),
    "missing rank, seen by the router": Row(
        ATTENTION,
        3,
        ("the router drops the events of agg-0 rank 1 (agg-0.1 on sandbox-1)", "in place of 1", "accepted"),
        "kv_events",
        ("agg-0 rank 1",),
        ("cache_reuse",),
        fault="no_rank",
        sets=("checks.publishers=false",),
    ),
    "wrong topic": Row(
        ATTENTION,
        3,
        ("agg-0.1 on sandbox-1", "'not-kv-events'", "subscribes to 'kv-events'"),
        "publishers",
        ("agg-0 rank 1",),
        fault="wrong_topic@1",
    ),
    "wrong block size": Row(
        ATTENTION,
        3,
        ("agg-0 rank 1 (agg-0.1 on sandbox-1) have blocks of 8 tokens", "blocks of 16", "page-size"),
        "publishers",
        ("agg-0 rank 1",),
        fault="block_size=8@1",
    ),
    "wrong block size, seen by the sidecar": Row(
        ATTENTION,
        3,
        ("agg-0 rank 1 (agg-0.1 on sandbox-1)", "the 16 tokens", "page-size"),
        "kv_events",
        ("agg-0 rank 1",),
        ("cache_reuse",),
        fault="block_size=8@1",
        sets=("checks.publishers=false",),
    ),
    "leader not found": Row(
        ATTENTION,
        1,
        ("the sidecar of agg-0.1 on sandbox-1 finds no leader of its group", "--dist-init-addr"),
        "registration",
        ("agg-0 rank 1",),
        fault="wrong_group",
    ),
    "engine not healthy": Row(
        ATTENTION,
        1,
        ("agg-0.0 on sandbox-0 listens, but says that it is not healthy", "logs/agg-0.0.engine.log"),
        "registration",
        ("agg-0 rank 0", "agg-0 rank 1"),
        fault="never_ready",
    ),
    "fewer ranks": Row(
        ORDINARY,
        1,
        ("agg-0 registered DP ranks [0] of [0, 1]", "sandbox-0", "dp_size=1, attn_dp_size=2"),
        "registration",
        ("agg-0 rank 0", "agg-0 rank 1", "agg-1 rank 0", "agg-1 rank 1"),
        fault="report_dp_size=1",
        sets=("roles.agg.kv_events=false",),
    ),
    "launcher: follower sidecar missing": Row(
        ATTENTION,
        1,
        ("agg-0.1 on sandbox-1", "needs one", "telemetry mode by itself"),
        "placement",
        ("agg-0",),
        edits={"workers/agg-0.sh": ("supervise agg-0.1 127.0.0.1:9100 engine sidecar", "supervise agg-0.1 - engine")},
    ),
    "launcher: bootstrap host on the follower": Row(
        PD_ATTENTION,
        3,
        (
            "prefill-0 announces a bootstrap address",
            "on sandbox-0, the node of its leader",
            "only the prefill leader's sidecar",
        ),
        "registration",
        ("prefill-0 rank 0", "prefill-0 rank 1"),
        ("rank_routing", "publishers", *EVENTS, "transfer", "load"),
        edits={
            "workers/prefill-0.sh": ('--bootstrap-host "${NODE_ADDR[0]}"', '--bootstrap-host "${NODE_ADDR[1]}"'),
        },
    ),
    "launcher: KV claims of local ranks only": Row(
        COLOCATED,
        1,
        ("engine on sandbox-0", "base + global DP rank"),
        sets=("roles.decode.kv_events=true",),
        edits={"workers/decode-0.sh": ("tcp://*:5201", "tcp://*:5200")},
    ),
    "launcher: router without KV mode": Row(
        ATTENTION,
        1,
        ("does not run with `--router-mode kv`", "frontend.args.router-mode"),
        "registration",
        ("agg-0 rank 0", "agg-0 rank 1"),
        edits={"frontends/frontend-0.sh": ("--router-mode kv", "")},
    ),
    "launcher: NATS not started": Row(
        ATTENTION,
        1,
        ("on sandbox-0", "no NATS server answers", "dynamo.event_plane"),
        sets=("dynamo.event_plane=nats",),
        edits={"job.sbatch": ("service nats ", ": service nats ")},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_fault_is_named(sandbox: Sandbox, name: str) -> None:
    row = ROWS[name]
    status = edited(sandbox, row, name.translate(EDITED)) if row.edits else applied(sandbox, row)
    assert status["outcome"] == ("checks_failed" if row.code == 3 else "failed")
    diagnosis = status["diagnosis"]
    for word in row.words:
        assert word in f"{diagnosis['cause']} {diagnosis['remedy']}", diagnosis
    for word in row.cause:
        assert word in status["cause"]
    text = sandbox.cli("status", status["run"]).stdout
    assert diagnosis["cause"] in text
    assert diagnosis["remedy"] in text
    if row.check:
        only_that_failed(row, json.loads((sandbox.run_dir(status["run"]) / "checks.json").read_text()), diagnosis)


def test_a_missing_capability_is_told_before_anything_starts(sandbox: Sandbox) -> None:
    """The installed Dynamo 1.6.1 has no such flag (wire.md, section 8)."""
    flag = "--advertise-grpc-endpoint"
    row = Row(ATTENTION, 1, (), edits={"plan.json": ('"--grpc-endpoint"', f'"{flag}"')})
    status = edited(sandbox, row, "missing-capability")
    assert status["cause"] == (
        f"the installed Dynamo 1.6.1 lacks what the plan uses: its dynamo.sglang.sidecar has no {flag}, which the sidecar of "
        "agg-0.0 uses; direct dispatch is in no Dynamo release (ai-dynamo 1.6.1 has none): use an image whose Dynamo has "
        "it, or set `direct_dispatch: false`"
    )
    assert "step_started" not in text_of(sandbox.run_dir(status["run"]) / "events/job.jsonl")


def applied(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    sets = [word for text in (*settings(row), *row.sets) for word in ("--set", text)]
    return sandbox.apply(row.recipe, *sets, code=row.code, **({"SRTCTL_SIM_FAULT": row.fault} if row.fault else {}))


def edited(sandbox: Sandbox, row: Row, name: str) -> dict[str, Any]:
    """The status of a bundle that was changed and submitted by hand, once it has ended."""
    folder = sandbox.directory / "runs" / name.replace(":", "")
    sets = [word for text in (*settings(row), *row.sets) for word in ("--set", text)]
    sandbox.cli("render", row.recipe, "--to", str(folder), *sets)
    for file, (old, new) in row.edits.items():
        text = (folder / file).read_text()
        assert old in text, f"{file} has no {old!r}"
        (folder / file).write_text(text.replace(old, new))
    sandbox.slurm("sbatch", "--parsable", str(folder / "job.sbatch"))
    end = json.loads(wait_until("its end", lambda: text_of(folder / "state/end.json")))
    assert end["exit_code"] == row.code
    wait_until("the end of its job", lambda: '"event":"job_ended"' in text_of(folder / "events/job.jsonl"))
    status: dict[str, Any] = sandbox.cli.json("status", str(folder))
    return status


def settings(row: Row) -> tuple[str, ...]:
    """SHORT, without the settings of checks that the row turns off."""
    off = tuple(text.removesuffix("=false") + "." for text in row.sets if text.endswith("=false"))
    return tuple(text for text in SHORT if not text.startswith(off))


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def only_that_failed(row: Row, checks: Any, diagnosis: Any) -> None:
    by_name = {check["name"]: check for check in checks["checks"]}
    assert {name for name, check in by_name.items() if check["verdict"] == "fail"} == {row.check}
    targets = by_name[row.check]["targets"]
    failed = [target for target in targets if target["verdict"] == "fail"]
    assert tuple(label(target) for target in failed) == row.failed
    assert diagnosis in [target.get("diagnosis") for target in failed]
    for name, check in by_name.items():
        assert check["verdict"] == "skip" or name not in row.after, name
        skipped = [target for target in check["targets"] if target["verdict"] == "skip"]
        blamed = (f"because {row.check} failed: ", "its KV publisher on ")  # the second: nothing came to look at
        assert all(target["message"].startswith(blamed) for target in skipped), name


def label(target: Any) -> str:
    return target["worker"] + (f" rank {target['dp_rank']}" if target["dp_rank"] is not None else "")
