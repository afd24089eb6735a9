"""Direct dispatch: the frontend sends requests to the engines' own gRPC servers, past their sidecars.

Public contract (ai-dynamo/dynamo, docs on direct dispatch; in no release up to 1.6.1): a sidecar that is told
`--advertise-grpc-endpoint` puts it into its model card, and a frontend whose environment has
`DYN_ROUTER_DIRECT_DISPATCH` connects to each such engine; all other workers keep Dynamo's request plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srtctl.diagnostics import Diagnostic
from srtctl.frontends import DYNAMO, router_mode
from srtctl.plan.model import Sidecar as PlannedSidecar
from srtctl.plan.placement import Placed
from srtctl.recipe.arguments import Arguments
from srtctl.recipe.model import Recipe, Sidecar

#: The flag and not `DYN_ADVERTISE_GRPC_ENDPOINT`, which says the same: a sidecar that cannot advertise ignores the
#: variable and serves as ever, while the flag ends it, and is missing in its `--help`, which the job asks beforehand.
FLAG = "advertise-grpc-endpoint"
VARIABLE = "DYN_ROUTER_DIRECT_DISPATCH"

#: What the frontend must be told to call an engine's gRPC server itself, or why it cannot.
DISPATCHERS: Mapping[str, str] = {"vllm": "vllm"}
NO_DISPATCHER: Mapping[str, str] = {
    "sglang": "the only public design for SGLang (ai-dynamo/dynamo#13292) needs another frontend program",
    "trtllm": "no public Dynamo has a frontend that speaks OpenEngine",
}


def advertises(recipe: Recipe, worker: str, role: str) -> bool:
    """Whether the engine of the worker with that name is to be called directly."""
    chosen = _setting(recipe, role)
    return int(worker.rpartition("-")[2]) in chosen if isinstance(chosen, list) else chosen


def advertise_flags(address: str, port: int) -> tuple[str, ...]:
    """What the sidecar beside the gRPC server on that port is told."""
    return f"--{FLAG}", f"{address}:{port}"


def advertised_port(sidecar: PlannedSidecar | None) -> int | None:
    """The gRPC port of the engine beside a planned sidecar, where that advertises it."""
    if sidecar is None or f"--{FLAG}" not in sidecar.argv:
        return None
    return int(sidecar.argv[sidecar.argv.index(f"--{FLAG}") + 1].rpartition(":")[2])


def frontend_env(recipe: Recipe) -> dict[str, str]:
    """What the frontend is told: which engines' gRPC it is to speak, where any worker advertises its own."""
    return {VARIABLE: DISPATCHERS[recipe.engine.type]} if any(_setting(recipe, role) for role in recipe.roles) else {}


def check_direct(recipe: Recipe, placed: Sequence[Placed]) -> Iterator[Diagnostic]:
    """A finding for each role that cannot do what it asks for; paths are recipe paths, spans are not set."""
    for role in recipe.roles:
        yield from _check_flag(role, recipe.roles[role].sidecar)
        if not (chosen := _setting(recipe, role)):
            continue
        own = recipe.roles[role].direct_dispatch is not None
        path = f"roles.{role}.direct_dispatch" if own else "dynamo.direct_dispatch"
        off = "remove it" if own else f"remove it, or set `roles.{role}.direct_dispatch: false`"
        if (found := _obstacle(recipe, role, placed)) is not None:
            code, message, hint = found
            yield Diagnostic(f"direct/{code}", message, path, hint=f"{hint}, or {off}" if hint else off)
        workers = recipe.roles[role].workers
        for number in chosen if isinstance(chosen, list) else ():
            if number >= workers:
                message = f"`{path}` names worker {number}, but the {role} workers are 0 to {workers - 1}"
                yield Diagnostic("direct/worker", message, path, hint="workers count from 0")


def _obstacle(recipe: Recipe, role: str, placed: Sequence[Placed]) -> tuple[str, str, str] | None:
    """Why the role's engines cannot be called directly: the end of a code, the sentence, what to do about it."""
    engine, frontend = recipe.engine.type, recipe.frontend.type
    if engine not in DISPATCHERS:
        return "engine", f"the frontend cannot call {engine} engines itself: {NO_DISPATCHER[engine]}", ""
    if frontend != DYNAMO:
        return (
            "frontend",
            f"frontend `{frontend}` has no sidecars to pass by: direct dispatch is Dynamo's",
            "use `frontend.type: dynamo`",
        )
    sidecar = recipe.roles[role].sidecar
    if sidecar is None:
        return (
            "sidecar",
            f"role `{role}` has no sidecar, which is what tells the frontend where its engine is",
            f"set `roles.{role}.sidecar: true`",
        )
    if sidecar.kind != "native":
        return (
            "sidecar-kind",
            f"role `{role}` speaks OpenEngine, and the frontend calls vLLM's own gRPC alone",
            f"set `roles.{role}.sidecar.kind: native`",
        )
    mode = router_mode(recipe.frontend, any(r.kv_events is not None for r in recipe.roles.values()))
    if mode != "kv":
        return (
            "router-mode",
            f"direct dispatch is a part of the KV router, and the frontend's router mode is `{mode}`",
            "set `frontend.args.router-mode: kv`",
        )
    if any(len(worker.nodes) > 1 and advertises(recipe, worker.name, role) for worker in placed if worker.role == role):
        return (
            "nodes",
            f"a {role} worker over several nodes has its gRPC server on 127.0.0.1 alone: vLLM's Python launcher hands "
            "its Rust server a bound socket, and that binds gRPC to the host it was told itself",
            "use workers of one node",
        )
    return None


def _check_flag(role: str, sidecar: Sidecar | None) -> Iterator[Diagnostic]:
    args = sidecar.args if sidecar else {}
    words = args if isinstance(args, list) else [f"--{item.flag}" for item in Arguments("", args)]
    if any(word.partition("=")[0] == f"--{FLAG}" for word in words):
        yield Diagnostic(
            "direct/owned-flag",
            f"`--{FLAG}` of the {role} sidecars is set by srtctl: each advertises its own engine",
            f"roles.{role}.sidecar",
            hint=f"remove it, and set `roles.{role}.direct_dispatch: true`",
        )


def _setting(recipe: Recipe, role: str) -> bool | list[int]:
    """What holds for a role: true, false, or the numbers of its workers."""
    own = recipe.roles[role].direct_dispatch
    return recipe.dynamo.direct_dispatch if own is None else own
