"""Finding the cluster profile, and reading it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from srtctl.cluster.model import ClusterProfile
from srtctl.cluster.paths import PROFILE_NAME, config_dir, sandbox_dir, sandbox_name
from srtctl.diagnostics import Diagnostic, Severity, Span
from srtctl.reading.document import YamlDocument, read_yaml, with_source_text
from srtctl.reading.validation import explain_errors, shown

NO_PROFILE = "none"

# Known keys that are not built yet: whether a run would go wrong without them, and why they are not used.
NOT_BUILT: dict[str, tuple[Severity, str]] = {
    "ssh": ("error", "jobs are submitted from this machine"),
    "srtctl_root": ("warning", "srtctl needs no copy of itself on the cluster"),
    "reporting": ("warning", "results stay in the run directory"),
    "cloud": ("warning", "results stay in the run directory"),
}
_TEXT_TABLES = ("env.*", "default_sbatch_directives.*")


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """A cluster profile and where it came from.

    `path` is None when there is none; then `profile` holds the defaults. A wrong key is left out of `profile` and
    reported: the others hold. `profile` is None when the file could not be read at all.
    """

    profile: ClusterProfile | None
    path: Path | None
    diagnostics: list[Diagnostic]
    document: YamlDocument | None = None

    def span(self, path: str) -> Span | None:
        """Where the value at the dotted `path` stands in the profile; None without a file."""
        return self.document.span(self.document.find(path)) if self.document else None


def find_profile(option: str | None, cwd: Path, env: Mapping[str, str] = os.environ) -> Path | None:
    """The profile to use (docs/architecture.md, last section), None for no profile.

    `option` is `--cluster`: a file or `none`. What the user named is returned whether or not it exists, so that
    reading it tells; what is only looked for must exist.
    """
    if named := option or env.get("SRTCTL_CLUSTER"):
        return None if named == NO_PROFILE else cwd / named
    candidates = [
        *(folder / PROFILE_NAME for folder in (cwd, *cwd.parents)),
        sandbox_dir(sandbox_name(env), env) / PROFILE_NAME,
        config_dir(env) / PROFILE_NAME,
    ]
    return next((path for path in candidates if path.is_file()), None)


def load_cluster(path: Path | None) -> LoadedCluster:
    """Read the profile at `path`, or take the defaults if it is None; never raises for what is in the file."""
    if path is None:
        return LoadedCluster(ClusterProfile(), None, [])
    document = read_yaml(path)
    found = list(document.diagnostics)
    if not isinstance(document.data, dict):
        if document.read:
            message = f"a cluster profile is a mapping, not {shown(document.data)}"
            found.append(Diagnostic("cluster/type", message, span=document.span(), hint="begin with `cluster: NAME`"))
        return LoadedCluster(None, path, found, document)
    data = with_source_text(document, _TEXT_TABLES)
    for key in NOT_BUILT.keys() & data.keys():
        if data.pop(key) not in (None, False):
            found.append(_not_built(document, key))
    unread = {item.span for item in found}
    profile, problems = _validate(replace(document, data=data))
    found += [item for item in problems if item.span not in unread]
    return LoadedCluster(profile, path, sorted(found, key=lambda item: (item.span is None, item.span)), document)


def _not_built(document: YamlDocument, key: str) -> Diagnostic:
    severity, reason = NOT_BUILT[key]
    span = document.span((key,), key=True)
    hint = "remove it from the profile" if severity == "error" else ""
    message = f"`{key}` is known but not built yet, it is left out: {reason}"
    return Diagnostic("cluster/not-built", message, key, span, hint, severity)


def _validate(document: YamlDocument) -> tuple[ClusterProfile, list[Diagnostic]]:
    try:
        return ClusterProfile.model_validate(document.data), []
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors(include_url=False)}
        problems = explain_errors(error, "cluster", ClusterProfile, document)
    rest = {key: value for key, value in document.data.items() if key not in wrong}
    return ClusterProfile.model_validate(rest), problems
