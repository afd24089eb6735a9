"""What holds for the plan of every public recipe, computed here anew from what its author wrote and from the commands.

Nothing here asks a backend: sizes are read off the command line (TensorRT-LLM: its file), counts off the v1 YAML.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from srtctl.plan.model import Process
from srtctl.render.bundle import STATIC, bundle_files
from tests.support import needs_corpus
from tests.unit.plan.corpus import MODES, Case, cases

pytestmark = [needs_corpus, pytest.mark.process, pytest.mark.xdist_group("corpus-properties")]

#: Flags that an author may write and srtctl says in its own way, by engine and role (*: any): what becomes of each.
OWNED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("sglang", "*"): {
        "model-path": "v1 mounted the model at /model; ours is `model.path`",
    },
    ("sglang", "decode"): {
        "disaggregation-bootstrap-port": "decode binds no bootstrap server; each request names that of its prefill worker",
    },
    ("vllm", "*"): {
        "data-parallel-rpc-port": "inside one node nobody binds it: two workers there may write the same",
    },
}

#: A port of another process: the flag or variable that holds it, and the one that says where.
PEERS = {"master-port": "master-addr", "data-parallel-rpc-port": "data-parallel-address", "MASTER_PORT": "MASTER_ADDR"}

SIZES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "sglang": {"tp": ("tensor-parallel-size", "tp-size", "tp"), "pp": ("pipeline-parallel-size", "pp-size", "pp"),
               "dp": ("data-parallel-size", "dp-size", "dp")},
    "vllm": {"tp": ("tensor-parallel-size",), "pp": ("pipeline-parallel-size",), "dp": ("data-parallel-size",),
             "cp": ("prefill-context-parallel-size",)},
    "trtllm": {"tp": ("tensor-parallel-size",), "pp": ("pipeline-parallel-size",), "cp": ("context-parallel-size",)},
}  # fmt: skip


def failing(check: Any) -> list[str]:
    """What `check` finds in each case, with the case's name; the first few are enough to see."""
    return [f"{case.name}: {words}" for case in cases() for words in check(case)][:10]


