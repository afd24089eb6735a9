"""Plan to a directory of readable files."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from srtctl.diagnostics import Diagnostic, DiagnosticError
from srtctl.plan.model import Plan
from srtctl.plan.serial import plan_json
from srtctl.render.containers import check_run_dir
from srtctl.render.scripts import COMMAND, client_command, client_script, job_script, single_script, worker_script

#: The machinery, the same in every bundle: what both sides share, the job's side, a node's side.
STATIC = ("runtime.sh", "job.sh", "steps.sh", "node.sh")

#: Slurm's default `max_script_size`; a job script above it is refused by sbatch.
MAX_SCRIPT_BYTES = 4 * 1024 * 1024


def bundle_files(plan: Plan, run_dir: str, recipe_yaml: str) -> dict[str, str]:
    """Every file of the bundle by relative path. `run_dir` is the absolute folder that the job will find it in.

    Raises DiagnosticError when the job script would be too large for Slurm, or the folder cannot be mounted.
    """
    check_run_dir(plan, run_dir)
    out = {name: files("srtctl.render").joinpath(name).read_text() for name in STATIC} | {
        "job.sbatch": job_script(plan, run_dir),
        "plan.json": plan_json(plan),
        "recipe.yaml": recipe_yaml,
        "claims.tsv": "".join(f"{c.node}\t{c.first}\t{c.count}\t{c.purpose}\t{c.owner}\n" for c in plan.claims),
    }
    out |= {f"services/{s.name}.sh": single_script(s, "service", f"{s.name} on node {s.node}") for s in plan.services}
    out |= {
        f"frontends/{f.name}.sh": single_script(f, "frontend", f"{f.name} on node {f.node}") for f in plan.frontends
    }
    out |= {f"workers/{w.name}.sh": worker_script(w) for w in plan.workers}
    if plan.client:
        out |= {
            f"client/{plan.client.name}.sh": client_script(plan.client),
            f"client/{COMMAND}": client_command(plan.client),
        }
    out |= {f"files/{name}": text for name, text in plan.files.items()}
    out |= _checks_package()
    if len(out["job.sbatch"].encode()) > MAX_SCRIPT_BYTES:
        raise DiagnosticError(
            [
                Diagnostic(
                    "render/script-size",
                    "job.sbatch would be above 4 MiB, Slurm's limit",
                    hint="use fewer, larger workers",
                )
            ]
        )
    return out


def write_bundle(plan: Plan, directory: Path, recipe_yaml: str, *, run_dir: str | None = None) -> None:
    """Write the bundle to `directory` (made if need be); job.sbatch comes last, so a bundle that has one is complete.

    `run_dir`, absolute, is where the bundle will lie on the cluster when that is another folder.
    """
    contents = bundle_files(plan, run_dir or str(directory.resolve()), recipe_yaml)
    for name in sorted(contents, key=lambda n: n == "job.sbatch"):
        path = directory / PurePosixPath(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents[name], encoding="utf-8")
        if name.endswith((".sh", ".sbatch")):
            path.chmod(0o755)
    for folder in ("logs", "events", "state"):
        (directory / folder).mkdir(exist_ok=True)


def _checks_package() -> dict[str, str]:
    """The checks travel with the bundle: compute nodes need no srtctl, only a Python."""
    root = files("srtctl")
    out = {"lib/srtctl/__init__.py": root.joinpath("__init__.py").read_text()}

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.is_dir() and entry.name != "__pycache__":
                walk(entry, f"{prefix}/{entry.name}")
            elif entry.name.endswith(".py"):
                out[f"{prefix}/{entry.name}"] = entry.read_text()

    walk(root.joinpath("checks"), "lib/srtctl/checks")
    return out
