"""The environment that Slurm commands, and through them jobs, are started with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Variables that change what a Slurm command does or prints, or that belong to a job we may be inside of: `SBATCH_*`
# beats `#SBATCH` lines, `SLURM_CPU_BIND` reaches every step, `SQUEUE_STATES` hides jobs, `SCANCEL_INTERACTIVE` asks.
SCRUBBED_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SACCT_",
    "SCANCEL_",
    "SCONTROL_",
    "SPANK_",
    "_SLURM_SPANK_",
    "PMI_",
    "PMI2_",
    "PMIX_",
    "OMPI_",
)
# The caller's Python and GPUs: a job must not import from, or be limited to, what the submitting shell happened to use.
SCRUBBED_NAMES = frozenset(
    {
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "CONDA_PROMPT_MODIFIER",
        "CONDA_SHLVL",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONEXECUTABLE",
        "__PYVENV_LAUNCHER__",
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
    }
)
# Without these the commands would not find their cluster.
KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})
# Environments whose `bin` folder leaves PATH with them.
ENVIRONMENT_ROOTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


def scrubbed(env: Mapping[str, str], slurm_conf: str | None = None) -> dict[str, str]:
    """A copy of `env` without the caller's Slurm settings, Python environment and device list.

    `SLURM_CONF` and `SLURM_CLUSTERS` stay; `slurm_conf`, when given, becomes `SLURM_CONF`. slurm-facts 7, 9, 10, 11.
    """
    kept = {name: value for name, value in env.items() if name in KEPT or not _is_scrubbed(name)}
    if "PATH" in kept:
        left = {Path(env[root], "bin") for root in ENVIRONMENT_ROOTS if env.get(root)}
        kept["PATH"] = os.pathsep.join(p for p in kept["PATH"].split(os.pathsep) if Path(p) not in left)
    if slurm_conf:
        kept["SLURM_CONF"] = slurm_conf
    return kept


def _is_scrubbed(name: str) -> bool:
    return name in SCRUBBED_NAMES or name.startswith(SCRUBBED_PREFIXES)
