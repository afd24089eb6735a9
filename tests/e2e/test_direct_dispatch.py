"""Direct dispatch on a real Slurm: simulated vLLM engines with the reference sidecar and frontend, which stand in for a
Dynamo that has it; and the real Dynamo 1.6.1, which has not."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Sandbox, wait_until

pytestmark = pytest.mark.e2e

EXAMPLE = "examples/agg/vllm-direct-2n.yaml"
LACKING = (
    "its dynamo.vllm.sidecar has no --advertise-grpc-endpoint, which the sidecar of agg-0.0 uses; direct dispatch is in no "
    "Dynamo release (ai-dynamo 1.6.1 has none): use an image whose Dynamo has it, or set `direct_dispatch: false`"
)
CALLED = re.compile(r"GenerateStream: rid=\S+ peer=ipv4:([\d.]+):\d+")


def reference(sandbox: Sandbox, *settings: str) -> list[str]:
    """Options for the image whose Dynamo has direct dispatch."""
    image = sandbox.directory / "image"
    path = f"environment.PYTHONPATH={image / 'srtctl/sim/direct_modules'}:{image}"
    return [word for text in (path, *settings) for word in ("--set", text)]


def check_of(sandbox: Sandbox, run: str, name: str = "direct_dispatch") -> dict[str, Any]:
    checks = json.loads((sandbox.run_dir(run) / "checks.json").read_text())["checks"]
    return next(check for check in checks if check["name"] == name)


def callers(sandbox: Sandbox, run: str, worker: str) -> Counter[str]:
    """The addresses from which requests came, as the engine noted them."""
    return Counter(CALLED.findall((sandbox.run_dir(run) / f"logs/{worker}.0.engine.log").read_text()))


def addresses(sandbox: Sandbox, run: str) -> list[str]:
    lines = (sandbox.run_dir(run) / "state/nodes.tsv").read_text().splitlines()
    return [line.split("\t")[2] for line in lines]


@pytest.mark.parametrize(("setting", "direct"), [("true", {"agg-0", "agg-1"}), ("[1]", {"agg-1"}), ("[0]", {"agg-0"})])
def test_requests_come_from_the_frontend_or_through_the_sidecar(
    sandbox: Sandbox, setting: str, direct: set[str]
) -> None:
    status = sandbox.apply(EXAMPLE, *reference(sandbox, f"roles.agg.direct_dispatch={setting}"))
    run = status["run"]
    try:
        frontend = addresses(sandbox, run)[0]
        check = check_of(sandbox, run)
        assert check["verdict"] == "pass", check
        for target in check["targets"]:
            said, worker = target["evidence"], target["worker"]
            carrier, other = ("the frontend", "its sidecar") if worker in direct else ("its sidecar", "the frontend")
            assert said["bytes_received_from"][carrier] > said["prompt_tokens"] > 1000
            assert said["bytes_received_from"].get(other, 0) < 100
            assert said["requests_through_sidecar"] == (0 if worker in direct else said["requests"])
            assert said["connected_from"][carrier] == [frontend if worker in direct else "127.0.0.1"]
            assert set(callers(sandbox, run, worker)) == {frontend if worker in direct else "127.0.0.1"}
        again = sandbox.cli.json("check", run, "--only", "direct_dispatch")
        assert again["verdict"] == "pass"
    finally:
        sandbox.cli("cancel", run, "--wait")


def test_a_dynamo_without_it_is_refused_before_anything_is_submitted(sandbox: Sandbox) -> None:
    before = sorted((sandbox.directory / "runs").iterdir())
    done = sandbox.cli("apply", EXAMPLE, code=2)
    assert f"the installed Dynamo 1.6.1 lacks what the plan uses: {LACKING}" in done.stderr
    assert "nothing was submitted" in done.stderr
    assert sorted((sandbox.directory / "runs").iterdir()) == before


def test_where_that_cannot_be_asked_the_job_says_it_before_the_engines_start(sandbox: Sandbox, tmp_path: Path) -> None:
    profile = tmp_path / "srtslurm.yaml"
    text = (sandbox.directory / "srtslurm.yaml").read_text()
    profile.write_text(re.sub(r"^dynamo_python:.*\n", "", text, flags=re.MULTILINE))
    status = sandbox.apply(EXAMPLE, "--cluster", str(profile), code=1)
    assert status["cause"] == f"the installed Dynamo 1.6.1 lacks what the plan uses: {LACKING}"
    assert '"step_started"' not in (sandbox.run_dir(status["run"]) / "events/job.jsonl").read_text()


#: What a launcher or an image may get wrong -> the file that is edited, what is taken out, and what the check says.
WRONG: dict[str, tuple[str, str, str, str]] = {
    "the frontend is not told": (
        "frontends/frontend-0.sh",
        "'DYN_ROUTER_DIRECT_DISPATCH=vllm'",
        "4 of 4 requests still came through its sidecar",
        "ignores `DYN_ROUTER_DIRECT_DISPATCH`",
    ),
    "a sidecar does not advertise": (
        "workers/agg-1.sh",
        '--advertise-grpc-endpoint "${NODE_ADDR[1]}:9100"',
        "agg-1: it advertises no gRPC endpoint, the plan has ",
        "was told to advertise",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_another_way_than_planned_fails_the_check(sandbox: Sandbox, name: str) -> None:
    file, taken_out, words, cause = WRONG[name]
    folder = sandbox.directory / "runs" / name.replace(" ", "-")
    sandbox.cli("render", EXAMPLE, "--to", str(folder), *reference(sandbox, "checks.direct_dispatch.timeout=3"))
    text = (folder / file).read_text()
    assert taken_out in text
    (folder / file).write_text(text.replace(taken_out, ""))
    sandbox.slurm("sbatch", "--parsable", str(folder / "job.sbatch"))
    wait_until("its end", (folder / "state/end.json").exists)
    wait_until("the end of its job", lambda: '"event":"job_ended"' in (folder / "events/job.jsonl").read_text())
    check = check_of(sandbox, folder.name)
    failed = [target for target in check["targets"] if target["verdict"] == "fail"]
    assert words in check["reason"]
    assert [target["worker"] for target in failed] == (["agg-0", "agg-1"] if "frontend" in file else ["agg-1"])
    assert cause in failed[0]["diagnosis"]["cause"]


def test_a_port_that_the_frontend_cannot_reach_fails_the_gate_with_its_owner(sandbox: Sandbox) -> None:
    folder = sandbox.directory / "runs" / "unreachable"
    sandbox.cli("render", EXAMPLE, "--to", str(folder), *reference(sandbox))
    script = folder / "workers/agg-1.sh"
    assert "0.0.0.0" in script.read_text()
    script.write_text(script.read_text().replace("0.0.0.0", "127.0.0.1"))
    sandbox.slurm("sbatch", "--parsable", str(folder / "job.sbatch"))
    end = folder / "state/end.json"
    wait_until("its end", end.exists)
    cause = json.loads(end.read_text())["cause"]
    assert cause.startswith(
        "port 9100 on sandbox-1 (gRPC of agg-1.0) cannot be reached from sandbox-0, where the frontend runs: "
    )
    wait_until("the end of its job", lambda: '"event":"job_ended"' in (folder / "events/job.jsonl").read_text())
