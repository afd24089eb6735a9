"""What changes from one plan to another, as data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from srtctl.plan.listing import Listing, listing
from srtctl.plan.model import Plan

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One line: replaced (both), removed (`new` is None) or added (`old` is None)."""

    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """The same edits in each of `subjects` of a section; `kind` says whether the subjects are in both plans."""

    section: str
    kind: Kind
    subjects: tuple[str, ...]
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What changes from plan `old` to plan `new`, in the order of a plan's sections; nothing when they run the same."""

    old: str
    new: str
    changes: tuple[Change, ...]

    @property
    def equal(self) -> bool:
        return not self.changes

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        changes = [
            {
                "section": c.section,
                "kind": c.kind,
                "subjects": list(c.subjects),
                "edits": [{"old": e.old, "new": e.new} for e in c.edits],
            }
            for c in self.changes
        ]
        return {"old": self.old, "new": self.new, "equal": self.equal, "changes": changes}


def diff_plans(old: Plan, new: Plan) -> PlanDiff:
    """What changes from `old` to `new`: what runs, where and how; not where the plans came from, nor their warnings."""
    before, after = listing(old), listing(new)
    grouped: dict[tuple[str, Kind, tuple[Edit, ...]], list[str]] = defaultdict(list)
    for section, subject in _keys(before, after):
        key = section, subject
        if before.get(key) != after.get(key):
            kind: Kind = "changed" if key in before and key in after else "added" if key in after else "removed"
            edits = tuple(_edits(before.get(key, ()), after.get(key, ())))
            grouped[section, kind, edits].append(subject)
    changes = [Change(section, kind, tuple(names), edits) for (section, kind, edits), names in grouped.items()]
    return PlanDiff(old.source, new.source, tuple(changes))


def _keys(before: Listing, after: Listing) -> Iterator[tuple[str, str]]:
    """The keys of both, sections together and in order."""
    by_section: dict[str, dict[str, None]] = defaultdict(dict)
    for section, subject in (*before, *after):
        by_section[section][subject] = None
    return ((section, subject) for section, subjects in by_section.items() for subject in subjects)


def _edits(old: Sequence[str], new: Sequence[str]) -> Iterator[Edit]:
    """The edits that make `new` of `old`, in order; a line replaces the one beside it that begins with the same word."""
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        added = {_word(line): line for line in reversed(new[k:m])}
        left = list(new[k:m])
        for line in old[i:j]:
            partner = added.pop(_word(line), None)
            if partner is not None:
                left.remove(partner)
            yield Edit(line, partner)
        yield from (Edit(None, line) for line in left)


def _word(line: str) -> str:
    """What a line is about: its flag, its variable, its worker."""
    return line.replace("=", " ").split(" ", 1)[0]
