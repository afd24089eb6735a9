"""The command tree. Verbs live in modules of their own; each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from srtctl.cli import apply, cancel, check, explain, logs, migrate, plan, render, sandbox, status, validate

app = typer.Typer(
    name="srtctl",
    help="Serve large language models on Slurm: one recipe, a plan you can see, a launch you can read, a verdict you can trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verb in (plan, validate, explain, migrate, render, apply, status, logs, check, cancel):
    app.command(verb.__name__.rpartition(".")[2])(verb.command)
app.add_typer(sandbox.app, name="sandbox")


def _version(value: bool) -> None:
    if value:
        from srtctl import __version__

        typer.echo(f"srtctl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that belong to no verb."""
