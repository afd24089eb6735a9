"""run.json: what `srtctl apply` knows about a run that the job itself does not."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One submission. `submitted`: ISO 8601 with offset; `slurm_cluster`: set when sbatch named another cluster."""

    name: str
    run: str
    job_id: str
    cluster: str
    slurm_conf: str | None
    submitted: str
    recipe: str
    version: str
    slurm_cluster: str = ""

    @property
    def submitted_at(self) -> float:
        """Seconds since the epoch."""
        return datetime.fromisoformat(self.submitted).timestamp()


def write_json(path: Path, data: Any) -> None:
    """Write `data` so that a reader sees the old file or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def write_record(path: Path, record: RunRecord) -> None:
    """Write run.json atomically."""
    write_json(path, asdict(record))


def read_record(path: Path) -> RunRecord | None:
    """The record, or None when there is none that can be read. Fields of later versions are ignored."""
    data = read_object(path)
    names = {field.name for field in fields(RunRecord)}
    try:
        record = RunRecord(**{key: value for key, value in data.items() if key in names})
        datetime.fromisoformat(record.submitted)
    except (TypeError, ValueError):
        return None
    return record


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; empty when the file is missing, half written or something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
