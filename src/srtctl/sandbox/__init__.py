"""A real Slurm cluster on one machine, to srtctl what kind is to Kubernetes.

`up`, `status` and `down` are the verbs (lifecycle.py, status.py). They raise `SandboxError` when something fails,
and its kind `SandboxRefusedError` when nothing was tried.
"""

from srtctl.sandbox.errors import SandboxError, SandboxRefusedError
from srtctl.sandbox.lifecycle import Sandbox, down, up
from srtctl.sandbox.spec import Node, SandboxSpec, Shape
from srtctl.sandbox.status import DaemonStatus, NodeStatus, SandboxStatus, status

__all__ = [
    "DaemonStatus",
    "Node",
    "NodeStatus",
    "Sandbox",
    "SandboxError",
    "SandboxRefusedError",
    "SandboxSpec",
    "SandboxStatus",
    "Shape",
    "down",
    "status",
    "up",
]
