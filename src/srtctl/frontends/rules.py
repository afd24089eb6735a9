"""Frontend flags that srtctl derives itself, or that the frontend would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.diagnostics import Diagnostic, did_you_mean
from srtctl.frontends.kinds import has_process
from srtctl.reading.validation import shown
from srtctl.recipe.arguments import Arguments
from srtctl.recipe.model import Recipe

_CLAIMED = "it gets a claimed port, which `srtctl plan` and `srtctl status` show"
_EVERYWHERE = "it listens on 0.0.0.0"
_WORKERS = "they follow from the placement"

#: By kind of frontend: flags that a recipe cannot set, and what srtctl does about each.
OWNED: Mapping[str, Mapping[str, str]] = {
    "dynamo": {"http-host": _EVERYWHERE, "http-port": _CLAIMED},
    "sglang-router": {"host": _EVERYWHERE, "port": _CLAIMED}
    | dict.fromkeys(("worker-urls", "pd-disaggregation", "prefill", "decode"), _WORKERS),
    "trtllm_serve": dict.fromkeys(("config-file", "config_file", "config", "c"), "srtctl writes it"),
    "vllm-router": {"host": _EVERYWHERE, "port": _CLAIMED}
    | dict.fromkeys(("worker-urls", "vllm-pd-disaggregation", "prefill", "decode"), _WORKERS),
}

#: `--router-mode` of ai-dynamo 1.6.1 (dynamo/common/configuration/groups/router_args.py).
ROUTER_MODES = ("round-robin", "random", "power-of-two", "kv", "direct", "least-loaded", "device-aware-weighted")


def check_frontend(recipe: Recipe) -> Iterator[Diagnostic]:
    """A finding for each flag of `frontend.args` that cannot hold; paths are recipe paths, spans are not set."""
    frontend = recipe.frontend
    args = Arguments("frontend.args", frontend.args)
    if not has_process(recipe):
        for item in args:
            message = f"`--{item.flag}` reaches nothing: frontend `{frontend.type}` is no process of its own"
            yield Diagnostic("frontend/no-process", message, item.path, hint="remove it, or choose another frontend")
        return
    for flag, instead in OWNED[frontend.type].items():
        for item in args.all(flag):
            message = f"`--{flag}` of the frontend is set by srtctl"
            yield Diagnostic("frontend/owned-flag", message, item.path, hint=f"remove it: {instead}")
    for item in args.all("router-mode") if frontend.type == "dynamo" else ():
        if item.value not in ROUTER_MODES:
            message = f"`router-mode` must be one of {', '.join(ROUTER_MODES)}, not {shown(item.value)}"
            yield Diagnostic(
                "frontend/router-mode", message, item.path, hint=did_you_mean(str(item.value), ROUTER_MODES)
            )
