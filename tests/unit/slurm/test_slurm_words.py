"""Slurm's codes in words."""

from __future__ import annotations

import pytest

from srtctl.slurm.words import exit_in_words, pending_in_words, submit_hint


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "jobs of higher priority are ahead"),
        ("(Resources)", "the nodes it needs are busy"),
        ("None", "Slurm has not looked at it yet"),
        ("", "Slurm has not looked at it yet"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-2],n7",
            "a node it needs is not available (UnavailableNodes:n[1-2],n7)",
        ),
        ("ReqNodeNotAvail(Unavailable:n1)", "a node it needs is not available (Unavailable:n1)"),
        ("SomethingNew", "SomethingNew"),
        ("Nodes required for job are DOWN, DRAINED", "Nodes required for job are DOWN (DRAINED)"),
    ],
)
def test_pending(reason: str, words: str) -> None:
    assert pending_in_words(reason) == words


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (None, ""),
        ((1, 0), "it exited with 1"),
        ((0, 9), "it was killed by signal 9"),
        ((0, 125), "it ran out of memory (0:125)"),
    ],
)
def test_exit(exit_code: tuple[int, int] | None, words: str) -> None:
    assert exit_in_words(exit_code) == words


def test_0_53_is_explained() -> None:
    assert "folder of its log is missing" in exit_in_words((0, 53))


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (
            "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job submission failed",
            "slurm.partition",
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "sinfo"),
        ("sbatch: error: something else", ""),
    ],
)
def test_hint(stderr: str, expected: str) -> None:
    hint = submit_hint(stderr)
    assert expected in hint
    assert bool(hint) is bool(expected)
