"""How the tests of single checks run one against a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from srtctl.checks.__main__ import main
from srtctl.checks.context import Limits

from .scenario import Scenario, running

ONE_LOOK = Limits(registration=0, kv_events=0, load=30, settle=0, poll=0.01)
DEPLOYMENT: list[Any] = [{"worker": "", "dp_rank": None}]


def ranks(*workers: str) -> list[Any]:
    return [{"worker": name, "dp_rank": rank} for name in workers for rank in (0, 1)]


def run_only(scenario: Scenario, folder: Path, name: str, limits: Limits = ONE_LOOK) -> Any:
    """The result of one check, as it stands in checks.json."""
    with running(scenario):
        main([*scenario.write(folder), "--only", name], limits)
    (check,) = json.loads((folder / "checks.json").read_text())["checks"]
    return check


def run_all(scenario: Scenario, folder: Path, *options: str) -> dict[str, Any]:
    """Check name -> its result, of everything that is planned."""
    with running(scenario):
        main([*scenario.write(folder), *options], ONE_LOOK)
    return {check["name"]: check for check in json.loads((folder / "checks.json").read_text())["checks"]}
