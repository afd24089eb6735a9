"""Every example's generated launch, as files a reviewer reads. `make snapshots` regenerates them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation
from syrupy.types import SnapshotIndex

from tests.support import EXAMPLES, REPOSITORY, bundle_of, example_id

#: Static in every bundle and reviewed where they live.
STATIC = ("runtime.sh", "job.sh", "steps.sh", "node.sh", "lib/")


class BundleFiles(SingleFileSnapshotExtension):
    """One real file a snapshot, under tests/snapshots/<example>/, so that diffs and shellcheck see what users get."""

    _write_mode = WriteMode.TEXT
    file_extension = ""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(REPOSITORY / "tests/snapshots")

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: SnapshotIndex) -> str:
        return str(REPOSITORY / "tests/snapshots" / str(index))

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        return str(index)

    def is_snapshot_location(self, *, location: str) -> bool:
        return True


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_generated_launch(example: Path, snapshot: SnapshotAssertion) -> None:
    files = {n: t for n, t in bundle_of(example).items() if not n.startswith(STATIC)}
    for name, text in files.items():
        assert text == snapshot(name=f"{example_id(example)}/{name}", extension_class=BundleFiles), name
    on_disk = REPOSITORY / "tests/snapshots" / example_id(example)
    stale = {str(p.relative_to(on_disk)) for p in on_disk.rglob("*") if p.is_file()} - set(files)
    assert not stale, "no longer generated: run `make snapshots` after deleting them"


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_every_script_passes_shellcheck(example: Path, tmp_path: Path) -> None:
    for name, text in bundle_of(example).items():
        if name.endswith((".sh", ".sbatch")):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    scripts = sorted(str(p) for p in tmp_path.rglob("*") if p.is_file())
    found = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_the_same_bytes_every_time(example: Path) -> None:
    assert bundle_of(example) == bundle_of(example)
    assert bundle_of(example, run_dir="/other")["plan.json"] == bundle_of(example)["plan.json"]
    # The place of the bundle is written in one file only.
    moved = {n for n, t in bundle_of(example, run_dir="/other").items() if t != bundle_of(example)[n]}
    assert moved == {"job.sbatch"}
