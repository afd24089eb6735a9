"""The cluster profile of a running sandbox: what `srtctl apply` reads to use it like any other cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from srtctl.sandbox.image import MODEL_NAME, PROGRAMS
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.packages import SYSTEM_PATH
from srtctl.sandbox.spec import Shape
from srtctl.sandbox.stack import Stack


def profile(shape: Shape, layout: Layout, stack: Stack) -> dict[str, Any]:
    """The profile as data, in the order in which it is written."""
    return {
        "cluster": "sandbox",
        "default_partition": "sandbox",
        "default_time_limit": "00:30:00",
        "gpus_per_node": shape.gpus_per_node,
        "default_gpu_type": "sim",
        "model_paths": {MODEL_NAME: str(layout.models / MODEL_NAME)},
        "containers": dict.fromkeys(("sglang", "vllm", "trtllm"), str(layout.image)),
        "container_runtime": "none",
        "output_dir": str(layout.runs),
        "slurm_conf": str(layout.slurm_conf),
        "runtime_python": str(stack.python),
        "dynamo_python": str(stack.python),
        "nodes_share_host": shape.network == "loopback",
        "mpi": "none",  # simulated ranks need no wire-up, and Debian's Slurm loads no PMIx without its library
        "env": job_env(layout, stack),
    }


def job_env(layout: Layout, stack: Stack) -> dict[str, str]:
    """Environment of every process of a job: nothing of it writes outside the state folder.

    Dynamo caches model files in ~/.cache/dynamo and looks at HOME alone (tried with 1.6.1: not at XDG_CACHE_HOME).
    """
    return {
        "PATH": f"{layout.image / PROGRAMS}:{stack.root}/bin:{SYSTEM_PATH}",
        "PYTHONPATH": str(layout.image),
        "HF_HUB_OFFLINE": "1",
        "HOME": str(layout.home),
        "XDG_CACHE_HOME": str(layout.home / ".cache"),
        "TMPDIR": str(layout.tmp),
    }


def write(path: Path, data: dict[str, Any]) -> None:
    """Writes the profile; whoever sees the file sees all of it."""
    import yaml

    draft = path.with_suffix(".tmp")
    draft.write_text("# written by `srtctl sandbox up`\n" + yaml.safe_dump(data, sort_keys=False))
    draft.rename(path)
