"""`srtctl sandbox`: flags and printing; the work is in `srtctl.sandbox`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from srtctl.sandbox import SandboxStatus

app = typer.Typer(help="A real Slurm cluster on this machine.", no_args_is_help=True)


class NetworkOption(StrEnum):
    """Values of --network."""

    auto = "auto"
    netns = "netns"
    loopback = "loopback"


class Output(StrEnum):
    """Values of --output."""

    text = "text"
    json = "json"


NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the sandbox.", envvar="SRTCTL_SANDBOX", show_default="default")
]


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 2,
    gpus_per_node: Annotated[int, typer.Option(help="Simulated GPUs of each node.")] = 1,
    network: Annotated[
        NetworkOption, typer.Option(help="netns: a network namespace a node (root); loopback: 127.x addresses.")
    ] = NetworkOption.auto,
    subnet: Annotated[str | None, typer.Option(help="Addresses for netns, for example 10.213.0.0/24.")] = None,
    name: NameOption = None,
    retain: Annotated[bool, typer.Option("--retain", help="Keep what a failed boot leaves, for a look.")] = False,
) -> None:
    """Boot a Slurm cluster on this machine; prints the path of its cluster profile."""
    with _reporting():
        from srtctl.sandbox import SandboxSpec
        from srtctl.sandbox import up as sandbox_up
        from srtctl.sandbox.view import up_lines

        spec = SandboxSpec(name or "default", nodes, gpus_per_node, network.value, subnet, retain)
        sandbox = sandbox_up(spec, _say)
        for line in up_lines(sandbox):
            _say(line)
        typer.echo(sandbox.profile)


@app.command()
def status(
    name: NameOption = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print it.")] = Output.text,
) -> None:
    """Show nodes and daemons; exit 1 unless the sandbox is up and all its daemons run."""
    with _reporting():
        from srtctl.sandbox import status as sandbox_status

        found = sandbox_status(name)
        if output is Output.json:
            import json

            from srtctl.sandbox.view import status_data

            typer.echo(json.dumps(status_data(found), indent=2))
        else:
            _print_status(found)
        if not found.healthy:
            raise typer.Exit(1)


@app.command()
def down(name: NameOption = None) -> None:
    """Cancel its jobs, end its daemons and remove everything of the sandbox."""
    with _reporting():
        from srtctl.cluster.paths import sandbox_name
        from srtctl.sandbox import down as sandbox_down

        name = name or sandbox_name()
        _say(f"sandbox `{name}` is gone" if sandbox_down(name, _say) else f"there is no sandbox `{name}`")


@app.command()
def install() -> None:
    """Install what a sandbox needs: Debian packages, and the stack environment with the real Dynamo."""
    with _reporting():
        from srtctl.sandbox import packages, stack

        packages.install(_say)
        ready = stack.install(_say)
        _say(f"everything is installed; stack environment: {ready.root}")
        _say("next: srtctl sandbox up")


def _print_status(found: SandboxStatus) -> None:
    from srtctl.sandbox.view import status_text

    if found.shape is None:
        _say(f"there is no sandbox `{found.name}`; `srtctl sandbox up` boots one")
        return
    typer.echo(status_text(found))


def _say(line: str) -> None:
    typer.echo(line, err=True)


@contextmanager
def _reporting() -> Iterator[None]:
    from srtctl.sandbox.errors import SandboxError

    try:
        yield
    except SandboxError as error:
        if error.detail:
            _say(error.detail)
        _say(f"error: {error.message}")
        if error.hint:
            _say(f"hint: {error.hint}")
        sys.exit(error.exit_code)
