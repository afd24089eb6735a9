"""`srtctl migrate`: recipes of the v1 layout, written anew in v2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srtctl.cli.exits import USAGE, fail, say

if TYPE_CHECKING:
    from srtctl.diagnostics import Diagnostic


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Recipes, and folders: every .yaml and .yml below them.", metavar="FILES...", show_default=False
        ),
    ],
    in_place: Annotated[bool, typer.Option("--in-place", "-i", help="Write each file anew.")] = False,
) -> None:
    """Write recipes of the old layout (v1) in the present one; comments, key order and variants stay.

    Prints the new text of one file, or with --in-place changes them all. Exits 2 when one cannot be written anew; such
    a file, and one that is v2 already, stays as it is.
    """
    from srtctl.plan.validate import Validated, recipe_files

    found = list(recipe_files(files))
    bad = [item for result in found if isinstance(result, Validated) for item in result.diagnostics]
    paths = [path for path in found if isinstance(path, Path)]
    if len(paths) > 1 and not in_place:
        fail(f"{len(paths)} files cannot be printed as one", "name one, or change them with --in-place", USAGE)
    changed = 0
    for path in paths:
        text, problems = _migrated(path)
        bad += problems
        if text is None:
            continue
        if not in_place:
            typer.echo(text, nl=False)
        elif text != path.read_bytes().decode():
            _write(path, text)
            changed += 1
    if bad:
        from srtctl.cli.diagnostics import print_diagnostics

        print_diagnostics(bad)
    if in_place:
        say(f"{len(paths)} file{'s' * (len(paths) != 1)}, {changed} changed")
    if bad:
        raise typer.Exit(USAGE)


def _migrated(path: Path) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """The new text of the file, or None with the reasons."""
    from srtctl.reading.document import read_yaml
    from srtctl.recipe.migrate import migrate

    document = read_yaml(path)  # says what is wrong with a file that cannot be read
    if not document.read:
        return None, document.diagnostics
    done = migrate(path.read_bytes().decode("utf-8-sig"), str(path))
    return done.text, done.diagnostics


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole, so that an interruption leaves the old one."""
    target = path.resolve()  # through a link, which stays one
    new = target.with_name(f".{target.name}.new")
    try:
        new.write_bytes(text.encode())
        new.chmod(target.stat().st_mode)
        new.replace(target)
    except OSError as error:
        new.unlink(missing_ok=True)
        fail(f"{path} cannot be written: {error.strerror}", "check its permissions")
