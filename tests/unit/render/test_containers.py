"""One recipe for each container runtime: the lines of job.sbatch and of a worker's script, and what srun is then told."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_runtime import DEADLINE, Node

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.model import ClusterProfile
from srtctl.diagnostics import DiagnosticError
from srtctl.plan.build import build_plan
from srtctl.plan.model import Plan
from srtctl.recipe.load import load_recipe
from srtctl.render.bundle import bundle_files

RECIPE = """\
schema: 2
name: c
model: {path: /models/q, container: images.example/x/sglang:1}
resources: {gpus_per_node: 1}
engine: sglang
environment: {HF_HOME: /shared/hf}
setup_script: deps.sh
dynamo: {source: {pypi: 1.6.1}}
container_mounts: ['traces:/traces:ro', 'tmpfs:/dev/shm:size=100%']
srun_options: {mem: 0}
roles:
  prefill: {nodes: 1, sidecar: true}
  decode: {nodes: 1, sidecar: true, srun_options: {cpu-bind: none, exact-ly: }}
"""

STEPS = {
    "none": """\
service etcd 0 services/etcd.sh
frontend frontend-0 0 frontends/frontend-0.sh
with_options --mem=0
worker prefill-0 0 workers/prefill-0.sh
with_options --mem=0 --cpu-bind=none --exact-ly
worker decode-0 1 workers/decode-0.sh
""",
    "pyxis": """\
containers pyxis HF_HOME
mounts \\
  "${RUN_DIR}:${RUN_DIR}" \\
  /models/q:/models/q \\
  /site/configs:/configs \\
  /site/traces:/traces:ro \\
  tmpfs:/dev/shm:size=100%
in_image 'images.example#x/infra:1'
service etcd 0 services/etcd.sh
in_writable_image 'images.example#x/sglang:1'
frontend frontend-0 0 frontends/frontend-0.sh
with_options --mem=0
worker prefill-0 0 workers/prefill-0.sh
with_options --mem=0 --cpu-bind=none --exact-ly
worker decode-0 1 workers/decode-0.sh
""",
    "apptainer": """\
containers apptainer HF_HOME
mounts \\
  "${RUN_DIR}:${RUN_DIR}" \\
  /models/q:/models/q \\
  /site/configs:/configs \\
  /site/traces:/traces:ro
in_image docker://images.example/x/infra:1
service etcd 0 services/etcd.sh
in_writable_image docker://images.example/x/sglang:1
frontend frontend-0 0 frontends/frontend-0.sh
with_options --mem=0
worker prefill-0 0 workers/prefill-0.sh
with_options --mem=0 --cpu-bind=none --exact-ly
worker decode-0 1 workers/decode-0.sh
""",
}

SETUP = """\
setup_1=(
  bash /configs/deps.sh
)

setup_2=(
  env PIP_BREAK_SYSTEM_PACKAGES=1 PIP_USER=0 python3 -m pip install
  --no-input ai-dynamo-runtime==1.6.1 ai-dynamo==1.6.1
)

setup=(
  setup_1 setup_2
)

