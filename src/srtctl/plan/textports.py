"""The port table of a plan: one block for all nodes whose ports are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from srtctl.plan.model import Claim, Plan
from srtctl.plan.names import name_list, span, stepped
from srtctl.plan.paint import Paint

#: purpose, ports, ports of each owner (0: of unequal size), kinds of owners.
Row = tuple[str, str, int, tuple[str, ...]]


def port_lines(plan: Plan, paint: Paint) -> Iterator[str]:
    """Every claim: who may bind which port on which node."""
    claims: dict[int, list[Claim]] = defaultdict(list)
    for claim in plan.claims:
        claims[claim.node].append(claim)
    alike: dict[tuple[Row, ...], list[int]] = defaultdict(list)
    for node, found in claims.items():
        alike[tuple(_row(purpose, same) for purpose, same in _by_purpose(found))].append(node)
    table = [("node", "ports", "purpose", "owner")]
    for rows, nodes in alike.items():
        owners: dict[str, dict[str, None]] = defaultdict(dict)
        for node in nodes:
            for claim in claims[node]:
                owners[claim.purpose][claim.owner] = None
        for index, (purpose, ports, each, _) in enumerate(rows):
            names = name_list(list(owners[purpose]))
            note = f", {each} each" if each > 1 and len(owners[purpose]) > 1 else ""
            table.append((stepped(nodes) if index == 0 else "", ports, purpose, names + note))
    widths = [max(len(row[i]) for row in table) for i in range(3)]
    for index, (where, ports, purpose, owner) in enumerate(table):
        line = f"{where:>{widths[0]}}  {ports:<{widths[1]}}  {purpose:<{widths[2]}}  {owner}"
        yield paint("head", line) if index == 0 else line


def _by_purpose(claims: Sequence[Claim]) -> Iterator[tuple[str, list[Claim]]]:
    """Claims of one node by purpose, in the order of their first ports."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        found[claim.purpose].append(claim)
    return iter(found.items())


def _row(purpose: str, claims: Sequence[Claim]) -> Row:
    sizes = {claim.count for claim in claims}
    kinds = tuple(_kind(claim.owner) for claim in claims)
    return purpose, _spans(claims), sizes.pop() if len(sizes) == 1 else 0, kinds


def _spans(claims: Sequence[Claim]) -> str:
    """The ports of the claims, in order of ports: neighbours joined where all are of one size, else one by one."""
    if len({claim.count for claim in claims}) > 1:
        return ", ".join(map(span, claims))
    runs: list[list[int]] = []
    for claim in claims:
        if runs and runs[-1][1] == claim.first:
            runs[-1][1] += claim.count
        else:
            runs.append([claim.first, claim.first + claim.count])
    return ", ".join(str(first) if end - first == 1 else f"{first}-{end - 1}" for first, end in runs)


def _kind(owner: str) -> str:
    """`agg-12.1` as `agg.1`: what the owners of alike nodes have in common."""
    role, dash, number = owner.rpartition("-")
    return f"{role}.{number.partition('.')[2]}" if dash else owner
