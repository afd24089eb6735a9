"""The bundle's machinery by itself, with real processes: what couples engine and sidecar on a node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srtctl.render.bundle import STATIC

pytestmark = pytest.mark.process

RENDER = Path(__file__).parents[3] / "src/srtctl/render"
DEADLINE = 30.0


class Node:
    """One node of a step: runs a script with the runtime sourced, as srun would."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        for name in STATIC:
            shutil.copy(RENDER / name, run_dir)
        for folder in ("logs", "state", "events"):
            (run_dir / folder).mkdir()
        (run_dir / "state/nodes.tsv").write_text("0\tn0\t127.0.0.1\n1\tn1\t127.0.0.2\n")
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, script: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", "-c", f"source {self.run_dir}/job.sh; source {self.run_dir}/node.sh; enter_step; {script}"],
            env={
                "PATH": os.environ["PATH"],
                "RUN_DIR": str(self.run_dir),
                "TMPDIR": str(self.run_dir),
                "SLURMD_NODENAME": "n1",
                "SLURM_JOB_ID": "7",
                "SLURM_STEP_ID": "3",
                "STEP": "agg-0",
                "STOP_GRACE": "1",
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, script: str, **env: str) -> tuple[int, str]:
        process = self.start(script, **env)
        out, _ = process.communicate(timeout=DEADLINE)
        return process.returncode, out

    def events(self) -> list[dict[str, object]]:
        path = self.run_dir / "events/node-1.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, event: str, **fields: object) -> dict[str, object]:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            for found in self.events():
                if found["event"] == event and fields.items() <= found.items():
                    return found
            time.sleep(0.02)
        raise AssertionError(f"no event {event} {fields} in {self.events()}")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def alive(pid: object) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


LISTEN = (
    "python3 -c 'import socket,sys,time\ns=socket.socket()\ns.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
    's.bind(("127.0.0.1",{port}))\ns.listen()\n{then}\''
)


def arrays(engine: str, sidecar: str = "sleep 1000") -> str:
    return f"engine=({engine}); engine_env=(A=1); sidecar=({sidecar}); sidecar_env=();"


ENDINGS = [
    # what ends, how, exit code of the task, words of the cause
    ("engine", "exit 5", 5, "agg-0.1 engine on n1 exited with 5: OSError: gone"),
    ("engine", "exit 0", 1, "agg-0.1 engine on n1 exited with 0: OSError: gone"),
    ("sidecar", "exit 3", 3, "agg-0.1 sidecar on n1 exited with 3: OSError: gone"),
    ("sidecar", "kill -9 $$", 137, "agg-0.1 sidecar on n1 was killed by SIGKILL"),
]


@pytest.mark.parametrize(("part", "how", "code", "words"), ENDINGS)
def test_when_either_ends_the_other_is_stopped(node: Node, part: str, how: str, code: int, words: str) -> None:
    dying = f"bash -c 'echo starting; echo OSError: gone; {how}'"
    script = arrays(dying, "sleep 1000") if part == "engine" else arrays("sleep 1000", dying)
    got, out = node.run(f"{script} supervise agg-0.1 - engine sidecar")
    assert (got, out) == (code, "")
    first = node.wait_for("exited")
    assert (first["part"], first["words"]) == (part, words)
    started = {str(e["part"]): e["pid"] for e in node.events() if e["event"] == "started"}
    other = next(p for p in ("engine", "sidecar") if p != part)
    if other in started:
        assert node.wait_for("stopped", part=other)
        assert not alive(started[other])
        assert (node.run_dir / f"state/agg-0.1.{other}.exit").read_text() == "143\n"
    assert not list(node.run_dir.glob("srtctl-*"))


def test_a_failure_is_shown_before_the_others_are_stopped(node: Node) -> None:
    """Not by the end of the step alone, of which Slurm may tell late."""
    stubborn = "bash -c 'trap \"\" TERM; echo up; while :; do sleep 0.1; done'"
    log, marker = node.run_dir / "logs/agg-0.1.sidecar.log", node.run_dir / "state/agg-0.failed"
    dying = f"bash -c 'until grep -qs up {log}; do sleep 0.1; done'"
    task = node.start(f"{arrays(dying, stubborn)} supervise agg-0.1 - engine sidecar", STOP_GRACE="1000")
    pid = node.wait_for("started", part="sidecar")["pid"]
    end = time.monotonic() + DEADLINE
    while not marker.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    try:
        assert node.wait_for("exited", part="engine")
        assert (task.poll(), alive(pid)) == (None, True)
    finally:
        os.kill(int(str(pid)), signal.SIGKILL)
    assert task.wait(DEADLINE) == 1


