"""The sidecar of `sidecar: {kind: openengine}`: one program for every engine. The engine's side: `backends/openengine.py`."""

from __future__ import annotations

from srtctl.recipe.model import Sidecar

PROGRAM = "dynamo-openengine-sidecar"
"""Dynamo's engine-neutral sidecar (its public `lib/sidecar/openengine`), where the recipe names no other."""


def sidecar_command(
    settings: Sidecar, role: str, native: tuple[str, ...], grpc_port: int, model_path: str
) -> tuple[str, ...]:
    """The command of a sidecar; `native` is that of the engine's own, `python3 -m …` first.

    What the released OpenEngine sidecar cannot discover, role and tokenizer, every one of them is told.
    """
    if settings.kind == "native":
        return native if settings.binary is None else (settings.binary, *native[3:])
    program, endpoint = settings.binary or PROGRAM, f"127.0.0.1:{grpc_port}"
    argv = (program, "--grpc-endpoint", endpoint, "--model-path", model_path)
    return argv if role == "agg" else (*argv, "--disaggregation-mode", role)