engine=(
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def plan_for(tmp_path: Path, runtime: str, text: str = RECIPE) -> Plan:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    profile = ClusterProfile(container_runtime=runtime, service_container="images.example/x/infra:1")  # type: ignore[arg-type]
    result = build_plan(load_recipe(path), LoadedCluster(profile, Path("/site/srtslurm.yaml"), []))
    assert result.plan is not None, [d.message for d in result.diagnostics]
    return result.plan


def steps_of(job: str) -> str:
    """The lines about containers and steps, without their comments."""
    kept = ("containers", "mounts", "  ", "in_", "on_", "with_", "service ", "frontend ", "worker ", "probe_stack")
    return "".join(line.split("  # ")[0].rstrip() + "\n" for line in job.splitlines() if line.startswith(kept))


@pytest.mark.parametrize("runtime", STEPS)
def test_the_lines_of_the_job(tmp_path: Path, runtime: str) -> None:
    files = bundle_files(plan_for(tmp_path, runtime), "/runs/c", "")
    assert steps_of(files["job.sbatch"]) == STEPS[runtime]
    if runtime != "none":
        assert SETUP in files["workers/decode-0.sh"]
    for name, content in files.items():
        if name.endswith((".sh", ".sbatch")):
            (tmp_path / name.replace("/", "-")).write_text(content)
    scripts = sorted(str(p) for p in tmp_path.glob("*.s*"))
    found = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_probe_of_dynamo_runs_in_the_image_that_holds_it(tmp_path: Path) -> None:
    text = RECIPE.replace("setup_script: deps.sh\ndynamo: {source: {pypi: 1.6.1}}\n", "")
    lines = steps_of(bundle_files(plan_for(tmp_path, "pyxis", text), "/runs/c", "")["job.sbatch"]).splitlines()
    at = lines.index("probe_stack 0 python3")
    assert lines[at - 2 : at + 6] == [
        "in_image 'images.example#x/sglang:1'",
        "with_options --mem=0",
        "probe_stack 0 python3",
        "in_image 'images.example#x/infra:1'",
        "with_options",
        "service etcd 0 services/etcd.sh",
        "in_image 'images.example#x/sglang:1'",
        "frontend frontend-0 0 frontends/frontend-0.sh",
    ]


@pytest.mark.parametrize("run_dir", ["/runs/a b", "/runs/a:b", "/runs/a,b"])
def test_a_run_that_cannot_be_mounted(tmp_path: Path, run_dir: str) -> None:
    with pytest.raises(DiagnosticError, match="cannot be mounted"):
        bundle_files(plan_for(tmp_path, "pyxis"), run_dir, "")
    assert bundle_files(plan_for(tmp_path, "none"), run_dir, "")


def recording(folder: Path, name: str, then: str = "") -> None:
    """A command on PATH that writes its words to <folder>/<name>.words, and TMPDIR and HF_HOME as Apptainer would see them."""
    path = folder / name
    path.write_text(
        f"#!/bin/bash\nprintf '%s\\n' \"$@\" >{folder}/{name}.words\n"
        f'echo "${{TMPDIR-unset}} ${{APPTAINERENV_HF_HOME-unset}} ${{SETUP_EACH_RANK-unset}}" >{folder}/{name}.env\n{then}\n'
    )
    path.chmod(0o755)


ALWAYS = ["--overlap", "--kill-on-bad-exit=1", "--wait=11", "--input=none"]  # longer than `STOP_GRACE`, 1 s here
PLACED = ["--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=n1"]
PYXIS = ["--container-mounts=RUN:RUN,/m:/m:ro", "--no-container-mount-home", "--no-container-entrypoint"]
ENTERED = [
    # lines of job.sbatch, words of srun after its log, the environment that srun gets
    ("", ["bash", "RUN/s.sh"], "RUN unset unset"),
    ("with_options --mem=0 --x;", ["bash", "RUN/s.sh"], "RUN unset unset"),
    (
        "containers pyxis HF_HOME A; in_image a#b:1;",
        ["--container-image=a#b:1", *PYXIS, "--container-env=HF_HOME,A", "bash", "RUN/s.sh"],
        "unset unset unset",
    ),
    (
        "containers pyxis; in_writable_image x;",
        ["--container-image=x", *PYXIS, "--container-writable", "bash", "RUN/s.sh"],
        "unset unset unset",
    ),
    ("containers pyxis TMPDIR; in_image x;", None, "RUN unset unset"),
    ("containers pyxis; in_image x; on_the_node;", ["bash", "RUN/s.sh"], "RUN unset unset"),
    (
        "containers apptainer HF_HOME; in_image docker://x;",
        ["apptainer", "exec", "--nv", "--bind", "RUN:RUN,/m:/m:ro", "docker://x", "bash", "RUN/s.sh"],
        "unset /hf unset",
    ),
    (
        "containers apptainer; in_writable_image /x.sif;",
        ["apptainer", "exec", "--nv", "--writable-tmpfs", "--bind", "RUN:RUN,/m:/m:ro", "/x.sif", "bash", "RUN/s.sh"],
        "unset unset 1",
    ),
]


@pytest.mark.process
@pytest.mark.parametrize(("lines", "words", "environment"), ENTERED, ids=[row[0] for row in ENTERED])
def test_what_srun_is_told(node: Node, lines: str, words: list[str] | None, environment: str) -> None:
    run = node.run_dir
    commands = run / "bin"
    commands.mkdir()
    recording(commands, "srun")
    script = f'mounts "$RUN_DIR:$RUN_DIR" /m:/m:ro; {lines} PATH={commands}:$PATH run_step agg-0 n1 1 s.sh'
    assert node.run(script, HF_HOME="/hf", A="1") == (0, "")
    told = (commands / "srun.words").read_text().replace(str(run), "RUN").splitlines()
    options = ["--mem=0", "--x"] if "with_options" in lines else []
    assert told[: told.index("--output=RUN/logs/agg-0.log") + 1] == [
        *ALWAYS, *PLACED, *options, "--job-name=agg-0", "--output=RUN/logs/agg-0.log",
    ]  # fmt: skip
    if words is not None:
        assert told[told.index("--output=RUN/logs/agg-0.log") + 1 :] == words
    assert (commands / "srun.env").read_text().replace(str(run), "RUN").strip() == environment
    assert (run / "state/agg-0.step").read_text() == "0\n"


@pytest.mark.process
def test_apptainer_runs_the_steps_script(node: Node) -> None:
    """What srun is told works as a command line: the script runs where apptainer puts it."""
    run = node.run_dir
    commands = run / "bin"
    commands.mkdir()
    recording(commands, "srun", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
    recording(commands, "apptainer", 'while [[ $1 != *.sif ]]; do shift; done; shift; exec "$@"')
    (run / "s.sh").write_text('echo "$STEP" >"$RUN_DIR/ran"\n')
    script = f"containers apptainer; in_image /x.sif; mounts /m:/m; PATH={commands}:$PATH run_step agg-0 n1 1 s.sh"
    assert node.run(script) == (0, "")
    assert (run / "ran").read_text() == "agg-0\n"


@pytest.mark.process
def test_the_probe_of_dynamo_enters_the_image(node: Node) -> None:
    commands = node.run_dir / "bin"
    commands.mkdir()
    recording(commands, "srun")
    shutil.copy("/bin/true", commands / "scontrol")
    code, _ = node.run(
        f"containers apptainer; in_image /x.sif; with_options --x; mounts /m:/m; PATH={commands}:$PATH probe_stack 1 python3"
    )
    assert code == 0
    told = (commands / "srun.words").read_text().splitlines()
    assert "--x" in told[: told.index("apptainer")]
    assert told[told.index("apptainer") :][:6] == ["apptainer", "exec", "--nv", "--bind", "/m:/m", "/x.sif"]


def set_up(commands: str) -> str:
    return f"engine=(sleep 1000); engine_env=(); {commands}; "


@pytest.mark.process
def test_set_up_commands_run_in_order_before_the_engine(node: Node) -> None:
    order = node.run_dir / "order"
    commands = f"setup_1=(bash -c 'echo one; echo 1 >>{order}'); setup_2=(bash -c 'echo two; echo 2 >>{order}'); setup=(setup_1 setup_2)"
    process = node.start(f"{set_up(commands)} supervise agg-0.1 - engine")
    node.wait_for("started", part="engine")
    assert order.read_text() == "1\n2\n"
    assert (node.run_dir / "logs/agg-0.1.setup.log").read_text() == "one\ntwo\n"
    process.terminate()
    process.communicate(timeout=DEADLINE)
    assert [e for e in node.events() if e["event"] == "exited"] == []


@pytest.mark.process
def test_a_set_up_that_fails_ends_the_step_and_is_named(node: Node) -> None:
    commands = (
        "setup_1=(bash -c 'echo working; echo no such package >&2; exit 3'); setup_2=(true); setup=(setup_1 setup_2)"
    )
    code, out = node.run(f"{set_up(commands)} supervise agg-0.1 - engine")
    assert (code, out) == (3, "")
    assert node.wait_for("exited")["words"] == "agg-0.1 setup on n1 exited with 3: no such package"
    assert {e.get("part") for e in node.events()} == {"setup"}


@pytest.mark.process
def test_a_set_up_that_a_signal_ended_is_not_followed_by_the_next(node: Node) -> None:
    """The signal reaches the command and its step at once: whichever is seen first."""
    commands = set_up("setup_1=(false); setup_2=(true); setup=(setup_1 setup_2)")
    code, _ = node.run(f"{commands} leave_when_ended() {{ STOPPING=1; }}; supervise agg-0.1 - engine")
    assert code == 0
    assert [e["event"] for e in node.events()] == ["started"]


@pytest.mark.process
def test_a_step_that_is_stopped_stops_its_set_up(node: Node) -> None:
    process = node.start(f"{set_up('setup_1=(sleep 1000); setup=(setup_1)')} supervise agg-0.1 - engine")
    node.wait_for("started", part="setup")
    process.terminate()
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert [(e["event"], e["part"]) for e in node.events()] == [("started", "setup"), ("stopped", "setup")]


@pytest.mark.process
def test_what_a_job_is_told_of_its_dynamo(node: Node) -> None:
    commands = node.run_dir / "bin"
    commands.mkdir()
    recording(commands, "srun", "echo it lacks everything; exit 4")
    code, out = node.run(f"unset NODE_INDEX; PATH={commands}:$PATH; probe_stack 1 python3")
    assert code == 1
    assert "failed: it lacks everything\n" in out


@pytest.mark.process
@pytest.mark.parametrize(("each", "times"), [("", 1), ("1", 2)])
def test_the_ranks_of_a_node_share_a_set_up_unless_each_has_its_own_image(node: Node, each: str, times: int) -> None:
    commands = "setup_1=(bash -c 'echo ran >>$RUN_DIR/ran'); setup=(setup_1)"
    script = f"{set_up(commands)} supervise_rank agg-0.1 - engine"
    second = node.start(script, SLURM_PROCID="1", SLURM_LOCALID="1", SETUP_EACH_RANK=each)
    if not each:
        assert [e for e in node.events() if e["event"] == "started"] == []
    first = node.start(script, SLURM_PROCID="0", SLURM_LOCALID="0", SETUP_EACH_RANK=each)
    node.wait_for("started", part="engine", process="agg-0.1")
    node.wait_for("started", part="engine", process="agg-0.1.rank1")
    assert (node.run_dir / "ran").read_text() == "ran\n" * times
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=DEADLINE)