def test_the_sidecar_starts_when_the_engine_listens(node: Node) -> None:
    port = free_port()
    task = node.start(
        f"{arrays(LISTEN.format(port=port, then='time.sleep(1000)'))} supervise agg-0.1 127.0.0.1:{port} engine sidecar"
    )
    node.wait_for("started", part="sidecar")
    order = [(e["event"], e.get("part")) for e in node.events()]
    assert order == [("started", "engine"), ("listening", None), ("started", "sidecar")]
    end = time.monotonic() + DEADLINE
    while not (node.run_dir / "state/agg-0.1.ready").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(task.pid, signal.SIGTERM)
    assert task.wait(DEADLINE) == 0
    assert {e["part"] for e in node.events() if e["event"] == "stopped"} == {"engine", "sidecar"}
    assert [e for e in node.events() if e["event"] == "exited"] == []


def test_an_engine_that_dies_before_it_listens_ends_the_wait(node: Node) -> None:
    code, _ = node.run(f"{arrays('false')} supervise agg-0.1 127.0.0.1:{free_port()} engine sidecar")
    assert code == 1
    assert [e["event"] for e in node.events()] == ["started", "exited"]


def test_an_engine_that_never_listens_is_given_up(node: Node) -> None:
    port = free_port()
    code, _ = node.run(f"{arrays('sleep 1000')} supervise agg-0.1 127.0.0.1:{port} engine sidecar", STARTUP_TIMEOUT="0")
    assert code == 1
    assert f"did not listen on port {port} within 0 s" in str(node.wait_for("not_listening")["words"])
    assert (node.run_dir / "state/agg-0.failed").exists()


def test_a_process_that_ignores_term_is_killed_with_its_children(node: Node) -> None:
    stubborn = "bash -c 'trap \"\" TERM; sleep 1000 & echo child $!; while :; do sleep 1; done'"
    task = node.start(f"{arrays(stubborn)} supervise agg-0.1 - engine sidecar")
    pid = node.wait_for("started", part="engine")["pid"]
    log = node.run_dir / "logs/agg-0.1.engine.log"
    end = time.monotonic() + DEADLINE
    while "child" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < end
        time.sleep(0.02)
    node.wait_for("started", part="sidecar")
    os.kill(task.pid, signal.SIGTERM)
    assert task.wait(DEADLINE) == 0
    stopped = node.wait_for("stopped", part="engine")
    assert stopped["code"] == 137
    assert float(str(stopped["seconds"])) > 0
    assert not alive(pid)
    assert not alive(log.read_text().split()[1])


def test_a_signal_that_ends_a_command_of_ours_loses_nothing(node: Node, tmp_path: Path) -> None:
    """Slurm signals every process of a step, and may do so again while it stops: here whatever is called first is killed."""
    for name in ("mv", "rm"):
        shim = tmp_path / "bin" / name
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(
            f'#!/bin/bash\n[[ -e $0.$PPID ]] || {{ : >"$0.$PPID"; kill -TERM $$; }}\nexec /bin/{name} "$@"\n'
        )
        shim.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    task = node.start(f"{arrays('sleep 1000')} supervise agg-0.1 - engine sidecar", PATH=path)
    node.wait_for("started", part="sidecar")
    os.kill(task.pid, signal.SIGTERM)
    assert task.wait(DEADLINE) == 0
    assert {(e["part"], e["code"]) for e in node.events() if e["event"] == "stopped"} == {
        ("engine", 143),
        ("sidecar", 143),
    }
    assert {p.name: p.read_text() for p in (node.run_dir / "state").glob("*.exit")} == {
        "agg-0.1.engine.exit": "143\n",
        "agg-0.1.sidecar.exit": "143\n",
    }
    assert len(list((tmp_path / "bin").glob("mv.*"))) >= 3  # the step id's, and one for each exit code
    assert not list(node.run_dir.glob("srtctl-*"))


