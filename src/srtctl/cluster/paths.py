"""Where srtctl keeps its own files, and where a running sandbox's profile lies. Nothing else knows these paths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PROFILE_NAME = "srtslurm.yaml"
SYSTEM_DATA_DIR = Path("/var/lib/srtctl")


def data_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder for stacks and sandboxes: `$SRTCTL_DATA_DIR`, /var/lib/srtctl for root, else the XDG data folder."""
    if explicit := env.get("SRTCTL_DATA_DIR"):
        return Path(explicit)
    if os.geteuid() == 0:
        return SYSTEM_DATA_DIR
    return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "srtctl"


def sandbox_name(env: Mapping[str, str] = os.environ) -> str:
    """The sandbox that commands mean when none is named: `$SRTCTL_SANDBOX`, else `default`."""
    return env.get("SRTCTL_SANDBOX") or "default"


def sandbox_dir(name: str, env: Mapping[str, str] = os.environ) -> Path:
    """State folder of the sandbox `name`; exists while it is up (or was kept with --retain)."""
    return data_dir(env) / "sandbox" / name


def config_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The user's configuration folder."""
    return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "srtctl"