def kebab(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def flags_of(argv: Sequence[str]) -> dict[str, list[str]]:
    """`--a 1 2 --b` as `{a: [1, 2], b: []}`; the command before the first flag is left out."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in argv:
        if word.startswith("--"):
            values = found.setdefault(kebab(word), [])
        else:
            values.append(word)
    return found


def engine_file(case: Case, role: str) -> Mapping[str, Any]:
    """What the role's workers read, for engines that are configured by a file."""
    return _read(case.plan.files.get(f"{case.engine}-{role}.yaml", "{}"))


@cache
def _read(text: str) -> Mapping[str, Any]:
    return {kebab(key): value for key, value in yaml.load(text, yaml.CSafeLoader).items()}


def test_there_is_something_to_look_at() -> None:
    engines = Counter(case.engine for case in cases())
    assert set(engines) >= set(SIZES)
    assert sum(engines.values()) > 1500


def test_a_gpu_has_one_owner() -> None:
    def check(case: Case) -> Iterator[str]:
        owners = Counter((process.node, gpu) for _, process in case.processes() for gpu in process.gpus)
        yield from (f"GPU {gpu} of node {node} has {n} owners" for (node, gpu), n in owners.items() if n > 1)
        size = case.table("resources").get("gpus_per_node")
        yield from (f"node {node} has no GPU {gpu}" for node, gpu in owners if size and gpu >= int(size))

    assert not failing(check)


def test_claims_on_a_node_are_disjoint() -> None:
    def check(case: Case) -> Iterator[str]:
        ports = Counter((c.node, port) for c in case.plan.claims for port in range(c.first, c.first + c.count))
        yield from (f"port {port} of node {node} is claimed {n} times" for (node, port), n in ports.items() if n > 1)

    assert not failing(check)


_NODE = re.compile(r"\$\{NODE_ADDR\[(\d+)\]\}")
_AT = re.compile(rf"(?:{_NODE.pattern}|127\.0\.0\.1|0\.0\.0\.0|tcp://\*|localhost):(\d+)")


def ports_of(node: int, argv: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """(node, port, where it stands) for each port that a command or its environment names."""
    for text in (*argv, *env.values()):
        for at, port in _AT.findall(text):
            yield int(at) if at else node, int(port), text
    given = {**env, **{flag: values[0] for flag, values in flags_of(argv).items() if values}}
    for name, value in given.items():
        if re.search(r"(^|-)port$|_PORT$", name) and value.isdecimal():
            at = _NODE.fullmatch(given.get(PEERS.get(name, ""), ""))
            yield int(at[1]) if at else node, int(value), name


def test_every_port_in_a_command_is_claimed_on_its_node() -> None:
    def check(case: Case) -> Iterator[str]:
        plan = case.plan
        claimed = {(c.node, port) for c in plan.claims for port in range(c.first, c.first + c.count)}
        found = [use for s in (*plan.services, *plan.frontends) for use in ports_of(s.node, s.argv, s.env)]
        found += ports_of(plan.client.node, (), plan.client.env) if plan.client else []
        for _, process in case.processes():
            found += ports_of(process.node, process.argv, process.env)
            if process.sidecar:
                found += ports_of(process.node, process.sidecar.argv, process.sidecar.env)
        found += [(int(at), int(port), "files") for text in plan.files.values() for at, port in _AT.findall(text) if at]
        yield from (f"{port} on node {node} ({where})" for node, port, where in found if (node, port) not in claimed)

    assert not failing(check)


def test_parallel_sizes_make_up_the_gpus_of_a_worker() -> None:
    def check(case: Case) -> Iterator[str]:
        for worker in case.plan.workers:
            given: Mapping[str, Any] = {**flags_of(worker.processes[0].argv), **engine_file(case, worker.role)}
            sizes = {
                letter: int(value[0] if isinstance(value, list) else value)
                for letter, names in SIZES.get(case.engine, {}).items()
                for name in names
                if (value := given.get(name)) is not None
            }
            needed = 1
            for letter, size in sizes.items():
                shared = letter == "dp" and "enable-dp-attention" in given
                needed *= 1 if shared else size
            gpus = sum(len(process.gpus) for process in worker.processes)
            if case.engine in SIZES and needed != gpus:
                yield f"{worker.name}: {sizes} is {needed}, not {gpus}"
            written = case.table("resources").get(f"gpus_per_{worker.role}")
            if written is not None and int(written) != gpus:
                yield f"{worker.name} has {gpus} GPUs, not {written}"

    assert not failing(check)


def test_the_job_has_the_nodes_that_the_recipe_counts() -> None:
    def check(case: Case) -> Iterator[str]:
        resources = case.table("resources")
        wanted = sum(int(resources.get(f"{role}_nodes") or 0) for role in MODES)
        wanted += case.table("infra").get("etcd_nats_dedicated_node") is True
        if case.plan.nodes != wanted:
            yield f"{case.plan.nodes} nodes, not {wanted}"
        for role in MODES:
            count = sum(worker.role == role for worker in case.plan.workers)
            if (written := resources.get(f"{role}_workers")) is not None and count != int(written):
                yield f"{count} {role} workers, not {written}"

    assert not failing(check)


def as_words(value: Any) -> list[str]:
    """A flag's value as a command line has it."""
    if value is True or value is None:
        return []
    if isinstance(value, list):
        return [word for item in value for word in as_words(item)]
    return [str(value)]


def says(given: list[str] | None, value: Any) -> bool:
    """Whether a command that gives a flag these words (None: not at all) says what the author wrote."""
    if value is False:
        return given is None
    if given is None:
        return False
    if isinstance(value, Mapping):
        return len(given) == 1 and json.loads(given[0]) == value
    return given == as_words(value)


def says_at_least(given: list[str] | None, text: str) -> bool:
    """Whether a command's mapping holds what the author's does, both in JSON."""
    said: dict[str, Any] = json.loads(given[0]) if given else {}
    return bool(said | json.loads(text) == said)


def missing_flags(case: Case, role: str, process: Process) -> Iterator[tuple[str, str]]:
    """What the author wrote for a role and its process is not told, as (flag, what is said instead)."""
    given, config = flags_of(process.argv), engine_file(case, role)
    for key, value in case.args(role).items():
        flag = kebab(key)
        if case.engine == "trtllm":
            if flag not in config or config[flag] != value:
                yield flag, f"{value!r} is {config.get(flag)!r} in the engine's file"
        elif not (says_at_least if flag == "kv-events-config" else says)(given.get(flag), value):
            yield flag, f"{value!r} is {given.get(flag)}"


def test_every_flag_that_the_author_wrote_is_in_the_command() -> None:
    """And each row of OWNED is there because some recipe needs it."""
    needed = set()

    def check(case: Case) -> Iterator[str]:
        for worker, process in case.processes():
            for flag, words in missing_flags(case, worker.role, process):
                row = next(
                    (row for row in ((case.engine, "*"), (case.engine, worker.role)) if flag in OWNED.get(row, {})),
                    None,
                )
                needed.add((row, flag))
                if row is None:
                    yield f"{process.name}: {flag}: {words}"

    assert not failing(check)
    assert needed == {(row, flag) for row, flags in OWNED.items() for flag in flags}


def test_every_variable_that_the_author_wrote_is_in_the_environment() -> None:
    def check(case: Case) -> Iterator[str]:
        for worker, process in case.processes():
            for name, value in case.table("backend", f"{MODES[worker.role]}_environment").items():
                if process.env.get(name) != str(value):
                    yield f"{process.name}: {name}: {value!r} is {process.env.get(name)!r}"

    assert not failing(check)


def shape(script: str) -> str:
    """A script without what no shell looks at: which characters its plain words consist of, and lines that repeat."""
    plain = (
        re.sub(r"[A-Za-z0-9_./:,@%+-]+", "x", line) if line.startswith("  ") else line for line in script.splitlines()
    )
    return "\n".join(line for line, _ in groupby(re.sub(r"\d+", "0", line) for line in plain))


@cache
def scripts() -> tuple[str, ...]:
    """One script of each shape, of those that the bundles of all recipes hold; what is the same in every bundle, once."""
    shapes: dict[str, str] = {}
    for case in cases():
        for name, text in bundle_files(case.plan, "/shared/runs/example-1", "").items():
            if name.endswith((".sh", ".sbatch")):
                shapes.setdefault(text if name in STATIC else shape(text), text)
    return tuple(shapes.values())


def test_every_bundle_passes_the_shell_and_shellcheck(tmp_path: Path) -> None:
    """Of scripts that differ in the letters and digits of plain words alone, or in how often a line repeats, one is read:
    what bash and shellcheck judge is the quoting and the structure. Of 17,849 scripts 6,675 are different, and have 900
    shapes; shellcheck takes some 30 ms a script."""
    files = [tmp_path / f"{number}.sh" for number in range(len(scripts()))]
    for file, text in zip(files, scripts(), strict=True):
        file.write_text(text)
    parsed = ["bash", "-c", 'for file; do bash -n "$file" || exit; done', "bash", *map(str, files)]
    for command in (parsed, ["shellcheck", *map(str, files)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[:4000]
