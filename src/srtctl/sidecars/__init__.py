"""How a Dynamo sidecar is attached to an engine process."""

from srtctl.sidecars.native import SIDECAR_MODULES, SidecarCommand, native_sidecar, worker_env

__all__ = ["SIDECAR_MODULES", "SidecarCommand", "native_sidecar", "worker_env"]
