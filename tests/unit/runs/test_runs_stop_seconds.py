"""How long each process took to stop, from the event to the status."""

from __future__ import annotations

from situations import SERVING, run

from srtctl.runs.status import derive


def test_a_part_that_was_stopped_tells_how_long_it_took() -> None:
    stopped = {"process": "agg-0.0", "part": "engine", "code": 0, "seconds": 4.25}
    earlier = {"process": "agg-0.0", "part": "sidecar", "code": 0}  # a run of before the record had it
    files = run(*SERVING, ("stopping", {}), ("stopped", stopped, 0), ("stopped", earlier, 0))
    found = {part.label: part.stop_seconds for part in derive(files, None, 0).parts}
    assert found["agg-0.0 engine"] == 4.25
    assert found["agg-0.0 sidecar"] is found["agg-0.1 engine"] is None
    told = derive(files, None, 0).as_dict()["parts"]
    assert [part["stop_seconds"] for part in told if part["stop_seconds"]] == [4.25]