def test_the_children_of_a_process_that_died_end_with_the_task(node: Node) -> None:
    dying = "bash -c 'sleep 1000 & echo child $!; kill -9 $$'"
    code, _ = node.run(f"{arrays(dying)} supervise agg-0.1 - engine sidecar")
    assert code == 137
    child = (node.run_dir / "logs/agg-0.1.engine.log").read_text().split()[1]
    assert not alive(child)


def test_a_busy_port_is_named_with_its_holder(node: Node) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        claims = node.run_dir / "claims.tsv"
        claims.write_text(f"0\t{port}\t1\thttp\tagg-0.0\n1\t{port - 1}\t2\tkv_events\tagg-0.1\n")
        code, _ = node.run(f"probe_node {claims}")
    assert code == 1
    busy = [e for e in node.events() if e["event"] == "port_busy"]
    assert [(e["port"], e["purpose"], e["owner"]) for e in busy] == [(port, "kv_events", "agg-0.1")]
    assert f"process {os.getpid()} (" in str(busy[0]["holder"])


def test_free_ports_pass(node: Node) -> None:
    claims = node.run_dir / "claims.tsv"
    claims.write_text(f"1\t{free_port()}\t1\thttp\tagg-0.1\n")
    assert node.run(f"probe_node {claims}") == (0, "")


TEXTS = [
    "plain",
    'a "quoted" word',
    "back\\slash",
    "tab\there",
    "unicode ✓ é",
    "\x1b[31mred",
    "",
    "'$(reboot)' `x` $HOME",
]


@pytest.mark.parametrize("text", TEXTS)
def test_events_are_json_whatever_a_log_says(node: Node, text: str) -> None:
    code, out = node.run('event probe text="$TEXT" count:=3', TEXT=text)
    assert (code, out) == (0, "")
    found = node.wait_for("probe")
    expected = "".join(c if c != "\t" else " " for c in text if c == "\t" or ord(c) >= 32)
    assert (found["text"], found["count"], found["node"]) == (expected, 3, 1)


LAST_WORDS = [
    ("one\ntwo\n", "two"),
    (
        "RuntimeError: KV source rank 1 is outside dp_size 1\nshutting down\n",
        "RuntimeError: KV source rank 1 is outside dp_size 1",
    ),
    ("\x1b[31mERROR\x1b[0m no such model\nbye\n\n", "ERROR no such model"),
    (
        "launch_server.py: error: unrecognized arguments: --foo\n",
        "launch_server.py: error: unrecognized arguments: --foo",
    ),
    ("Traceback (most recent call last):\n  File x\npkg.mod.BadThing: nope\nValueError: bad\n", "ValueError: bad"),
    ("", ""),
]


@pytest.mark.parametrize(("log", "expected"), LAST_WORDS)
def test_last_words(node: Node, log: str, expected: str) -> None:
    path = node.run_dir / "x.log"
    path.write_text(log)
    assert node.run(f"last_words {path}") == (0, expected)


def test_a_command_that_is_missing_is_called_so(node: Node) -> None:
    code, _ = node.run(f"{arrays('sleep 1000', 'no-such-sidecar --grpc')} supervise agg-0.1 - engine sidecar")
    assert code == 127
    said = "agg-0.1 sidecar on n1 could not be started: there is no command no-such-sidecar where it runs; "
    assert str(node.wait_for("exited")["words"]).startswith(said)


@pytest.mark.parametrize(
    ("code", "last", "words"),
    [
        (
            "127",
            "env: \u2018/opt/side-car\u2019: No such file or directory",
            "there is no command /opt/side-car where it runs",
        ),
        ("127", "env: can't execute 'foo_1.2': No such file or directory", "there is no command foo_1.2 where"),
        ("127", "/usr/bin/env: 'python': No such file or directory", "exited with 127: /usr/bin/env: 'python'"),
        ("1", "env: 'foo': No such file or directory", "exited with 1: env: 'foo'"),
        ("127", "", "exited with 127"),
    ],
)
def test_how_it_ended(node: Node, code: str, last: str, words: str) -> None:
    got, said = node.run(f'how_it_ended {code} "$LAST"', LAST=last)
    assert got == 0
    assert words in said


