"""The job's side of a bundle by itself: whom the gate asks and waits for, how the job ends, and what it names as the cause."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_runtime import DEADLINE, Node, free_port

pytestmark = pytest.mark.process


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


@contextmanager
def serving(path: str, body: bytes) -> Iterator[int]:
    """A frontend that answers one path; gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == path else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


METRICS = """# HELP x
dynamo_component_router_worker_registered{dp_rank="0",router_worker_id="77",worker_id="f",worker_type="decode"} 1
dynamo_component_router_worker_registered{dp_rank="1",router_worker_id="77",worker_id="f",worker_type="decode"} %s
dynamo_component_router_kv_event_source_mismatch_workers{model="m",worker_id="f",worker_type="decode"} %s
"""

GATE = [
    ("expect decode workers=1 ranks=2 kv_sources=all", "1", "0", 0, ""),
    ("expect decode workers=1 ranks=2 kv_sources=all", "1", "1", 1, "lacks KV event sources"),
    ("expect decode workers=1 ranks=2", "1", "1", 0, ""),
    (
        "expect decode workers=1 ranks=2",
        "0",
        "0",
        1,
        "workers=1 ranks=2 expected, the router has 1 workers and 1 ranks",
    ),
    ("expect decode workers=2 ranks=2", "1", "0", 1, "the router has 1 workers and 2 ranks"),
    (
        "expect prefill workers=1 ranks=1",
        "1",
        "0",
        1,
        "prefill: workers=1 ranks=1 expected, the router has 0 workers and 0 ranks",
    ),
]


@pytest.mark.parametrize(("expect", "second", "mismatch", "code", "words"), GATE)
def test_the_gate_reads_the_routers_metrics(
    node: Node, expect: str, second: str, mismatch: str, code: int, words: str
) -> None:
    with serving("/metrics", (METRICS % (second, mismatch)).encode()) as port:
        got, out = node.run(f"{expect}; missing_registrations 127.0.0.1:{port}")
    assert got == code
    assert words in out


def test_the_gate_says_when_nobody_answers(node: Node) -> None:
    port = free_port()
    expect = "expect decode workers=1 ranks=1"
    said = f"the frontend does not answer at 127.0.0.1:{port}\n"
    assert node.run(f"{expect}; missing_registrations 127.0.0.1:{port}") == (1, said)


@pytest.mark.parametrize(("body", "code"), [(b'{"data":[{"id":"m"}]}', 0), (b'{"data":[]}', 1)])
def test_a_router_without_registrations_must_list_a_model(node: Node, body: bytes, code: int) -> None:
    with serving("/v1/models", body) as port:
        said = "" if code == 0 else f"no model is listed at 127.0.0.1:{port}\n"
        assert node.run(f"missing_registrations 127.0.0.1:{port}") == (code, said)


@pytest.mark.parametrize(("second", "code"), [("1", 0), ("0", 1)])
def test_every_one_of_several_routers_must_be_complete(node: Node, second: str, code: int) -> None:
    expect = "expect decode workers=1 ranks=2"
    with (
        serving("/metrics", (METRICS % ("1", "0")).encode()) as first,
        serving("/metrics", (METRICS % (second, "0")).encode()) as other,
    ):
        got, out = node.run(f"{expect}; missing_registrations 127.0.0.1:{first} 127.0.0.1:{other}")
    said = "decode: workers=1 ranks=2 expected, the router has 1 workers and 1 ranks"
    assert (got, out) == (code, f"{said} (frontend at 127.0.0.1:{other})\n" if code else "")


NODES = "NODE_NAME=(n{0..11}); NODE_ADDR=(10.0.0.{0..11});"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("names_of 3", "n3\n"),
        ("names_of 0-1,9-11", "n0,n1,n9,n10,n11\n"),
        ("addresses_of 9-10:8080", "10.0.0.9:8080\n10.0.0.10:8080\n"),
        ("addresses_of 0,2:80", "10.0.0.0:80\n10.0.0.2:80\n"),
    ],
)
def test_nodes_by_their_numbers(node: Node, command: str, said: str) -> None:
    assert node.run(f"{NODES} {command}") == (0, said)


@pytest.mark.parametrize(
    ("places", "asked"),
    [("0-1:8080", "127.0.0.1:8080 127.0.0.2:8080"), ("0:80 1:81", "127.0.0.1:80 127.0.0.2:81"), ("", None)],
)
def test_whom_the_gate_asks(node: Node, places: str, asked: str | None) -> None:
    stand_in = 'missing_registrations() { echo "$*" >"$RUN_DIR/asked"; }'
    code, _ = node.run(f"unset NODE_INDEX; {stand_in}; gate 60 python3 {places}")
    assert code == 0
    assert (node.run_dir / "asked").exists() == (asked is not None)
    if asked is not None:
        assert (node.run_dir / "asked").read_text() == f"{asked}\n"


