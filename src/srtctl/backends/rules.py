"""Rules that hold for every engine, on the arguments of one role or on the whole recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.backends.base import Layout, PortNeed
from srtctl.backends.launch import Launch
from srtctl.diagnostics import Diagnostic, Related, nearest
from srtctl.recipe.arguments import Argument, Arguments
from srtctl.recipe.engines import SETTINGS
from srtctl.recipe.model import Recipe

#: Flags of the Python modules `dynamo.<engine>` that the engines' own servers do not know (ai-dynamo 1.6.1).
DYNAMO_ONLY = (
    "dump-config-to",
    "endpoint",
    "namespace",
    "request-plane",
    "dyn-tool-call-parser",
    "dyn-reasoning-parser",
)


def check_knobs(recipe: Recipe) -> Iterator[Diagnostic]:
    """A finding for each setting beside `engine.type` that the engine has not."""
    known = SETTINGS[recipe.engine.type]
    for name in recipe.engine.knobs:
        if name in known:
            continue
        near = nearest(name, ("type", *known))
        hint = f"did you mean `{near}`?" if near else "engine flags go into `roles.<role>.args`"
        message = f"`engine.{name}` is not a known key: {recipe.engine.type} has no such setting"
        yield Diagnostic("recipe/unknown-key", message, f"engine.{name}", hint=hint)


def check_served_names(engine: str, recipe: Recipe) -> Iterator[Diagnostic]:
    """`--served-model-name` of every role that sets one: a request goes through prefill and decode under one name."""
    given = [found for args in recipe.arguments.values() if (found := args.get("served-model-name"))]
    for other in given[1:]:
        first = given[0]
        if str(other.value) != str(first.value):
            yield Diagnostic(
                f"{engine}/served-name",
                f"one deployment serves one model name: `{other.value}` contradicts `{first.value}`",
                other.path,
                hint="write the same name, or leave it to one role",
                related=(Related(f"`{first.value}` is set here", first.path),),
            )


def check_owned(engine: str, args: Arguments, owned: Mapping[str, str]) -> Iterator[Diagnostic]:
    """A finding for each flag that srtctl derives from the plan. Value of `owned`: what to write instead."""
    for flag, instead in owned.items():
        for item in args.all(flag):
            yield Diagnostic(
                f"{engine}/owned-flag", f"`--{flag}` is set by srtctl", item.path, hint=f"remove it: {instead}"
            )


def check_kv_events_on(engine: str, recipe: Recipe, role: str) -> Iterator[Diagnostic]:
    """`--kv-events-config` alone would publish to nobody."""
    if recipe.roles[role].kv_events is None:
        for item in recipe.arguments[role].all("kv-events-config"):
            yield Diagnostic(
                f"{engine}/kv-events-off",
                f"`--kv-events-config` is given, but `kv_events` is off for role `{role}`",
                item.path,
                hint=f"set `roles.{role}.kv_events: true`; the flag itself is rarely needed then",
            )


def check_dynamo_only(engine: str, title: str, args: Arguments, launch: Launch) -> Iterator[Diagnostic]:
    """Flags of Dynamo's wrapper on a server of the engine's own."""
    if launch is Launch.wrapper:
        return
    for item in args.all(*DYNAMO_ONLY):
        yield Diagnostic(
            f"{engine}/dynamo-only-flag",
            f"`--{item.flag}` belongs to `python3 -m dynamo.{engine}`; {title}'s own server rejects it",
            item.path,
            hint="remove it, or pass it to the sidecar in `dynamo.sidecar_args`",
        )


def check_mode(engine: str, role: str, args: Arguments, aggregated: str) -> Iterator[Diagnostic]:
    """`--disaggregation-mode` must say what the role says; `aggregated` is the engine's word for `agg`."""
    mode = args.get("disaggregation-mode")
    if mode is not None and str(mode.value) != (aggregated if role == "agg" else role):
        message = f"`--disaggregation-mode {mode.value}` contradicts role `{role}`"
        yield Diagnostic(f"{engine}/role", message, mode.path, hint="remove it: the role decides")


def check_ports(args: Arguments, flags: Sequence[str]) -> Iterator[Diagnostic]:
    """Every flag that holds a port must hold one."""
    for flag in flags:
        for item in args.all(flag):
            if isinstance(item.value, bool) or not str(item.value).isdecimal() or not 0 < int(item.value) < 65536:
                yield Diagnostic(
                    "args/port",
                    f"`{flag}` must be a port number, not {item.value!r}",
                    item.path,
                    hint="write 1 to 65535, or leave it out",
                )


def check_even(engine: str, title: str, role: str, layout: Layout) -> Iterator[Diagnostic]:
    """The same number of GPUs on every node of a worker."""
    counts = [len(gpus) for gpus in layout.gpus]
    if len(set(counts)) > 1:
        shares = " + ".join(map(str, counts))
        yield Diagnostic(
            f"{engine}/uneven-nodes",
            f"{title} needs the same number of GPUs on every node of a worker; this {role} worker would get {shares}",
            f"roles.{role}.gpus",
            hint="use a multiple of the node size, or a divisor of it",
        )


def gpu_count(engine: str, role: str, formula: str, needed: int, gpus: int, path: str) -> Diagnostic:
    """The finding that the parallel sizes (`formula`, such as `TP8 x PP2`) do not make the GPUs of a worker."""
    return Diagnostic(
        f"{engine}/gpu-count",
        f"{formula} is {needed} GPU{'s' * (needed != 1)}, but each {role} worker has {gpus}",
        path,
        hint=f"change `roles.{role}.gpus` or the parallel sizes so that both are equal",
    )


def need(purpose: str, written: Argument | None) -> PortNeed:
    """One port, the one that the user wrote if there is one."""
    return PortNeed(purpose) if written is None else PortNeed(purpose, 1, int(written.value), written.path)


def path_of(args: Arguments, names: tuple[str, ...], role: str) -> str:
    """Where a size is written, else where the GPUs of the role are."""
    found = args.get(*names)
    return found.path if found else f"roles.{role}.gpus"