@pytest.mark.parametrize(
    ("sidecar", "asked"),
    [
        ("{folder}/mine -m dynamo.sglang.sidecar --grpc-endpoint 127.0.0.1:9100", "mine"),
        ("dynamo-openengine-sidecar --grpc-endpoint 127.0.0.1:9100 --model-path m", "python3"),
        ("dynamo-openengine-sidecar", ""),
    ],
)
def test_the_engine_is_asked_with_a_python(node: Node, sidecar: str, asked: str) -> None:
    folder = node.run_dir / "bin"
    folder.mkdir()
    for name in ("mine", "python3", "dynamo-openengine-sidecar"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
        (folder / name).chmod(0o755)
    _, said = node.run(f"sidecar=({sidecar.format(folder=folder)}); PATH={folder}:$PATH engine_facts")
    assert said == (f"{asked} -m srtctl.checks.engine_info 127.0.0.1 9100\n" if asked else "")


@pytest.mark.parametrize(("step", "found"), [("3", True), ("", False)])
def test_an_image_may_keep_the_steps_id_to_itself(node: Node, step: str, found: bool) -> None:
    assert node.run("true", SLURM_STEP_ID=step) == (0, "")
    assert [p.name for p in (node.run_dir / "state").glob("*.stepid*")] == ["agg-0.stepid"] * found


@pytest.mark.parametrize(
    ("rank", "here", "name", "parts", "ready"),
    [
        ("0", "0", "agg-0.1", {"engine", "sidecar"}, True),
        ("3", "0", "agg-0.1", {"engine"}, True),  # another node's first rank stands for the node
        ("1", "1", "agg-0.1.rank1", {"engine"}, False),
    ],
)
def test_rank_0_has_all_the_parts(node: Node, rank: str, here: str, name: str, parts: set[str], ready: bool) -> None:
    script = f"{arrays('sleep 1000')} supervise_rank agg-0.1 - engine sidecar"
    process = node.start(script, SLURM_PROCID=rank, SLURM_LOCALID=here)
    for part in parts:
        node.wait_for("started", process=name, part=part)
    end = time.monotonic() + DEADLINE
    while ready and not (node.run_dir / "state/agg-0.1.ready").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=DEADLINE)
    assert {event["part"] for event in node.events() if event["event"] == "started"} == parts
    assert (node.run_dir / "state/agg-0.1.ready").exists() is ready


CLIENT = "client=({command}); client_env=(A=1);"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("echo done", 0, "the benchmark exited with 0: done"),
        (
            "echo begun; echo ValueError: no such thing; echo more; exit 7",
            7,
            "the benchmark exited with 7: ValueError: no such thing",
        ),
        ("kill -9 $$", 137, "the benchmark was killed by SIGKILL"),
    ],
)
def test_the_end_of_a_client_is_the_end_of_its_task(node: Node, command: str, code: int, words: str) -> None:
    script = CLIENT.format(command=f"bash -c '(exec sleep 1000) & {command}'")
    assert node.run(f"{script} run_client benchmark client") == (code, "")
    event = node.wait_for("client_ended")
    assert (event["process"], event["code"], event["words"]) == ("benchmark", code, words)
    assert (node.run_dir / "logs/benchmark").is_dir()
    assert not [e for e in node.events() if e["event"] == "exited"]  # it is no failure of the deployment
    assert not list(node.run_dir.glob("srtctl-*"))
    sleeping = subprocess.run(["pgrep", "-g", str(node.wait_for("started")["pid"])], capture_output=True, check=False)
    assert sleeping.stdout == b""  # what it left in the background


def test_a_client_is_stopped_with_its_task(node: Node) -> None:
    task = node.start(f"{CLIENT.format(command='sleep 1000')} run_client benchmark client")
    pid = node.wait_for("started", part="client")["pid"]
    task.terminate()
    task.communicate(timeout=DEADLINE)
    assert task.returncode == 143
    assert node.wait_for("stopped", part="client")["code"] == 143
    assert not alive(pid)


@pytest.mark.parametrize("here", ["0", "1"])
def test_each_task_of_a_process_a_rank_is_waited_for(node: Node, here: str) -> None:
    """The job counts a `.ready` file for each task; of the tasks of an MPI worker only the first of a node writes one."""
    process = node.start(f"{arrays('sleep 1000')} supervise_task agg-0.{here} - engine", SLURM_LOCALID=here)
    node.wait_for("started", process=f"agg-0.{here}", part="engine")
    end = time.monotonic() + DEADLINE
    while not (node.run_dir / f"state/agg-0.1.{here}.ready").exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=DEADLINE)
    assert (node.run_dir / f"state/agg-0.1.{here}.ready").exists()
