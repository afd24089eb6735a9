"""Start-up and planning as ratios to `python -c "import yaml, pydantic"`: `make bench`.

Each figure is the fastest of several runs, so that a busy machine distorts it little. The budgets are those of the
design (ratios hold on any machine); a figure above its budget is marked, and the script then exits 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import srtctl

SRTCTL = Path(sys.executable).with_name("srtctl")
EXAMPLES = Path(__file__).parent.parent / "examples"
PYDANTIC = "import yaml, pydantic"
#: pydantic loads its core only when a model is defined, so the import alone flatters everything else.
MODEL = f"{PYDANTIC}\nclass M(pydantic.BaseModel): a: int"

RECIPE = """\
schema: 2
name: bench
model: {{path: /models/m, container: none}}
resources: {{gpus_per_node: 8}}
engine: sglang
roles:
  agg:
    nodes: {nodes}
    workers: {workers}
    gpus: 1
    kv_events: true
    sidecar: true
    args: {{served-model-name: m, tensor-parallel-size: 1, page-size: 16}}
frontend: {{type: dynamo, args: {{router-mode: kv}}}}
"""


def main() -> int:
    """Measure, print one line a figure, and return 1 when a budget is exceeded."""
    with tempfile.TemporaryDirectory(prefix="srtctl-bench-") as folder:
        home = Path(folder)
        for nodes in (100, 1000):
            (home / f"{nodes}.yaml").write_text(RECIPE.format(nodes=nodes, workers=nodes * 8))
        (home / "srtslurm.yaml").write_text("cluster: bench\noutput_dir: runs\n")
        example = str(EXAMPLES / "disagg" / "sglang-attention-dp-4n.yaml")
        _seconds([str(SRTCTL), "render", example, "--to", "runs/bench-1"], home, times=1)
        return _report(home, example)


def _report(home: Path, example: str) -> int:
    base = _seconds([sys.executable, "-c", PYDANTIC], home)
    model = _seconds([sys.executable, "-c", MODEL], home)
    print(f"srtctl {srtctl.__version__}; 1.00 is `python -c '{PYDANTIC}'`: {base * 1000:.0f} ms")
    print(f"with one model defined, as every command that reads a file must: {model / base:.2f}\n")
    print(f"{'':34} {'ratio':>6} {'budget':>7} {'to a model':>11} {'ms':>6}")
    complete = {"_SRTCTL_COMPLETE": "complete_bash", "COMP_WORDS": "srtctl pl", "COMP_CWORD": "1"}
    over = 0
    rows: list[tuple[str, list[str], Mapping[str, str], float, int]] = [
        ("--version", ["--version"], {}, 0.5, 9),
        ("completion", [], complete, 0.5, 9),
        ("plan, 4 nodes", ["plan", example], {}, 2.0, 9),
        ("status, one run, no Slurm asked", ["status"], {}, 2.0, 9),
        ("plan, 100 nodes of 8 workers", ["plan", "100.yaml"], {}, 0, 5),
        ("plan, 1,000 nodes of 8 workers", ["plan", "1000.yaml"], {}, 4.0, 3),
        ("  the same as JSON", ["plan", "1000.yaml", "-o", "json"], {}, 0, 3),
    ]
    for label, argv, env, budget, times in rows:
        seconds = _seconds([str(SRTCTL), *argv], home, env, times)
        over += _line(label, seconds, base, model, budget)
    small, large = (_planning(home / f"{nodes}.yaml") for nodes in (100, 1000))
    print(f"\nplanning alone: 100 nodes {small * 1000:.0f} ms, 1,000 nodes {large * 1000:.0f} ms:", end=" ")
    linear = large / small <= 15
    print(f"{large / small:.1f} times as long for 10 times as much, {'linear' if linear else 'NOT LINEAR'}")
    return 1 if over or not linear else 0


def _line(label: str, seconds: float, base: float, model: float, budget: float) -> bool:
    over = bool(budget) and seconds / base > budget
    shown = f"{budget:.1f}" if budget else "-"
    mark = "  OVER" if over else ""
    print(f"{label:34} {seconds / base:6.2f} {shown:>7} {seconds / model:11.2f} {seconds * 1000:6.0f}{mark}")
    return over


def _seconds(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, times: int = 9) -> float:
    """Wall-clock seconds of the fastest run; output is thrown away. Raises CalledProcessError when a run fails."""
    clean = {k: v for k, v in os.environ.items() if k != "SRTCTL_CLUSTER"} | dict(env or {})
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(argv, cwd=cwd, env=clean, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return best


def _planning(recipe: Path) -> float:
    """Seconds from a recipe that is read already to its plan, in this process; the fastest of three."""
    from srtctl.cluster.load import load_cluster
    from srtctl.plan.build import build_plan
    from srtctl.recipe.load import load_recipe

    loaded, cluster = load_recipe(recipe), load_cluster(None)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        assert build_plan(loaded, cluster).plan is not None
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    sys.exit(main())
