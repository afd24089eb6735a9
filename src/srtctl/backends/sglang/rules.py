"""What cannot run on SGLang, said before the queue. Each rule is one row: a test and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from srtctl.backends.base import Layout
from srtctl.backends.kv_events import check_config
from srtctl.backends.launch import launch_of
from srtctl.backends.rules import (
    check_dynamo_only,
    check_even,
    check_kv_events_on,
    check_mode,
    check_owned,
    check_ports,
    gpu_count,
    path_of,
)
from srtctl.backends.sglang.topology import Parallelism
from srtctl.backends.sizes import DATA, PIPELINE, TENSOR
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import Arguments
from srtctl.recipe.model import Recipe

#: Flags that srtctl derives from the plan; a recipe that sets one would contradict it. Value: what to write instead.
OWNED: Mapping[str, str] = {
    "nnodes": "it follows from the placement",
    "node-rank": "it follows from the placement",
    "host": "every process listens on 0.0.0.0",
    "model-path": "write `model.path`",
    "dist-init-addr": "it is the leader's address and a claimed port",
}


def check_arguments(recipe: Recipe, role: str, ports: Iterable[str]) -> Iterator[Diagnostic]:
    """Faults that can be seen in one role alone; `ports` are the flags that hold one."""
    args = recipe.arguments[role]
    yield from check_owned("sglang", args, OWNED)
    yield from check_kv_events_on("sglang", recipe, role)
    yield from check_dynamo_only("sglang", "SGLang", args, launch_of(recipe, recipe.roles[role]))
    yield from check_mode("sglang", role, args, "null")
    yield from check_ports(args, tuple(ports))
    yield from check_config(args)


def check_sizes(role: str, args: Arguments, sizes: Parallelism, gpus: int) -> Iterator[Diagnostic]:
    """Parallelism against the GPUs of one worker (`roles.<role>.gpus`)."""
    where = path_of(args, TENSOR, role)
    if sizes.attention_dp and sizes.tp % sizes.dp:
        yield Diagnostic(
            "sglang/dp-divides-tp",
            f"attention DP needs the data-parallel size to divide the tensor-parallel size; {sizes.dp} does not divide {sizes.tp}",
            path_of(args, DATA, role),
            hint=f"use a data-parallel size of {_divisors(sizes.tp)}",
        )
    if sizes.gpus != gpus:
        formula = (
            f"TP{sizes.tp}"
            + (f" x PP{sizes.pp}" if sizes.pp > 1 else "")
            + (f" x DP{sizes.dp}" if sizes.ordinary_dp else "")
        )
        yield gpu_count("sglang", role, formula, sizes.gpus, gpus, where)


def check_layout(role: str, args: Arguments, sizes: Parallelism, layout: Layout) -> Iterator[Diagnostic]:
    """Parallelism against where the worker lies."""
    if sizes.ordinary_dp and layout.nnodes > 1:
        yield Diagnostic(
            "sglang/ordinary-dp-nodes",
            f"ordinary data parallelism runs inside one node; this {role} worker spans {layout.nnodes}",
            path_of(args, DATA, role),
            hint="use one worker a node, or `enable-dp-attention`",
        )
        return
    if uneven := list(check_even("sglang", "SGLang", role, layout)):
        yield from uneven
        return
    stage_nodes = max(layout.nnodes // sizes.pp, 1)
    if layout.nnodes > 1 and layout.nnodes % sizes.pp and sizes.pp % layout.nnodes:
        yield Diagnostic(
            "sglang/pipeline-nodes",
            f"{sizes.pp} pipeline stages cannot be spread evenly over {layout.nnodes} nodes",
            path_of(args, PIPELINE, role),
            hint="let one divide the other",
        )
    if sizes.tp % stage_nodes:
        yield Diagnostic(
            "sglang/tp-nodes",
            f"the tensor-parallel size must be divisible by the nodes of a pipeline stage; {stage_nodes} does not divide {sizes.tp}",
            path_of(args, TENSOR, role),
            hint="choose sizes that divide",
        )


def _divisors(n: int) -> str:
    if n > 1024:  # no such server exists; a list would not help
        return f"which {n} is a multiple"
    words = [str(d) for d in range(1, n + 1) if n % d == 0]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
