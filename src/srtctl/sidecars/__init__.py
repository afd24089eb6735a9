"""How a Dynamo sidecar is attached to an engine process."""

from srtctl.sidecars.native import sidecar_settings, worker_env
from srtctl.sidecars.openengine import sidecar_command

__all__ = ["sidecar_command", "sidecar_settings", "worker_env"]
