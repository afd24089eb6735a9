"""The commands of a plan, ready to be copied: one of each kind where there are many."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from srtctl.plan.model import Client, Plan, Process
from srtctl.plan.names import name_list, ranges
from srtctl.plan.paint import Paint
from srtctl.plan.shell import flag_groups, lines, word

#: Of more processes with the same flags, the first is shown, with what differs in the others.
SHOWN = 2
WIDTH = 116


@dataclass(frozen=True, slots=True)
class _Command:
    """One command of a process: a line of the shell for each variable and flag, and the title above it."""

    title: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """A process with its variables and flags, each with its value."""

    process: Process
    parts: list[tuple[str, str]]


def command_lines(plan: Plan, paint: Paint) -> Iterator[str]:
    """Every command with its environment, wrapped between flags; `NODE_ADDR` is bound by the job."""
    alike = _alike(plan)
    some = any(len(processes) > SHOWN for processes in alike.values())
    note = " (one of each kind; `srtctl plan -o json` and `srtctl render` have all of them in full)" if some else ""
    yield paint("head", "commands") + paint("dim", note)
    if plan.environment:
        yield from _print(_Command("environment of everything below", ("export", *_words(plan.environment, ()))), paint)
    for extra in (*plan.services, *plan.frontends):
        yield from _print(_Command(f"{extra.name} on node {extra.node}", _words(extra.env, extra.argv)), paint)
    for processes in alike.values():
        few = len(processes) <= SHOWN
        for split in processes if few else processes[:1]:
            for command in _commands(split.process):
                yield from _print(command, paint)
        if not few:
            yield from _others(processes, paint)
    if plan.client:
        yield from _client(plan.client, paint)


def _client(client: Client, paint: Paint) -> Iterator[str]:
    """The environment, and the script as it is."""
    title = f"{client.name} on node {client.node}, once every check is done; its end is the end of the job"
    yield from _print(_Command(title, ("export", *_words(client.env, ()))), paint)
    yield from client.script.rstrip().splitlines()


def _commands(process: Process) -> Iterator[_Command]:
    note = ""
    if published := process.publishers:
        ranks = ranges(p.dp_rank for p in published)
        ports = ranges(p.port for p in published) if published[0].port else "ports of its choice"
        note = f", publishes KV events of rank{'s' * (len(published) > 1)} {ranks} on {ports}"
    yield _Command(f"{process.name} on node {process.node}{note}", _words(process.env, process.argv))
    if side := process.sidecar:
        yield _Command(f"{side.mode} sidecar of {process.name}", _words(side.env, side.argv))


def _others(processes: Sequence[_Split], paint: Paint) -> Iterator[str]:
    rest = processes[1:]
    columns = zip(*(split.parts for split in processes), strict=True)
    differing = {column[0][0]: None for column in columns if len(set(column)) > 1}
    yield paint("dim", f"# the same on {len(rest):,} more: {name_list([split.process.name for split in rest])}")
    if differing:
        words = f"but for the values of {', '.join(differing)}"
        for line in textwrap.wrap(
            words, WIDTH, initial_indent="#   ", subsequent_indent="#   ", break_on_hyphens=False
        ):
            yield paint("dim", line)


def _alike(plan: Plan) -> dict[tuple[str, ...], list[_Split]]:
    """Processes by what those shown as one have in common: role, the sidecar's mode, and flags and variables, whatever
    their values."""
    alike: dict[tuple[str, ...], list[_Split]] = defaultdict(list)
    for worker in plan.workers:
        for process in worker.processes:
            parts = _split(process)
            mode = process.sidecar.mode if process.sidecar else ""
            alike[(worker.role, mode, *(name for name, _ in parts))].append(_Split(process, parts))
    return alike


def _split(process: Process) -> list[tuple[str, str]]:
    """Variables and flags of engine and sidecar, each with its value."""
    out = [*sorted(process.env.items()), *_flags(process.argv)]
    if side := process.sidecar:
        out += [*sorted(side.env.items()), *_flags(side.argv)]
    return out


@lru_cache(maxsize=256)  # thousands of processes share a few command lines: those of the places on a node
def _flags(argv: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((group[0], " ".join(group[1:])) for group in flag_groups(argv))


def _words(env: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    return (*(f"{name}={word(value)}" for name, value in sorted(env.items())), *lines(flag_groups(argv)))


def _print(command: _Command, paint: Paint) -> Iterator[str]:
    yield paint("dim", f"# {command.title}")
    line = ""
    for item in command.words:
        if line and len(line) + len(item) + 3 > WIDTH:
            yield f"{line} \\"
            line = f"    {item}"
        else:
            line = f"{line} {item}" if line else item
    yield line
