"""The environment that jobs are submitted with: one row a rule."""

from __future__ import annotations

import pytest

from srtctl.slurm.environment import scrubbed

PATH = "/opt/slurm/bin:/usr/bin"


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("SLURM_CONF", True),
        ("SLURM_CLUSTERS", True),
        ("SLURM_JOB_ID", False),
        ("SLURM_CPU_BIND", False),
        ("SLURMD_NODENAME", False),
        ("SBATCH_PARTITION", False),
        ("SRUN_DEBUG", False),
        ("SALLOC_PARTITION", False),
        ("SQUEUE_STATES", False),
        ("SACCT_FORMAT", False),
        ("SCANCEL_INTERACTIVE", False),
        ("SCONTROL_ALL", False),
        ("SPANK_X11", False),
        ("_SLURM_SPANK_OPTION_pyxis_container_image", False),
        ("PMI_RANK", False),
        ("PMIX_NAMESPACE", False),
        ("OMPI_COMM_WORLD_RANK", False),
        ("VIRTUAL_ENV", False),
        ("CONDA_PREFIX", False),
        ("PYTHONHOME", False),
        ("PYTHONPATH", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("HOME", True),
        ("HF_HOME", True),
        ("LD_LIBRARY_PATH", True),
        ("SRTCTL_CLUSTER", True),
        ("SLURMPY", True),
        ("PMISC", True),
    ],
)
def test_what_stays(name: str, stays: bool) -> None:
    before = {name: "value", "PATH": PATH}
    after = scrubbed(before)
    assert (name in after) is stays
    assert after["PATH"] == PATH
    assert before == {name: "value", "PATH": PATH}


@pytest.mark.parametrize("root", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_bin_folder_of_the_environment_leaves_path(root: str) -> None:
    env = {root: "/home/me/env", "PATH": f"/home/me/env/bin:{PATH}:/home/me/env/bin/"}
    assert scrubbed(env)["PATH"] == PATH


@pytest.mark.parametrize(
    ("env", "given", "expected"),
    [
        ({"SLURM_CONF": "/etc/slurm.conf"}, None, "/etc/slurm.conf"),
        ({"SLURM_CONF": "/etc/slurm.conf"}, "/sandbox/slurm.conf", "/sandbox/slurm.conf"),
        ({}, "/sandbox/slurm.conf", "/sandbox/slurm.conf"),
        ({}, None, None),
    ],
)
def test_slurm_conf(env: dict[str, str], given: str | None, expected: str | None) -> None:
    assert scrubbed(env, given).get("SLURM_CONF") == expected
