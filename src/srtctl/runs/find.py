"""From what a user types to a run directory."""

from __future__ import annotations

from pathlib import Path

from srtctl.diagnostics import did_you_mean
from srtctl.runs.create import run_number, run_stem
from srtctl.runs.layout import RunDir
from srtctl.runs.record import read_record


class RunNotFoundError(Exception):
    """No run matches; `hint` names near ones or says where they are listed."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def list_runs(output_dir: Path) -> list[Path]:
    """All run directories below `output_dir`, newest first."""
    if not output_dir.is_dir():
        return []
    runs = [p for p in output_dir.iterdir() if RunDir(p).is_run]
    return sorted(runs, key=lambda p: (_age_key(p), p.name), reverse=True)


def is_path(ref: str) -> bool:
    """Whether `ref` can only be meant as a path."""
    return "/" in ref or ref in (".", "..")


def find_run(ref: str, output_dir: Path, cwd: Path) -> Path:
    """The run directory that `ref` means. Raises RunNotFoundError.

    In this order: a path, the exact name of a run directory (in `output_dir`, then in `cwd`), a job id, a recipe's
    name, which means its latest run.
    """
    if is_path(ref):
        path = (cwd / Path(ref).expanduser()).resolve()
        if RunDir(path).is_run:
            return path
        raise RunNotFoundError(f"{ref} is not a run directory: it holds no plan.json", "`srtctl status` lists the runs")
    for folder in (output_dir, cwd):
        if RunDir(folder / ref).is_run:
            return (folder / ref).absolute()
    runs = list_runs(output_dir)
    if ref.isdigit():
        for run in runs:
            if (record := read_record(RunDir(run).record)) and record.job_id == ref:
                return run.absolute()
    stem = run_stem(ref)
    numbered = [(number, run) for run in runs if (number := run_number(run.name, stem)) is not None]
    if numbered:
        return max(numbered)[1].absolute()
    raise RunNotFoundError(f"no run `{ref}` in {output_dir}", _hint(ref, runs))


def _hint(ref: str, runs: list[Path]) -> str:
    if not runs:
        return "nothing was submitted from here yet: `srtctl apply RECIPE` does, `--cluster` names another profile"
    if ref.endswith((".yaml", ".yml")):
        return "that is a recipe; a run is named by its directory, its job id or its recipe's name"
    stems = {run.name.rpartition("-")[0] for run in runs}
    if begins := sorted(stem for stem in stems if ref and stem.startswith(ref)):
        return f"did you mean `{begins[0]}`?"
    near = did_you_mean(ref, stems | {run.name for run in runs})
    return near if near.startswith("did you mean") else f"the latest is `{runs[0].name}`; `srtctl status` lists all"


def _age_key(run: Path) -> float:
    """When it was submitted, else when its directory was made."""
    record = read_record(RunDir(run).record)
    return record.submitted_at if record else run.stat().st_mtime
