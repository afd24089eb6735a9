"""`srtctl validate`: many recipes at once, for a look before a commit and for CI."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.common import AllowUnsupportedOption, ClusterOption
from srtctl.cli.exits import USAGE

if TYPE_CHECKING:
    from srtctl.diagnostics import Diagnostic
    from srtctl.plan.validate import Validated


class ValidateFormat(StrEnum):
    """Values of --output; `github` is annotations of a GitHub workflow."""

    text = "text"
    json = "json"
    github = "github"


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Recipes, and folders: every .yaml and .yml below them, without hidden ones and cluster profiles.",
            metavar="PATHS...",
            show_default=False,
        ),
    ],
    output: Annotated[
        ValidateFormat, typer.Option("--output", "-o", "--format", help="How to print; `github` annotates a workflow.")
    ] = ValidateFormat.text,
    cluster: ClusterOption = None,
    allow_unsupported: AllowUnsupportedOption = False,
) -> None:
    """Load and plan recipes, and say what is wrong with each. Exits 2 when one is bad; submits nothing."""
    from srtctl.cluster.load import find_profile, load_cluster
    from srtctl.plan.validate import validate

    profile = load_cluster(find_profile(cluster, Path.cwd(), os.environ))
    results = validate(paths, profile, allow_unsupported=allow_unsupported)
    seen = _PRINT[output](results)
    if not all(result.ok for result in seen):
        raise typer.Exit(USAGE)


def _print_text(results: Iterable[Validated]) -> list[Validated]:
    from srtctl.cli.diagnostics import format_text, in_order, summary
    from srtctl.cli.terminal import color_enabled
    from srtctl.cli.variants import amount

    color, seen = color_enabled(), []
    for result in results:
        seen.append(result)
        typer.echo(f"{'ok  ' if result.ok else 'FAIL'} {result.name}{amount(result.plan)}")
        found = in_order(item for item in result.diagnostics if not _general(item))
        typer.echo("".join(f"  {line}\n" for line in format_text(found, color=color).splitlines()[:-1]), nl=False)
    general = _generals(seen)
    typer.echo("".join(f"{line}\n" for line in format_text(general, color=color).splitlines()[:-1]), nl=False)
    files = {result.file for result in seen}
    bad = len({result.file for result in seen if not result.ok})
    every = [item for result in seen for item in result.diagnostics if not _general(item)] + general
    counts = f" ({summary(every)})" if every else ""
    several = f" with {len(seen)} recipes" if len(seen) != len(files) else ""
    typer.echo(f"{len(files)} file{'s' * (len(files) != 1)}{several}, {f'{bad} bad' if bad else 'all good'}{counts}")
    return seen


def _print_json(results: Iterable[Validated]) -> list[Validated]:
    seen = list(results)
    typer.echo(json.dumps([result.as_dict() for result in seen], indent=2, ensure_ascii=False))
    return seen


def _print_github(results: Iterable[Validated]) -> list[Validated]:
    from srtctl.cli.diagnostics import print_diagnostics

    seen = list(results)
    every = [item for result in seen for item in result.diagnostics if not _general(item)]
    print_diagnostics([*every, *_generals(seen)], stream=sys.stdout, fmt="github")
    return seen


_PRINT = {
    ValidateFormat.text: _print_text,
    ValidateFormat.json: _print_json,
    ValidateFormat.github: _print_github,
}


def _general(item: Diagnostic) -> bool:
    """A warning about no place in a file (what is assumed without a profile) holds for many: said once, at the end."""
    return item.span is None and item.severity == "warning"


def _generals(seen: list[Validated]) -> list[Diagnostic]:
    return list(dict.fromkeys(item for result in seen for item in result.diagnostics if _general(item)))
