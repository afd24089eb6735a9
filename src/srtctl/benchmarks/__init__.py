"""Which command of a public tool each kind of benchmark runs against the endpoint. Pure text."""

from srtctl.benchmarks.kinds import Load
from srtctl.benchmarks.table import BENCHMARKS, check_benchmark, client_script

__all__ = ["BENCHMARKS", "Load", "check_benchmark", "client_script"]
