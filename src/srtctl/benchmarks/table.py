"""Every kind of benchmark on every engine, and whether a recipe gives it what it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.benchmarks.accuracy import ACCURACY
from srtctl.benchmarks.aiperf import AIPERF
from srtctl.benchmarks.kinds import Kind, Load
from srtctl.benchmarks.serving import SA_BENCH
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.benchmark import Benchmark

ENGINES = ("sglang", "vllm", "trtllm", "mocker")


def _command(benchmark: Benchmark, _load: Load) -> str:
    return f"{(benchmark.command or '').rstrip()}\n"


_CUSTOM = Kind("`benchmark.command`", _command, ("command",))

#: Kind of benchmark -> engine -> what it runs. `manual` runs nothing.
BENCHMARKS: Mapping[str, Mapping[str, Kind]] = {
    "custom": dict.fromkeys(ENGINES, _CUSTOM),
    "sa-bench": SA_BENCH,
    **{name: dict.fromkeys(ENGINES, kind) for name, kind in AIPERF.items()},
    **ACCURACY,
}


def check_benchmark(benchmark: Benchmark, engine: str) -> Iterator[Diagnostic]:
    """What is missing (errors), and what is given and changes nothing (warnings)."""
    name = benchmark.type
    if name == "manual":
        yield from _unused(benchmark, Kind("", _command))
        return
    kind = BENCHMARKS[name][engine]
    if kind.refused:
        yield Diagnostic(
            "benchmark/engine",
            f"benchmark `{name}` cannot be run with engine `{engine}`: {kind.refused}",
            "benchmark.type",
            hint="run a tool of your own with `type: custom`, or use `type: manual`",
        )
    for setting in kind.needs:
        if getattr(benchmark, setting) is None:
            message = f"benchmark `{name}` needs `benchmark.{setting}`"
            about = type(benchmark).model_fields[setting].description or ""
            yield Diagnostic("benchmark/missing", message, f"benchmark.{setting}", hint=about)
    yield from _unused(benchmark, kind)


def client_script(benchmark: Benchmark, load: Load) -> str:
    """What bash runs, for a benchmark in which `check_benchmark` finds no error."""
    return BENCHMARKS[benchmark.type][load.engine].script(benchmark, load)


def _unused(benchmark: Benchmark, kind: Kind) -> Iterator[Diagnostic]:
    for setting in benchmark.given:
        path = f"benchmark.{setting}"
        if setting in kind.lost:
            message = f"`{path}` is left out: {kind.lost[setting]}"
            yield Diagnostic("benchmark/no-equivalent", message, path, severity="warning")
        elif setting not in (*kind.needs, *kind.uses):
            message = f"`{path}` changes nothing: benchmark `{benchmark.type}` has no such setting"
            yield Diagnostic("benchmark/unused-setting", message, path, hint="remove it", severity="warning")
