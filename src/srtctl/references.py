"""Words that stand in a plan for what only the job knows."""

from __future__ import annotations


def bundle_file(name: str) -> str:
    """Where a command finds a file of the plan (`Plan.files`): the job writes it there with its addresses filled in."""
    return f"${{RUN_DIR}}/state/files/{name}"