@pytest.mark.parametrize(
    ("python", "reason"), [("python3", "agg-1.0 did not register: its sidecar says x"), ("-", "agg: one is missing")]
)
def test_a_gate_that_gives_up_says_what_the_checks_found(node: Node, python: str, reason: str) -> None:
    stand_ins = (
        "missing_registrations() { echo agg: one is missing; return 1; }; survey() { echo surveyed; };"
        "checks() { echo agg-1.0 did not register: its sidecar says x; }; stop_steps() { :; }"
    )
    code, _ = node.run(f"unset NODE_INDEX; {stand_ins}; gate -1 {python} 0:80")
    assert code == 1
    end = json.loads((node.run_dir / "state/end.json").read_text())
    assert end["cause"] == f"not registered after -1 s: {reason}"


def test_a_command_of_the_job_does_not_keep_a_signal_from_its_trap(node: Node) -> None:
    """As an import of an image would, for minutes, while the job is cancelled."""
    command = """attend bash -c 'echo $$ >"$RUN_DIR/pid.new"; mv "$RUN_DIR/pid.new" "$RUN_DIR/pid"; exec sleep 1000'"""
    job = node.start(f"unset NODE_INDEX; note_signals; {command} >/dev/null 2>&1")
    end = time.monotonic() + DEADLINE
    while not (node.run_dir / "pid").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    try:
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait(DEADLINE) == 0
    finally:
        os.kill(int((node.run_dir / "pid").read_text()), signal.SIGKILL)
    assert json.loads((node.run_dir / "state/end.json").read_text())["state"] == "cancelled"


@pytest.mark.parametrize(
    ("number", "state"), [(signal.SIGTERM, "cancelled"), (signal.SIGUSR1, "time_limit")], ids=["cancel", "time limit"]
)
def test_a_signal_ends_a_serving_job_however_long_that_takes(node: Node, number: int, state: str) -> None:
    """Longer than the loop's pause: a trap that bash runs meanwhile would be left half done."""
    slow = "stop_steps() { local said; for _ in 1 2 3; do said=$(sleep 0.4; echo ended); done; echo $said; }"
    job = node.start(f"unset NODE_INDEX; {slow}; note_signals; echo here >$STATE/up; serve")
    end = time.monotonic() + DEADLINE
    while not (node.run_dir / "state/up").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(job.pid, number)
    assert job.wait(DEADLINE) == 0
    assert json.loads((node.run_dir / "state/end.json").read_text())["state"] == state
    ended = [json.loads(line) for line in (node.run_dir / "events/job.jsonl").read_text().splitlines()][-1]
    assert (ended["event"], ended["state"]) == ("job_ended", state)


def test_what_an_attended_command_returns_and_sees(node: Node) -> None:
    assert node.run("STEP=probe attend bash -c 'echo $STEP'") == (0, "probe\n")
    assert node.run("attend true && ! attend false && ! attend bash -c 'exit 7'; attend bash -c 'exit 7'") == (7, "")


STEP_LOGS = [
    # what a step's own log says, where none of its processes said anything, and the words of the cause
    ("", "step agg-0 ended with exit code 1; see logs/agg-0.log"),
    (
        "pyxis: importing docker image: x\nslurmstepd: error: pyxis:     [ERROR] URL https://x/ returned error code: 401\n"
        "slurmstepd: error: Failed to invoke spank plugin stack\n",
        "step agg-0 ended with exit code 1: URL https://x/ returned error code: 401; see logs/agg-0.log",
    ),
    (
        "FATAL:   could not open image /x.sif: no such file\nsrun: error: n1: task 0: Exited with exit code 255\n",
        "step agg-0 ended with exit code 1: could not open image /x.sif: no such file; see logs/agg-0.log",
    ),
    (
        "slurmstepd: error: execve(): bash: No such file or directory\n",
        "step agg-0 ended with exit code 1: slurmstepd: error: execve(): bash: No such file or directory; see logs/agg-0.log",
    ),
]


@pytest.mark.parametrize(("log", "words"), STEP_LOGS)
def test_a_step_whose_processes_said_nothing(node: Node, log: str, words: str) -> None:
    (node.run_dir / "logs/agg-0.log").write_text(log)
    (node.run_dir / "state/agg-0.step").write_text("1\n")
    assert node.run("pause() { :; }; failure_cause agg-0") == (0, f"{words}\n")


def test_a_step_that_failed_and_whose_events_do_not_arrive(node: Node) -> None:
    (node.run_dir / "state/agg-0.failed").touch()
    assert node.run("pause() { :; }; failure_cause agg-0") == (0, "step agg-0 ended; see logs/agg-0.log\n")


EARLIER_JOBS = [
    # what squeue does, whether that job has said how it ended, exit code of open_run, what it says
    ("echo RUNNING", False, 1, "job 5 (RUNNING) is still using"),
    ("echo COMPLETING", True, 1, "job 5 (COMPLETING) is still using"),
    ("echo slurm_load_jobs error: Unable to contact slurm controller >&2; false", False, 1, "job 5 (unknown) is still"),
    ("echo slurm_load_jobs error: Invalid job id specified >&2; false", False, 0, "job 7, run"),
    ("echo squeue: a warning >&2", False, 0, "job 7, run"),
]


