"""Options of `sbatch` that recipe and cluster profile may add (`sbatch_directives`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.cluster.load import LoadedCluster
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.model import Recipe

_PLACED = "it follows from the plan"
_WATCHED = "the job's supervision depends on it"

#: Options that decide whether the plan fits the job, and why nobody else sets them. All others may be replaced.
OWNED: Mapping[str, str] = {
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node"), _PLACED),
    **dict.fromkeys(("output", "error", "signal"), _WATCHED),
    "array": "one bundle is one run",
    "wrap": "the job is job.sbatch",
}


def check_sbatch(recipe: Recipe, cluster: LoadedCluster) -> Iterator[Diagnostic]:
    """A finding for each directive of recipe or profile that is srtctl's."""
    theirs = cluster.profile.default_sbatch_directives if cluster.profile is not None else {}
    for base, table in (("sbatch_directives", recipe.sbatch_directives), ("default_sbatch_directives", theirs)):
        for name in table:
            if name in OWNED:
                path, span = f"{base}.{name}", None
                if table is theirs:
                    path, span = f"cluster.{path}", cluster.span(path)
                message, hint = f"sbatch's `--{name}` is set by srtctl", f"remove it: {OWNED[name]}"
                yield Diagnostic("plan/owned-sbatch-directive", message, path, span, hint)
