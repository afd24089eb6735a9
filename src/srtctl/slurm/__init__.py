"""Slurm's commands behind one small client; facts and rules in `slurm-facts`."""

from srtctl.slurm.client import Slurm
from srtctl.slurm.command import Completed, Runner, SlurmError
from srtctl.slurm.environment import scrubbed
from srtctl.slurm.parse import Submitted
from srtctl.slurm.states import JobState

__all__ = ["Completed", "JobState", "Runner", "Slurm", "SlurmError", "Submitted", "scrubbed"]
