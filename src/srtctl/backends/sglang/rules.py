"""What cannot run on SGLang, said before the queue. Each rule is one row: a test and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.backends.base import Layout
from srtctl.backends.launch import Launch
from srtctl.backends.sglang.topology import Parallelism
from srtctl.backends.sizes import DATA, PIPELINE, TENSOR
from srtctl.diagnostics import Diagnostic, Related
from srtctl.recipe.arguments import Argument, Arguments
from srtctl.recipe.model import Role

#: Flags that srtctl derives from the plan; a recipe that sets one would contradict it. Value: what to write instead.
OWNED: Mapping[str, str] = {
    "nnodes": "it follows from the placement",
    "node-rank": "it follows from the placement",
    "host": "every process listens on 0.0.0.0",
    "model-path": "write `model.path`",
    "dist-init-addr": "it is the leader's address and a claimed port",
}

#: Flags of `python3 -m dynamo.sglang` that the native server does not know.
DYNAMO_ONLY = ("dump-config-to", "endpoint", "namespace", "dyn-tool-call-parser", "dyn-reasoning-parser")


def check_served_names(given: Sequence[Argument]) -> Iterator[Diagnostic]:
    """`--served-model-name` of every role that sets one: a request goes through prefill and decode under one name."""
    for other in given[1:]:
        first = given[0]
        if str(other.value) != str(first.value):
            yield Diagnostic(
                "sglang/served-name",
                f"one deployment serves one model name: `{other.value}` contradicts `{first.value}`",
                other.path,
                hint="write the same name, or leave it to one role",
                related=(Related(f"`{first.value}` is set here", first.path),),
            )


def check_arguments(role: str, settings: Role, args: Arguments, launch: Launch) -> Iterator[Diagnostic]:
    """Faults that can be seen in one role alone."""
    for flag, instead in OWNED.items():
        for item in args.all(flag):
            yield Diagnostic(
                "sglang/owned-flag", f"`--{flag}` is set by srtctl", item.path, hint=f"remove it: {instead}"
            )
    if settings.kv_events is None:
        for item in args.all("kv-events-config"):
            yield Diagnostic(
                "sglang/kv-events-off",
                f"`--kv-events-config` is given, but `kv_events` is off for role `{role}`",
                item.path,
                hint=f"set `roles.{role}.kv_events: true`; the flag itself is rarely needed then",
            )
    if launch is not Launch.wrapper:
        for item in args.all(*DYNAMO_ONLY):
            yield Diagnostic(
                "sglang/dynamo-only-flag",
                f"`--{item.flag}` belongs to `python3 -m dynamo.sglang`; SGLang's own server rejects it",
                item.path,
                hint="remove it, or pass it to the sidecar in `dynamo.sidecar_args`",
            )
    mode = args.get("disaggregation-mode")
    expected = "null" if role == "agg" else role
    if mode is not None and str(mode.value) != expected:
        yield Diagnostic(
            "sglang/role",
            f"`--disaggregation-mode {mode.value}` contradicts role `{role}`",
            mode.path,
            hint="remove it: the role decides",
        )


def check_sizes(role: str, args: Arguments, sizes: Parallelism, gpus: int) -> Iterator[Diagnostic]:
    """Parallelism against the GPUs of one worker (`roles.<role>.gpus`)."""
    where = _path(args, TENSOR, role)
    if sizes.attention_dp and sizes.tp % sizes.dp:
        yield Diagnostic(
            "sglang/dp-divides-tp",
            f"attention DP needs the data-parallel size to divide the tensor-parallel size; {sizes.dp} does not divide {sizes.tp}",
            _path(args, DATA, role),
            hint=f"use a data-parallel size of {_divisors(sizes.tp)}",
        )
    if sizes.gpus != gpus:
        formula = (
            f"TP{sizes.tp}"
            + (f" x PP{sizes.pp}" if sizes.pp > 1 else "")
            + (f" x DP{sizes.dp}" if sizes.ordinary_dp else "")
        )
        yield Diagnostic(
            "sglang/gpu-count",
            f"{formula} is {sizes.gpus} GPU{'s' * (sizes.gpus != 1)}, but each {role} worker has {gpus}",
            where,
            hint=f"change `roles.{role}.gpus` or the parallel sizes so that both are equal",
        )


def check_layout(role: str, args: Arguments, sizes: Parallelism, layout: Layout) -> Iterator[Diagnostic]:
    """Parallelism against where the worker lies."""
    counts = [len(g) for g in layout.gpus]
    if sizes.ordinary_dp and layout.nnodes > 1:
        yield Diagnostic(
            "sglang/ordinary-dp-nodes",
            f"ordinary data parallelism runs inside one node; this {role} worker spans {layout.nnodes}",
            _path(args, DATA, role),
            hint="use one worker a node, or `enable-dp-attention`",
        )
    if len(set(counts)) > 1:
        yield Diagnostic(
            "sglang/uneven-nodes",
            f"SGLang needs the same number of GPUs on every node of a worker; this {role} worker would get {' + '.join(map(str, counts))}",
            f"roles.{role}.gpus",
            hint="use a multiple of the node size, or a divisor of it",
        )
        return
    stage_nodes = max(layout.nnodes // sizes.pp, 1)
    if layout.nnodes > 1 and layout.nnodes % sizes.pp and sizes.pp % layout.nnodes:
        yield Diagnostic(
            "sglang/pipeline-nodes",
            f"{sizes.pp} pipeline stages cannot be spread evenly over {layout.nnodes} nodes",
            _path(args, PIPELINE, role),
            hint="let one divide the other",
        )
    if sizes.tp % stage_nodes:
        yield Diagnostic(
            "sglang/tp-nodes",
            f"the tensor-parallel size must be divisible by the nodes of a pipeline stage; {stage_nodes} does not divide {sizes.tp}",
            _path(args, TENSOR, role),
            hint="choose sizes that divide",
        )


def _path(args: Arguments, names: tuple[str, ...], role: str) -> str:
    found = args.get(*names)
    return found.path if found else f"roles.{role}.gpus"


def _divisors(n: int) -> str:
    if n > 1024:  # no such server exists; a list would not help
        return f"which {n} is a multiple"
    words = [str(d) for d in range(1, n + 1) if n % d == 0]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