@pytest.mark.parametrize(("squeue", "ended", "code", "words"), EARLIER_JOBS)
def test_an_earlier_job_of_the_bundle_must_be_gone(node: Node, squeue: str, ended: bool, code: int, words: str) -> None:
    (node.run_dir / "state/job_id").write_text("5\n")
    if ended:
        (node.run_dir / "state/end.json").touch()
    stand_ins = f"squeue() {{ {squeue}; }}; scontrol() {{ :; }}; pause() {{ SECONDS=1000; }}"
    got, out = node.run(f"unset NODE_INDEX; {stand_ins}; open_run")
    assert (got, words in out) == (code, True), out
    assert (node.run_dir / "attempts/5/state/job_id").exists() == (code == 0)
    assert (node.run_dir / "state/job_id").read_text() == ("7\n" if code == 0 else "5\n")


def test_the_ranks_of_an_mpi_step_fill_their_nodes_in_order(node: Node) -> None:
    assert node.run("rank_hosts n1,n2 2,1") == (0, "n1\nn1\nn2\n")


def test_files_get_the_addresses_of_the_allocation(node: Node) -> None:
    (node.run_dir / "files").mkdir()
    text = 'urls: ["${NODE_ADDR[0]}:6100", "${NODE_ADDR[1]}:6100"]\nother: ${HOME} \\n `x`\n'
    (node.run_dir / "files/a.yaml").write_text(text)
    assert node.run("bind_files") == (0, "")
    expected = text.replace("${NODE_ADDR[0]}", "127.0.0.1").replace("${NODE_ADDR[1]}", "127.0.0.2")
    assert (node.run_dir / "state/files/a.yaml").read_text() == expected


# what a node's event file says, exit code of the step (empty: it goes on), that of a worker (or only what its node
# says), then how the job ends
ENDED = '{"ts":1,"node":1,"event":"client_ended","code":7,"words":"the benchmark exited with 7: \\"no\\""}'
ENDED0 = '{"ts":1,"node":1,"event":"client_ended","code":0,"words":"the benchmark exited with 0: done"}'
EXITED = '{"ts":2,"node":1,"event":"exited","words":"agg-0.0 engine on n1 was killed by SIGKILL"}'
JOB_ENDS = [
    ("", "0", "", "completed", 0, "benchmark finished"),
    # a client that is content with failed requests ends before the step, which still stops its other processes
    (EXITED, "0", "", "failed", 1, "agg-0.0 engine on n1 was killed by SIGKILL"),
    (ENDED0, "0", "", "completed", 0, "benchmark finished"),
    (ENDED, "7", "", "failed", 1, 'the benchmark exited with 7: "no"'),
    ("", "1", "", "failed", 1, "step benchmark ended with exit code 1; see logs/benchmark.log"),
    (f"{ENDED}\n{EXITED}", "7", "", "failed", 1, "agg-0.0 engine on n1 was killed by SIGKILL"),
    (EXITED, "", "137", "failed", 1, "agg-0.0 engine on n1 was killed by SIGKILL"),
    # Slurm has not told of the step's end yet, but its node has
    (EXITED, "", "failed", "failed", 1, "agg-0.0 engine on n1 was killed by SIGKILL"),
]


@pytest.mark.parametrize(("events", "client", "worker", "state", "code", "cause"), JOB_ENDS)
def test_how_a_job_with_a_client_ends(
    node: Node, events: str, client: str, worker: str, state: str, code: int, cause: str
) -> None:
    """Steps end here by their files alone, as they do for the job."""
    if events:
        (node.run_dir / "events/node-1.jsonl").write_text(f"{events}\n")
    marker = "failed" if worker == "failed" else "step"
    files = {"benchmark.step": client, f"agg-0.{marker}": worker}
    ends = "".join(f'echo {it} >"$STATE/{name}";' for name, it in files.items() if it)
    stand_ins = f"start_step() {{ STEPS+=(agg-0 benchmark); {ends} }}; stop_steps() {{ :; }}; pause() {{ :; }}"
    got, out = node.run(f"unset NODE_INDEX; {stand_ins}; benchmark benchmark 0 client/benchmark.sh")
    assert got == code, out
    end = json.loads((node.run_dir / "state/end.json").read_text())
    assert end == {"state": state, "exit_code": code, "cause": cause}
    told = [json.loads(line)["event"] for line in (node.run_dir / "events/job.jsonl").read_text().splitlines()]
    assert told == ["serving", "client_started", "stopping", "job_ended"]


@pytest.mark.parametrize(
    ("before", "state", "code"),
    [
        ("SERVING=1 CLIENT=benchmark", "the time limit came before the benchmark ended", 1),
        ("SERVING=1", "served until its time limit", 0),
    ],
)
def test_the_time_limit_is_a_failure_while_a_client_runs(node: Node, before: str, state: str, code: int) -> None:
    got, _ = node.run(f"{before}; stop_steps() {{ :; }}; on_time_limit")
    assert got == code
    end = json.loads((node.run_dir / "state/end.json").read_text())
    assert (end["state"], end["cause"]) == ("time_limit", state)
