"""Further options of `srun` for the workers' steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.diagnostics import Collector
from srtctl.plan.containers import ContainerRuntime
from srtctl.recipe.model import Recipe

_PLACED = "the plan says where each process runs"
_WATCHED = "the job's supervision depends on it"
_OWN_WAY = "the job starts each step's script itself"
_ENTERED = "it follows from the recipe's images and mounts"

#: Options that the job gives each step itself, and why nobody else can.
OWNED: Mapping[str, str] = {
    **dict.fromkeys(("nodes", "N", "nodelist", "w", "nodefile", "F", "exclude", "x", "relative", "r"), _PLACED),
    **dict.fromkeys(("ntasks", "n", "ntasks-per-node", "distribution", "m"), _PLACED),
    **dict.fromkeys(("input", "i", "output", "o", "error", "e", "job-name", "J", "wait", "W"), _WATCHED),
    **dict.fromkeys(("kill-on-bad-exit", "K"), _WATCHED),
    **dict.fromkeys(("export", "export-file"), "the step's script takes its variables from the job; use `environment`"),
    **dict.fromkeys(("multi-prog", "pty", "test-only", "jobid", "async", "A"), _OWN_WAY),
    **dict.fromkeys(("exclusive", "exact"), "steps share their nodes"),
    **dict.fromkeys(("container-image", "container-mounts", "container-name", "container-env"), _ENTERED),
}


def resolve_srun_options(
    recipe: Recipe, runtime: ContainerRuntime, found: Collector
) -> Mapping[str, Mapping[str, str | None]]:
    """The options of each role's steps, the role's over the recipe's. What belongs to pyxis is left out without it."""
    left_out: list[str] = []
    for path, table in _tables(recipe):
        for name in table:
            if name in OWNED:
                found.error(
                    "plan/owned-srun-option",
                    f"srun's `--{name}` is set by srtctl",
                    path=f"{path}.{name}",
                    hint=f"remove it: {OWNED[name]}",
                )
            elif _of_pyxis(name) and runtime != "pyxis":
                left_out.append(f"{path}.{name}")
    if left_out:
        found.warning(
            "plan/pyxis-option",
            f"an option of pyxis is left out, because container runtime is `{runtime}`: {', '.join(left_out)}",
            path=left_out[0],
            hint="set `container_runtime: pyxis` in the cluster profile",
        )
    tables = {name: {**recipe.srun_options, **role.srun_options} for name, role in recipe.roles.items()}
    if runtime == "pyxis":
        return tables
    return {name: {k: v for k, v in table.items() if not _of_pyxis(k)} for name, table in tables.items()}


def _of_pyxis(name: str) -> bool:
    return name.removeprefix("no-").startswith("container-")


def _tables(recipe: Recipe) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    yield "srun_options", recipe.srun_options
    for name, role in recipe.roles.items():
        yield f"roles.{name}.srun_options", role.srun_options
