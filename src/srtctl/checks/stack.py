"""`python3 -m srtctl.checks.stack PLAN`: does the installed Dynamo have the modules and flags that the plan uses?

Run on a node before anything is started, with the Python of the sidecars. Only sidecars and frontends are asked: their
`--help` takes a second, an engine's takes as long as its imports. A capability that is missing is one sentence on stdout.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srtctl.checks.engine_info import dynamo_version

EXIT_COMPLETE, EXIT_MISSING, EXIT_UNKNOWN = 0, 4, 5
HELP_SECONDS = 5.0
NEEDED = "Dynamo 1.6.1 or newer"
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Use:
    """A module that the plan runs, by which Python, with which flags, for whom."""

    python: str
    module: str
    flags: frozenset[str]
    owner: str


def uses(plan: Mapping[str, Any]) -> Iterator[Use]:
    """Each Dynamo module that the plan runs, once, with all its flags."""
    commands = [(f"{frontend['name']}", frontend["argv"]) for frontend in plan["frontends"]]
    for worker in plan["workers"]:
        for process in worker["processes"]:
            if process["sidecar"]:
                commands.append((f"the sidecar of {process['name']}", process["sidecar"]["argv"]))
    found: dict[tuple[str, str], Use] = {}
    for owner, argv in commands:
        if len(argv) > 2 and argv[1] == "-m" and argv[2].startswith("dynamo."):
            flags = frozenset(word.partition("=")[0] for word in argv[3:] if word.startswith("--"))
            key = argv[0], argv[2]
            known = found.get(key)
            found[key] = Use(*key, flags | (known.flags if known else frozenset()), known.owner if known else owner)
    return iter(found.values())


def missing(use: Use, code: int, said: str) -> str:
    """What `--help` shows to be missing, in words; empty if nothing is. `said` is all that it printed."""
    if code and re.search(r"No module named|Error while finding module", said):
        return f"it has no module {use.module}, which {use.owner} runs"
    if code:
        return ""
    unknown = sorted(use.flags - set(_FLAG.findall(said)))
    return f"its {use.module} has no {', '.join(unknown)}, which {use.owner} uses" if unknown else ""


def probe(use: Use) -> str | None:
    """What is missing of `use`; None where `--help` did not answer in time or cannot be started."""
    try:
        done = subprocess.run(
            [use.python, "-m", use.module, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return missing(use, done.returncode, done.stdout.decode(errors="replace"))


def main(argv: Sequence[str]) -> int:
    """Print what is missing. Returns 0: nothing, 4: something, 5: a module could not be asked and nothing is missing."""
    wanted = list(uses(json.loads(Path(argv[0]).read_text(encoding="utf-8"))))
    with ThreadPoolExecutor(len(wanted) or 1) as pool:
        found = list(pool.map(probe, wanted))
    lacking = [words for words in found if words]
    if lacking:
        needed = f"what srtctl itself writes needs {NEEDED}"
        print(f"the installed {dynamo_version()} lacks what the plan uses: {'; '.join(lacking)}; {needed}")
        return EXIT_MISSING
    return EXIT_UNKNOWN if None in found else EXIT_COMPLETE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
