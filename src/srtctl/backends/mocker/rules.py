"""What a mocker cannot do, said before the queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.backends.base import Layout
from srtctl.backends.rules import check_mode, check_owned
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.model import KvEvents, Recipe

_WORKERS = "raise `workers`: each is a process of its own"
_PORT = "it is a claimed port, which `srtctl plan` shows"
_PLANE = "Dynamo's planes are set in `dynamo`, for all processes"

#: Flags that srtctl derives from the plan. Value: what to write instead.
OWNED: Mapping[str, str] = {
    "model-path": "write `model.path`",
    "num-workers": _WORKERS,
    "stagger-delay": _WORKERS,
    "is-prefill-worker": "the role decides",
    "is-decode-worker": "the role decides",
    "bootstrap-ports": _PORT,
    "zmq-kv-events-ports": _PORT,
    "zmq-replay-ports": "nothing replays KV events",
    "discovery-backend": _PLANE,
    "request-plane": _PLANE,
    "event-plane": _PLANE,
}


def check_recipe(recipe: Recipe, name_flag: str) -> Iterator[Diagnostic]:
    """Faults that no single role shows; `name_flag` is the flag of the served name."""
    if recipe.frontend.type != "dynamo":
        yield Diagnostic(
            "mocker/frontend",
            f"a mocker has no HTTP server: frontend `{recipe.frontend.type}` would reach nothing",
            "frontend.type",
            hint="use `dynamo`, with which it registers",
        )
    names = [found for args in recipe.arguments.values() if (found := args.get(name_flag))]
    for other in names[1:]:
        if str(other.value) != str(names[0].value):
            message = f"one deployment serves one model name: `{other.value}` contradicts `{names[0].value}`"
            yield Diagnostic("mocker/model-name", message, other.path, hint="write the same name")


def check_arguments(recipe: Recipe, role: str) -> Iterator[Diagnostic]:
    """Faults that can be seen in one role alone."""
    settings, args = recipe.roles[role], recipe.arguments[role]
    yield from check_owned("mocker", args, OWNED)
    yield from check_mode("mocker", role, args, "agg")
    if settings.sidecar is not None:
        yield Diagnostic(
            "mocker/sidecar",
            "a mocker is engine and sidecar in one process, and has no gRPC server",
            f"roles.{role}.sidecar",
            hint="remove it",
        )
    if settings.kv_events is not None and settings.kv_events != KvEvents():
        yield Diagnostic(
            "mocker/kv-events",
            "a mocker publishes under a topic of its own choice",
            f"roles.{role}.kv_events",
            hint="write `kv_events: true`",
        )
    if role == "decode" and settings.kv_events is not None:
        message = "a mocker publishes no KV events in decode"
        yield Diagnostic("mocker/kv-events", message, "roles.decode.kv_events", hint="set it to false")
    for item in args.all("no-enable-prefix-caching") if settings.kv_events is not None else ():
        if item.value is not False:
            message = f"role `{role}` publishes KV events, but its prefix cache is off, so there is nothing to publish"
            hint = f"remove it, or set `roles.{role}.kv_events: false`"
            yield Diagnostic("mocker/no-prefix-cache", message, item.path, hint=hint)


def check_layout(role: str, layout: Layout) -> Iterator[Diagnostic]:
    """A mocker is one process."""
    if layout.nnodes > 1:
        yield Diagnostic(
            "mocker/nodes",
            f"a mocker is one process on one node; this {role} worker would span {layout.nnodes}",
            f"roles.{role}.gpus",
            hint="give a worker at most the GPUs of a node, or raise `workers`",
        )
