"""The sandbox with real daemons: boot, jobs, what it refuses, and that nothing at all stays behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from srtctl.sandbox import network, packages, processes, stack
from srtctl.sandbox.mounts import mount_points
from srtctl.sandbox.spec import bridge_name

pytestmark = pytest.mark.e2e

SOURCE = Path(__file__).resolve().parents[2] / "src"
MAIN = "from srtctl.cli.sandbox import app; app()"
NOBODY = 65534
BOOT_SECONDS = 120
JOB_SECONDS = 60
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def require(condition: object, reason: str) -> None:
    if not condition:
        pytest.skip(reason)


@dataclass
class Machine:
    """One sandbox's command line, with a data folder of its own; `prefix` and `python` choose the user."""

    data: Path
    env: dict[str, str]
    python: str = sys.executable
    prefix: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"e2e-{uuid.uuid4().hex[:8]}")

    @property
    def state(self) -> Path:
        return self.data / "sandbox" / self.name

    def argv(self, verb: str, *arguments: str) -> list[str]:
        return [*self.prefix, self.python, "-c", MAIN, verb, "--name", self.name, *arguments]

    def sandbox(self, verb: str, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.argv(verb, *arguments),
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=BOOT_SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{verb}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def slurm(self, *argv: str) -> str:
        # What the caller has in its environment must not matter: only this reaches Slurm.
        env = {"PATH": SYSTEM_PATH, "SLURM_CONF": str(self.state / "slurm.conf"), "HOME": "/"}
        done = subprocess.run(
            [*self.prefix, *argv], env=env, cwd="/", capture_output=True, text=True, timeout=JOB_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job(self, script: str, *options: str) -> str:
        """Submits a script that gets no environment, waits for its end, returns its output."""
        out = Path(self.env["HOME"]) / f"job-{uuid.uuid4().hex[:6]}.out"
        path = out.with_suffix(".sh")
        path.write_text(f"#!/bin/bash\nexport PATH={SYSTEM_PATH}\n{script}")
        path.chmod(0o755)
        job = self.slurm("sbatch", "--parsable", "--export=NIL", f"--output={out}", *options, str(path)).strip()
        wait(lambda: "JobState=COMPLETED" in self.slurm("scontrol", "show", "job", job), f"job {job} to complete")
        return out.read_text()

    def traces(self) -> list[str]:
        """Everything on this machine that is this sandbox's: interfaces, namespaces, mounts, processes, files."""
        found = [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(bridge_name(self.name))]
        found += network.namespaces(self.name)
        found += [point for point in mount_points() if point.startswith(f"{self.data}/")]
        found += [str(path) for path in self.data.glob("sandbox*")]
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and str(self.state).encode() in _told(entry):
                found.append(f"process {entry.name}: {_told(entry)[:200]!r}")
        return found


def _told(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
    except OSError:
        return b""


def wait(ready: Callable[[], object], what: str, seconds: float = JOB_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path (pytest's own are too long for Slurm's sockets), empty again at the end."""
    path = Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def machine(folder: Path) -> Iterator[Machine]:
    require(not packages.missing(), f"not installed: {', '.join(packages.missing())}")
    found = stack.find()
    require(found, "no stack environment: run `srtctl sandbox install` or set SRTCTL_STACK_DIR")
    env = {"PATH": SYSTEM_PATH, "HOME": str(folder), "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"SRTCTL_DATA_DIR": str(folder), "SRTCTL_STACK_DIR": str(found.root) if found else ""}
    machine = Machine(folder, env)
    yield machine
    machine.sandbox("down")
    assert machine.traces() == []


@pytest.fixture
def netns(machine: Machine) -> Machine:
    require(not network.why_not_netns(), network.why_not_netns())
    return machine


@pytest.fixture
def nobody(machine: Machine, folder: Path) -> Iterator[Machine]:
    """The same command line as an ordinary user, with a home of its own."""
    require(os.geteuid() == 0, "needs root to become another user")
    home = folder / "home"
    home.mkdir()
    folder.chmod(0o755)
    shutil.chown(home, NOBODY, NOBODY)
    # Through a shell: what setpriv itself executes, it finds with root's capabilities.
    prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "/bin/sh", "-c", 'exec "$@"', "sh"]
    env = machine.env | {"HOME": str(home), "PYTHONPATH": f"{SOURCE}:{sysconfig.get_path('purelib')}"}
    python = next((p for p in (sys.executable, "/usr/bin/python3") if _runs(p, prefix, env)), None)
    require(python, "no Python here that an ordinary user can run with srtctl's dependencies")
    del env["SRTCTL_DATA_DIR"]
    env["SRTCTL_STACK_DIR"] = str(_stack_for_others(home, str(python), env["SRTCTL_STACK_DIR"], prefix))
    user = Machine(home / ".local/share/srtctl", env, str(python), prefix)
    yield user
    user.sandbox("down")
    assert user.traces() == []


def _runs(python: str, prefix: list[str], env: dict[str, str]) -> bool:
    code = f"import sys, typer, pydantic, yaml, srtctl.sandbox; assert sys.version_info[:2] == {sys.version_info[:2]}"
    done = subprocess.run([*prefix, python, "-c", code], env=env, cwd="/", capture_output=True, check=False)
    return done.returncode == 0


def _stack_for_others(home: Path, python: str, own: str, prefix: list[str]) -> Path:
    """The stack as it is when that user can run it, else its packages behind a Python that the user can run."""
    if subprocess.run([*prefix, f"{own}/bin/python3", "-c", ""], capture_output=True, check=False).returncode == 0:
        return Path(own)
    root = home / "stack"
    subprocess.run([python, "-m", "venv", "--without-pip", str(root)], check=True)
    packages_of = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (root / packages_of / "stack.pth").write_text(f"{own}/{packages_of}\n")
    return root


def status(machine: Machine, code: int = 0) -> dict[str, Any]:
    data = json.loads(machine.sandbox("status", "-o", "json", code=code).stdout)
    assert isinstance(data, dict)
    return data


# Both tasks hold the port at the same time: each waits until the other has it too.
BIND = """
import os, pathlib, socket, sys, time
folder, node = pathlib.Path(sys.argv[1]), os.environ["SLURMD_NODENAME"]
server = socket.create_server(("0.0.0.0", 23456))
(folder / node).touch()
deadline = time.monotonic() + 30
while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
    time.sleep(0.05)
print(node, socket.gethostname(), os.environ["CUDA_VISIBLE_DEVICES"], len(list(folder.iterdir())))
"""
WHOLE_NODES = ("--exclusive", "--mem=0", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--time=1")


def test_two_nodes_in_namespaces(netns: Machine, folder: Path) -> None:
    booted = netns.sandbox("up")
    assert booted.stdout.strip() == str(netns.state / "srtslurm.yaml")
    assert booted.stderr.splitlines()[-1] == f"next: SRTCTL_SANDBOX={netns.name} srtctl apply RECIPE"
    data = status(netns)
    assert [(node["name"], node["state"]) for node in data["nodes"]] == [("sandbox-0", "idle"), ("sandbox-1", "idle")]
    assert data["network"] == "netns"

    (folder / "bind.py").write_text(BIND)
    (folder / "bound").mkdir()
    step = "srun --overlap --export=ALL --input=none"
    script = (
        f"env | grep ^SLURM_CONF= ; hostname; scontrol show hostnames; getent hosts sandbox-1\n"
        f"{step} --kill-on-bad-exit=1 {sys.executable} {folder}/bind.py {folder}/bound\n"
        f"{step} -N1 -n1 -w sandbox-1 hostname\n"
    )
    lines = netns.job(script, *WHOLE_NODES).splitlines()
    second = data["nodes"][1]["address"]
    assert lines[:4] == [f"SLURM_CONF={netns.state}/slurm.conf", "sandbox-0", "sandbox-0", "sandbox-1"]
    assert lines[4].split() == [second, "sandbox-1"]
    assert sorted(lines[5:7]) == ["sandbox-0 sandbox-0 0 2", "sandbox-1 sandbox-1 0 2"]
    assert lines[7:] == ["sandbox-1"]

    pids = [daemon["pid"] for daemon in data["daemons"]]
    assert "was up already" in netns.sandbox("up").stderr
    assert [daemon["pid"] for daemon in status(netns)["daemons"]] == pids
    refused = netns.sandbox("up", "--nodes", "3", code=2)
    assert f"srtctl sandbox down --name {netns.name}" in refused.stderr

    assert "is gone" in netns.sandbox("down").stderr
    assert netns.traces() == []
    assert "there is no sandbox" in netns.sandbox("down").stderr
    assert status(netns, code=1)["up"] is False


def test_profile_image_and_model(netns: Machine) -> None:
    netns.sandbox("up", "--nodes", "1", "--gpus-per-node", "4")
    profile = yaml.safe_load((netns.state / "srtslurm.yaml").read_text())
    assert profile["gpus_per_node"] == 4
    assert (Path(profile["model_paths"]["qwen3-0.6b"]) / "tokenizer.json").is_file()
    exports = "\n".join(f"export {name}={value}" for name, value in profile["env"].items())
    python = profile["runtime_python"]
    code = (
        "import srtctl.sim, srtctl.checks, sglang, os; print(srtctl.sim.__file__, os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    out = netns.job(f'{exports}\nsrun --export=ALL {python} -c "{code}"\n', "--gpus-per-node=3", "--mem=0")
    assert out.split() == [f"{netns.state}/image/srtctl/sim/__init__.py", "0,1,2"]


def test_two_sandboxes_at_once(netns: Machine) -> None:
    other = Machine(netns.data, netns.env)
    netns.sandbox("up", "--nodes", "1")
    first = status(netns)["subnet"]
    try:
        refused = other.sandbox("up", "--nodes", "1", "--subnet", first, code=2)
        assert f"the subnet {first} is taken: interface {bridge_name(netns.name)}" in refused.stderr
        assert not other.state.exists()
        other.sandbox("up", "--nodes", "1")
        assert status(other)["subnet"] != first
        for machine in (netns, other):
            assert machine.slurm("srun", "hostname").strip() == "sandbox-0"
    finally:
        other.sandbox("down")
    assert netns.slurm("srun", "hostname").strip() == "sandbox-0"


def test_down_ends_jobs_and_what_they_left(netns: Machine, folder: Path) -> None:
    netns.sandbox("up", "--nodes", "1")
    pids = folder / "escaped"
    # A process that left its step's process tree and cleared its environment: only its namespace tells whose it is.
    script = f"setsid env -i /bin/sh -c 'trap \"\" TERM; echo $$ >>{pids}; exec sleep 600' &\nsleep 600\n"
    path = folder / "escape.sh"
    path.write_text(f"#!/bin/bash\n{script}")
    netns.slurm("sbatch", f"--output={folder}/job.out", str(path))
    wait(lambda: pids.exists() and pids.read_text().strip(), "the job to start")
    assert "cancelling 1 job" in netns.sandbox("down").stderr
    assert processes.read(int(pids.read_text())) is None


def _with_broken_slurmd(folder: Path) -> str:
    folder.mkdir()
    (folder / "slurmd").write_text("#!/bin/sh\necho 'slurmd: fatal: the plugin is missing'\nexit 1\n")
    (folder / "slurmd").chmod(0o755)
    return f"{folder}:{SYSTEM_PATH}"


@pytest.mark.parametrize("mode", ["netns", "loopback"])
def test_a_failed_boot_is_cleaned_up(machine: Machine, folder: Path, mode: str) -> None:
    require(mode == "loopback" or not network.why_not_netns(), network.why_not_netns())
    path = _with_broken_slurmd(folder / "bin")
    failed = machine.sandbox("up", "--network", mode, code=1, PATH=path)
    assert re.search(r"^error: slurmd-sandbox-[01] ended during the boot$", failed.stderr, re.MULTILINE)
    assert "slurmd: fatal: the plugin is missing" in failed.stderr
    assert machine.traces() == []


def test_retain_keeps_a_failed_boot_until_the_next(netns: Machine, folder: Path) -> None:
    path = _with_broken_slurmd(folder / "bin")
    kept = netns.sandbox("up", "--retain", code=1, PATH=path)
    assert "kept for a look" in kept.stderr
    assert (netns.state / "log" / "slurmd-sandbox-0.out").is_file()
    assert "half booted" in netns.sandbox("status", code=1).stdout
    assert "removing what it left" in netns.sandbox("up").stderr
    assert status(netns)["healthy"]


def test_up_after_a_crash(netns: Machine) -> None:
    with subprocess.Popen(netns.argv("up"), env=netns.env, stderr=subprocess.DEVNULL) as booting:
        wait(lambda: (netns.state / "pids" / "slurmctld").exists(), "slurmctld to be started", BOOT_SECONDS)
        booting.kill()
    assert "removing what it left" in netns.sandbox("up").stderr
    dead = status(netns)["daemons"][-1]
    os.kill(dead["pid"], signal.SIGKILL)
    wait(lambda: not status(netns, code=1)["daemons"][-1]["running"], f"{dead['name']} to be missed")
    assert "removing what it left" in netns.sandbox("up").stderr
    assert status(netns)["healthy"]


def test_loopback_as_an_ordinary_user(nobody: Machine) -> None:
    booted = nobody.sandbox("up")
    assert "network: loopback, because not root" in booted.stderr
    data = status(nobody)
    assert data["network"] == "loopback"
    assert yaml.safe_load((nobody.state / "srtslurm.yaml").read_text())["nodes_share_host"] is True
    lines = nobody.job(
        "env | grep ^SLURM_CONF=\nsrun --overlap --export=ALL --input=none sh -c 'echo $SLURMD_NODENAME $(id -u)'\n",
        *WHOLE_NODES,
    ).splitlines()
    assert lines[0] == f"SLURM_CONF={nobody.state}/slurm.conf"
    assert sorted(lines[1:]) == [f"sandbox-0 {NOBODY}", f"sandbox-1 {NOBODY}"]
    for node in data["nodes"]:
        assert f"NodeAddr={node['address']}" in nobody.slurm("scontrol", "show", "node", node["name"])
    nobody.slurm("sbatch", "--output=/dev/null", "--wrap=setsid sleep 600 & sleep 600")
    wait(lambda: "RUNNING" in nobody.slurm("squeue", "--format=%T"), "the job to start")
    assert "cancelling 1 job" in nobody.sandbox("down").stderr
    assert nobody.traces() == []
    assert not nobody.data.exists()


def test_the_example_serves_for_an_ordinary_user(nobody: Machine) -> None:
    """The whole path on loopback: one host, so no two ports of the job are alike; every check passes; nothing stays."""
    nobody.sandbox("up", "--nodes", "2", "--network", "loopback")
    recipe = SOURCE.parent / "examples/agg/sglang-attention-dp-2n.yaml"
    # The recipe may lie where that user cannot read.
    copy = Path(nobody.env["HOME"]) / "recipe.yaml"
    copy.write_text(recipe.read_text())
    copy.chmod(0o644)

    def srtctl(*argv: str) -> dict[str, Any]:
        done = subprocess.run(
            [*nobody.prefix, nobody.python, "-m", "srtctl", *argv, "-o", "json"],
            env=nobody.env | {"SRTCTL_SANDBOX": nobody.name},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=BOOT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        data = json.loads(done.stdout)
        assert isinstance(data, dict)
        return data

    plan = srtctl("plan", str(copy))
    ports = [claim["first"] + i for claim in plan["claims"] for i in range(claim["count"])]
    assert len(ports) == len(set(ports))
    run = srtctl("apply", str(copy), "--wait")
    assert run["phase"] == "serving"
    assert {check["verdict"] for check in run["checks"]} == {"pass"}
