"""What is mounted on this machine, and how to let go of it."""

from __future__ import annotations

import re
from pathlib import Path

from srtctl.sandbox.run import run


def mount_points() -> list[str]:
    """Mount points of this mount namespace. (`os.path.ismount` does not see a bind mount within one file system.)"""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in lines]


def unmount_below(folder: Path) -> None:
    """Unmounts whatever is mounted below `folder`, so that deleting it deletes nobody else's files.

    Raises SandboxError when that is refused.
    """
    for point in sorted((p for p in mount_points() if p.startswith(f"{folder}/")), reverse=True):
        run("umount", ["--lazy", point])
