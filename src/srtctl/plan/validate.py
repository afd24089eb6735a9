"""Many recipes, each loaded and planned: which files, and what is wrong with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srtctl.cluster.load import LoadedCluster
from srtctl.cluster.paths import PROFILE_NAME
from srtctl.diagnostics import Diagnostic
from srtctl.plan.model import Plan
from srtctl.plan.variants import plan_variants

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Validated:
    """One recipe and what was found in it; `plan` is a summary of what it would run, None where that cannot be said.

    `variant` says which of several recipes of the file; it is "" where there is one.
    """

    file: str
    plan: Mapping[str, Any] | None
    diagnostics: tuple[Diagnostic, ...]
    variant: str = ""

    @property
    def name(self) -> str:
        """What a user would type to mean this recipe."""
        return f"{self.file}:{self.variant}" if self.variant else self.file

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(item.severity == "error" for item in self.diagnostics)

    def as_dict(self) -> dict[str, Any]:
        """As JSON-ready data; `variant` and `plan` are left out where there is none."""
        out: dict[str, Any] = {"file": self.file, "ok": self.ok}
        if self.variant:
            out["variant"] = self.variant
        if self.plan is not None:
            out["plan"] = dict(self.plan)
        return out | {"diagnostics": [item.as_dict() for item in self.diagnostics]}


def validate(paths: Iterable[Path], cluster: LoadedCluster, *, allow_unsupported: bool = False) -> Iterator[Validated]:
    """Load and plan every recipe in the files that `paths` name (see `recipe_files`), one after the other; never raises for a file.

    What is wrong with the profile comes first, as a file of its own, and is not repeated: the recipes are planned with
    what holds of it. A profile that cannot be read is all there is.
    """
    if cluster.diagnostics:
        yield Validated(str(cluster.path), None, tuple(cluster.diagnostics))
    if cluster.profile is None:
        return
    profile = replace(cluster, diagnostics=[])
    for found in recipe_files(paths):
        if isinstance(found, Validated):
            yield found
            continue
        for item in plan_variants(found, profile, allow_unsupported=allow_unsupported):
            yield Validated(str(found), summary(item.plan) if item.plan else None, item.diagnostics, item.name)


def recipe_files(paths: Iterable[Path]) -> Iterator[Path | Validated]:
    """The files to validate, each once: a file as named; of a folder every *.yaml and *.yml at any depth, sorted.

    In a folder, what is hidden (`.github`) and cluster profiles (`srtslurm.yaml`) are passed over. Any other YAML there
    counts as a recipe: one that lost its `schema` must not slip through. A folder that cannot be read or holds no
    recipe is a finding.
    """
    seen: set[Path] = set()
    for path in paths:
        try:
            files = list(_below(path)) if path.is_dir() else [path]
        except OSError as error:
            message = f"{error.filename} cannot be read: {error.strerror}"
            yield _finding(path, Diagnostic("yaml/not-readable", message, hint="check its permissions"))
            continue
        if not files:
            hint = f"name a folder with .yaml or .yml files; hidden ones and {PROFILE_NAME} do not count"
            yield _finding(path, Diagnostic("validate/empty", f"there is no recipe in {path}", hint=hint))
        for file in files:
            if file not in seen:
                seen.add(file)
                yield file


def summary(plan: Plan) -> dict[str, Any]:
    """What a plan amounts to: its name, nodes, GPUs in use, and the number of workers by role."""
    return {
        "name": plan.name,
        "nodes": plan.nodes,
        "gpus": sum(len(process.gpus) for worker in plan.workers for process in worker.processes),
        "workers": dict(Counter(worker.role for worker in plan.workers)),
    }


def _finding(path: Path, found: Diagnostic) -> Validated:
    return Validated(str(path), None, (found,))


def _below(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink():  # a link may lead back up
                yield from _below(entry)
        elif entry.suffix in SUFFIXES and entry.name != PROFILE_NAME:
            yield entry
