"""How an engine process is started: three ways, decided by sidecar and frontend."""

from __future__ import annotations

from enum import StrEnum

from srtctl.recipe.model import Recipe, Role


class Launch(StrEnum):
    """native: the engine's own server and gRPC, a Dynamo sidecar beside it. wrapper: the engine inside Dynamo's Python
    module, which registers itself. server: the engine's own HTTP server alone, for its own router or for clients."""

    native = "native"
    wrapper = "wrapper"
    server = "server"


def launch_of(recipe: Recipe, role: Role) -> Launch:
    """How the processes of `role` are started."""
    if recipe.frontend.type != "dynamo":
        return Launch.server
    return Launch.native if role.sidecar is not None else Launch.wrapper
