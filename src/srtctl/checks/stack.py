"""`python3 …/checks/stack.py PLAN [PYTHON]`: does the installed Dynamo have the modules and flags that the plan uses?

Run on a node before anything is started, with the Python of the sidecars; or on the machine that submits, with a
`PYTHON` there that holds the same Dynamo. Only sidecars and frontends are asked: their `--help` takes a second, an
engine's takes as long as its imports. A capability that is missing is one sentence on stdout.

It is run by its path and imports nothing of srtctl: whom it asks sees the environment of the run, with its PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

EXIT_COMPLETE, EXIT_MISSING, EXIT_UNKNOWN = 0, 4, 5
HELP_SECONDS = 5.0
NEEDED = "what srtctl itself writes needs Dynamo 1.6.1 or newer"
#: What to say instead about a flag that is in no release.
UNRELEASED: Mapping[str, str] = {
    "--advertise-grpc-endpoint": "direct dispatch is in no Dynamo release (ai-dynamo 1.6.1 has none): use an image "
    "whose Dynamo has it, or set `direct_dispatch: false`",
}
OWN_PROGRAM = "use an image that has it, or name another in `sidecar.binary`"
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Use:
    """A Dynamo program that the plan runs (`python3 -m MODULE`, or one of its own), for whom first and with which
    environment there (its PATH or PYTHONPATH may lead to it); and each of its flags with who uses it first."""

    command: tuple[str, ...]
    owner: str
    flags: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The module, or the program."""
        return self.command[-1]


def uses(plan: Mapping[str, Any]) -> Iterator[Use]:
    """Each Dynamo program that the plan runs, once, with all its flags."""
    commands = [
        (frontend["name"], frontend["argv"], frontend["env"])
        for frontend in plan["frontends"]
        if _is_module(frontend["argv"])
    ]
    for worker in plan["workers"]:
        for process in worker["processes"]:
            if sidecar := process["sidecar"]:
                commands.append((f"the sidecar of {process['name']}", sidecar["argv"], sidecar["env"]))
    found: dict[tuple[str, ...], Use] = {}
    for owner, argv, env in commands:
        command = tuple(argv[:3] if _is_module(argv) else argv[:1])
        flags = {word.partition("=")[0]: owner for word in argv[len(command) :] if word.startswith("--")}
        known = found.get(command, Use(command, owner, {}, env))
        found[command] = replace(known, flags={**flags, **known.flags})
    return iter(found.values())


def _is_module(argv: Sequence[str]) -> bool:
    return len(argv) > 2 and argv[1] == "-m" and argv[2].startswith("dynamo.")


def missing(use: Use, code: int, said: str) -> list[str]:
    """What `--help` shows to be missing, a sentence each; `said` is all that it printed."""
    if code and re.search(r"No module named|Error while finding module", said):
        return [f"it has no module {use.name}, which {use.owner} runs; {NEEDED}"]
    if code:
        return []
    unknown = sorted(set(use.flags) - set(_FLAG.findall(said)))
    return [
        f"its {use.name} has no {flag}, which {use.flags[flag]} uses; {UNRELEASED.get(flag, NEEDED)}"
        for flag in unknown
    ]


def probe(use: Use, *, in_place: bool) -> list[str] | None:
    """What is missing of `use`; None where `--help` did not answer in time, or could not be started.

    Only `in_place`, where it would run, does it mean something that there is no such command.
    """
    try:
        done = subprocess.run(
            [*use.command, "--help"],
            env={**os.environ, **use.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HELP_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        if not in_place:
            return None
        there_is = f"there is no command {use.command[0]}, which {use.owner} runs"
        return [f"{there_is}; {NEEDED if use.command[1:] else OWN_PROGRAM}"]
    except (OSError, subprocess.TimeoutExpired):
        return None
    return missing(use, done.returncode, done.stdout.decode(errors="replace"))


def dynamo_version() -> str:
    """`Dynamo 1.6.1`, as installed for this Python."""
    try:
        return f"Dynamo {metadata.version('ai-dynamo')}"
    except metadata.PackageNotFoundError:
        return "Dynamo of unknown version"


def another_version(plan: Mapping[str, Any]) -> str:
    """That the installed Dynamo is not the one that the recipe's `identity` names, in words; empty if it is, or names none."""
    wanted = plan["identity"].get("frameworks", {}).get("dynamo")
    if wanted is None or dynamo_version() == f"Dynamo {wanted}":
        return ""
    return f"note: the installed {dynamo_version()} is not the one that the recipe's identity names, {wanted}"


def main(argv: Sequence[str]) -> int:
    """Print what is missing. Returns 0: nothing, 4: something, 5: a module could not be asked and nothing is missing.

    Where nothing is missing it prints whether the version is another one than the recipe says: only a note.
    """
    plan = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    wanted = list(uses(plan))
    if python := argv[1:]:
        wanted = [replace(use, command=(python[0], *use.command[1:])) if use.command[1:] else use for use in wanted]
    with ThreadPoolExecutor(len(wanted) or 1) as pool:
        found = list(pool.map(partial(probe, in_place=not python), wanted))
    if lacking := [words for each in found for words in each or ()]:
        print(f"the installed {dynamo_version()} lacks what the plan uses: {'; '.join(lacking)}")
        return EXIT_MISSING
    if note := another_version(plan):
        print(note)
    return EXIT_UNKNOWN if None in found else EXIT_COMPLETE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
