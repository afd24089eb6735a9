"""Faults that a simulated engine shows on demand: `SRTCTL_SIM_FAULT=name[=value][@node_rank],...`.

A fault without `@node_rank` is shown by every process of the engine that reads the variable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VARIABLE = "SRTCTL_SIM_FAULT"
ALL_RANKS = -1
WRONG_PORT_OFFSET = 1000
SAME_GROUP = "127.0.0.1:5000"


class FaultError(ValueError):
    """The text names an unknown fault or a value that the fault does not take."""


@dataclass(frozen=True)
class ExitAfter:
    """End with `code`, `seconds` after the engine became ready."""

    seconds: float
    code: int


@dataclass(frozen=True)
class Faults:
    """The faults of one engine process; the defaults are a healthy engine. `FAULTS` explains each."""

    report_dp_size: int | None = None
    silent_kv: int | None = None
    start_delay: float = 0.0
    exit_after: ExitAfter | None = None
    exit_at_start: int | None = None
    never_ready: bool = False
    bad_rank: bool = False
    no_sources: bool = False
    wrong_topic: bool = False
    error_500: int | None = None
    wrong_port: bool = False
    block_size: int | None = None
    no_rank: bool = False
    wrong_group: bool = False
    same_group: bool = False
    dead_engine: bool = False
    zero_tokens: bool = False
    ordinary_dp_bootstrap: bool = False
    openengine: str | None = None

    def silences(self, dp_rank: int) -> bool:
        """Whether the KV events of this rank are kept back."""
        return self.silent_kv in (ALL_RANKS, dp_rank)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    if _count(text) == 0:
        raise ValueError(text)
    return _count(text)


def _exit_after(text: str) -> ExitAfter:
    seconds, _, code = text.partition(":")
    return ExitAfter(_seconds(seconds), _count(code) if code else 1)


@dataclass(frozen=True)
class Fault:
    """One row of the table. `value` is how the value is written ("" = takes none, "[...]" = may be left out)."""

    name: str
    value: str
    doc: str
    read: Callable[[str], Any] = _count


FAULTS: tuple[Fault, ...] = (
    Fault("report_dp_size", "N", "server info says dp_size N; every rank is still served and published"),
    Fault("silent_kv", "[RANK]", "the cache works, nothing is published (for that rank; without a value: any rank)"),
    Fault("start_delay", "SECONDS", "loading takes that long", _seconds),
    Fault("exit_after", "SECONDS[:CODE]", "ends that long after it was ready, with CODE (default 1)", _exit_after),
    Fault("exit_at_start", "CODE", "ends at once, before anything listens"),
    Fault("never_ready", "", "listens, but health stays negative"),
    Fault("bad_rank", "", "KV event batches carry the wrong DP rank"),
    Fault("no_sources", "", "server info has no kv_event_sources, as an older engine"),
    Fault("wrong_topic", "", "KV events go out under another topic than server info says"),
    Fault("error_500", "RANK", "every request to that rank ends in an internal error"),
    Fault("wrong_port", "", f"KV events go out {WRONG_PORT_OFFSET} ports above where server info says"),
    Fault("block_size", "N", "KV events speak of blocks of N tokens; server info keeps its page size", _positive),
    Fault("no_rank", "", "KV event batches carry no DP rank"),
    Fault("wrong_group", "", "server info says another dist_init_addr on each node: no sidecar finds its leader"),
    Fault("same_group", "", f"server info says dist_init_addr {SAME_GROUP}: all such workers look like one"),
    Fault("dead_engine", "", "healthy and talkative, but every request ends as unavailable"),
    Fault("zero_tokens", "", "requests end well, without one token"),
    Fault("ordinary_dp_bootstrap", "", "ordinary-DP prefill fails every room of a DP rank but 0 (sglang #29725)"),
    Fault("openengine", "FACT:VALUE", "OpenEngine discovery says VALUE for FACT (openengine/info.py lists them)", str),
)
_BY_NAME = {fault.name: fault for fault in FAULTS}


def parse_faults(text: str, node_rank: int, without: frozenset[str] = frozenset()) -> Faults:
    """What `text` asks of the process with this node rank; what it asks of others is checked too.

    `without` are the names of faults that the engine cannot have. Raises FaultError.
    """
    found: dict[str, Any] = {}
    known = {name: fault for name, fault in _BY_NAME.items() if name not in without}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        body, at, node = entry.partition("@")
        name, equals, value = body.partition("=")
        fault = known.get(name)
        if fault is None:
            raise FaultError(f"{VARIABLE}: unknown fault {name!r}; known: {', '.join(known)}")
        if at and not node.isdecimal():
            raise FaultError(f"{VARIABLE}: {entry!r}: after @ comes a node rank, a number from 0")
        parsed = _value(fault, bool(equals), value)
        if not at or int(node) == node_rank:
            if name in found:
                raise FaultError(f"{VARIABLE}: {name} is given twice for node rank {node_rank}")
            found[name] = parsed
    return dataclasses.replace(Faults(), **found)


def _value(fault: Fault, given: bool, text: str) -> Any:
    if not given and not fault.value:
        return True
    if not given and fault.value.startswith("["):
        return ALL_RANKS
    try:
        if not (given and fault.value):
            raise ValueError(text)
        return fault.read(text)
    except ValueError:
        usage = fault.name + (f"={fault.value}" if fault.value else "")
        raise FaultError(f"{VARIABLE}: {fault.name}: cannot use {text!r}; write {usage}") from None
