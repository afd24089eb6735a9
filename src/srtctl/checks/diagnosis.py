"""The diagnosis: a symptom looked up in the table of causes and remedies. Pure; no input or output."""

from __future__ import annotations

from srtctl.checks import rows_direct, rows_launch, rows_openengine, rows_serving
from srtctl.checks.model import Diagnosis
from srtctl.checks.symptom import Row, Symptom, search

#: The first row that applies is the diagnosis, so what is more special comes first.
ROWS: tuple[Row, ...] = rows_launch.ROWS + rows_openengine.ROWS + rows_direct.ROWS + rows_serving.ROWS


def diagnose(symptom: Symptom) -> Diagnosis | None:
    """The first row that applies, filled in; None where the symptom is not understood."""
    for row in ROWS:
        if symptom.check in row.checks and row.when(symptom):
            for source in row.looks_at:
                found = search(row.pattern, getattr(symptom, source))
                if found:
                    facts = {**symptom.facts(), **found.groupdict("")}
                    return Diagnosis(row.cause.format(**facts), row.remedy.format(**facts))
    return None
