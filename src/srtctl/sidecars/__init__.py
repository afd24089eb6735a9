"""How a Dynamo sidecar is attached to an engine process."""

from srtctl.sidecars.native import sidecar_settings, worker_env

__all__ = ["sidecar_settings", "worker_env"]
