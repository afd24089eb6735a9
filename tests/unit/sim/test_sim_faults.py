"""The text of SRTCTL_SIM_FAULT."""

from __future__ import annotations

import dataclasses

import pytest

from srtctl.sim.faults import ALL_RANKS, FAULTS, ExitAfter, FaultError, Faults, parse_faults


@pytest.mark.parametrize(
    ("text", "node_rank", "expected"),
    [
        ("", 0, Faults()),
        (" , ", 0, Faults()),
        ("report_dp_size=1", 0, Faults(report_dp_size=1)),
        ("report_dp_size=1@1", 0, Faults()),
        ("report_dp_size=1@1", 1, Faults(report_dp_size=1)),
        ("silent_kv", 0, Faults(silent_kv=ALL_RANKS)),
        ("silent_kv=2", 0, Faults(silent_kv=2)),
        ("silent_kv=0@0,silent_kv=1@1", 1, Faults(silent_kv=1)),
        ("start_delay=0.5, never_ready", 0, Faults(start_delay=0.5, never_ready=True)),
        ("exit_after=3", 0, Faults(exit_after=ExitAfter(3.0, 1))),
        ("exit_after=3:7@0", 0, Faults(exit_after=ExitAfter(3.0, 7))),
        ("exit_at_start=0", 0, Faults(exit_at_start=0)),
        ("bad_rank,no_sources,wrong_topic", 0, Faults(bad_rank=True, no_sources=True, wrong_topic=True)),
        ("error_500=1", 0, Faults(error_500=1)),
        ("wrong_port,block_size=8,no_rank", 0, Faults(wrong_port=True, block_size=8, no_rank=True)),
        ("wrong_group@1,same_group@0", 1, Faults(wrong_group=True)),
        ("dead_engine,zero_tokens", 0, Faults(dead_engine=True, zero_tokens=True)),
        ("ordinary_dp_bootstrap", 0, Faults(ordinary_dp_bootstrap=True)),
    ],
)
def test_what_is_asked_for(text: str, node_rank: int, expected: Faults) -> None:
    assert parse_faults(text, node_rank) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("silent", "unknown fault 'silent'; known: report_dp_size, silent_kv"),
        ("silent@1", "unknown fault 'silent'"),
        ("report_dp_size", "report_dp_size: cannot use ''; write report_dp_size=N"),
        ("report_dp_size=x@5", "report_dp_size: cannot use 'x'; write report_dp_size=N"),
        ("never_ready=1", "never_ready: cannot use '1'; write never_ready"),
        ("silent_kv=", "silent_kv: cannot use ''"),
        ("start_delay=-1", "start_delay: cannot use '-1'; write start_delay=SECONDS"),
        ("start_delay=inf", "start_delay: cannot use 'inf'"),
        ("exit_after=1:x", "exit_after: cannot use '1:x'"),
        ("block_size=0", "block_size: cannot use '0'; write block_size=N"),
        ("never_ready@x", "after @ comes a node rank"),
        ("never_ready,never_ready@0", "never_ready is given twice for node rank 0"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(FaultError) as error:
        parse_faults(text, 0)
    assert message in str(error.value)


def test_the_table_names_every_field_with_a_text() -> None:
    assert [fault.name for fault in FAULTS] == [field.name for field in dataclasses.fields(Faults)]
    assert all(fault.doc for fault in FAULTS)


def test_silences() -> None:
    assert [Faults(silent_kv=1).silences(rank) for rank in (0, 1)] == [False, True]
    assert [Faults(silent_kv=ALL_RANKS).silences(rank) for rank in (0, 1)] == [True, True]
    assert not Faults().silences(0)
