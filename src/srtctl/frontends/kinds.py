"""The kinds of frontend: whose servers each stands before, and whether it is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from srtctl.diagnostics import Diagnostic
from srtctl.frontends.sglang_router import sglang_router
from srtctl.frontends.targets import Router
from srtctl.frontends.trtllm_serve import trtllm_disaggregated
from srtctl.frontends.vllm_router import vllm_router
from srtctl.recipe.model import Recipe


@dataclass(frozen=True, slots=True)
class Kind:
    """`engine`: the only engine it goes with (empty: any). `direct`: an aggregated worker takes the requests itself.
    `router`: the process before workers that serve HTTP."""

    engine: str = ""
    direct: bool = False
    router: Router | None = None


DYNAMO = "dynamo"
KINDS: Mapping[str, Kind] = {
    DYNAMO: Kind(),
    "sglang-router": Kind("sglang", router=sglang_router),
    "vllm-router": Kind("vllm", router=vllm_router),
    "sglang": Kind("sglang", direct=True),
    "vllm": Kind("vllm", direct=True),
    "trtllm_serve": Kind("trtllm", direct=True, router=trtllm_disaggregated),
    "none": Kind(),
}


def is_direct(recipe: Recipe) -> bool:
    """Whether clients talk to the one worker itself."""
    return KINDS[recipe.frontend.type].direct and "agg" in recipe.roles


def router_of(recipe: Recipe) -> Router | None:
    """The engine's own router, where the frontend is one."""
    return None if is_direct(recipe) else KINDS[recipe.frontend.type].router


def has_process(recipe: Recipe) -> bool:
    """Whether the frontend is a process of its own."""
    return recipe.frontend.type == DYNAMO or router_of(recipe) is not None


def check_kind(recipe: Recipe) -> Iterator[Diagnostic]:
    """What the kind of frontend rules out."""
    name = recipe.frontend.type
    kind = KINDS[name]
    if kind.engine and kind.engine != recipe.engine.type:
        yield Diagnostic(
            "plan/frontend-engine",
            f"frontend `{name}` goes with engine `{kind.engine}`; this recipe runs `{recipe.engine.type}`",
            "frontend.type",
            hint=f"use {_others(recipe.engine.type)}",
        )
    several = recipe.frontend.enable_multiple_frontends and recipe.frontend.num_additional_frontends > 0
    if several and name != DYNAMO:
        yield Diagnostic(
            "plan/several-frontends",
            f"several frontends behind nginx are for frontend `{DYNAMO}`; this recipe has `{name}`",
            "frontend.enable_multiple_frontends",
            hint=f"say `enable_multiple_frontends: false`, or use `frontend.type: {DYNAMO}`",
        )
    for role_name, role in recipe.roles.items() if name != DYNAMO else ():
        if role.sidecar is not None:
            yield Diagnostic(
                "plan/sidecar-frontend",
                f"a sidecar registers its engine with Dynamo, which frontend `{name}` does not use",
                f"roles.{role_name}.sidecar",
                hint="use `frontend.type: dynamo`, or remove the sidecar",
            )
    workers = sum(role.workers for role in recipe.roles.values())
    if kind.direct and (workers != 1 if is_direct(recipe) else kind.router is None):
        routers = " or ".join(f"`{other}`" for other, row in KINDS.items() if row.router and row.engine == kind.engine)
        yield Diagnostic(
            "plan/direct-frontend",
            f"frontend `{name}` is one aggregated worker that clients talk to; this recipe has {workers} workers",
            "frontend.type",
            hint=f"use {f'{routers} or ' if routers else ''}`dynamo` for several workers or prefill and decode",
        )


def _others(engine: str) -> str:
    return ", ".join(f"`{name}`" for name, kind in KINDS.items() if kind.engine in ("", engine))
