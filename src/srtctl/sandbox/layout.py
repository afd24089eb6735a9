"""Where the files of one sandbox lie below its state folder. Pure: creates nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from srtctl.cluster.paths import PROFILE_NAME
from srtctl.sandbox.spec import node_name


@dataclass(frozen=True, slots=True)
class Layout:
    """The state folder of one sandbox. All paths are absolute when `root` is."""

    root: Path

    @property
    def record(self) -> Path:
        """The sandbox's shape; written first, so whatever else exists can be torn down."""
        return self.root / "sandbox.json"

    @property
    def profile(self) -> Path:
        """The cluster profile; written last, so it exists only while the sandbox is up."""
        return self.root / PROFILE_NAME

    @property
    def slurm_conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def hosts(self) -> Path:
        """Becomes /etc/hosts in the nodes of a netns sandbox."""
        return self.root / "hosts"

    @property
    def munge_key(self) -> Path:
        return self.root / "munge" / "munge.key"

    @property
    def munge_socket(self) -> Path:
        return self.root / "munge" / "socket"

    @property
    def pids(self) -> Path:
        """One file a daemon: pid, start time, boot."""
        return self.root / "pids"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def controller_state(self) -> Path:
        return self.root / "slurmctld"

    @property
    def spool(self) -> Path:
        """One folder a node below it."""
        return self.root / "spool"

    def step_socket(self, node: int) -> Path:
        """The longest path of a socket here: slurmstepd makes one a step (4294967291 is how the batch step is called)."""
        return self.spool / node_name(node) / f"{node_name(node)}_99999.4294967291"

    @property
    def gpus(self) -> Path:
        """Stand-ins for the device files of the GPUs, shared by all nodes."""
        return self.root / "gpu"

    @property
    def image(self) -> Path:
        """What a container image is elsewhere: the simulated engines and the checks."""
        return self.root / "image"

    @property
    def models(self) -> Path:
        return self.root / "model"

    @property
    def home(self) -> Path:
        """HOME of the jobs, so that caches end below the state folder."""
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        """TMPDIR of the jobs."""
        return self.root / "tmp"

    @property
    def runs(self) -> Path:
        return self.root / "runs"
