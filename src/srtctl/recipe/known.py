"""What srtctl knows of the recipe vocabulary but does not build yet, and where the keys of the v1 layout went.

A key here is an error with its reason; with `--allow-unsupported` it is a warning and the recipe is read without it.
Building one means: remove its row, add its field to `model`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from srtctl.diagnostics import Diagnostic, nearest
from srtctl.reading.build import KeyPath
from srtctl.reading.document import YamlDocument, dotted, matches
from srtctl.reading.fields import known_keys, owners
from srtctl.recipe.model import ROLE_NAMES, Recipe


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """One row: keys that match `pattern` (`*` within one level) and whose value is one of `values` (empty: any value).

    `drop` names what is left out with --allow-unsupported, if not the key itself. Without `optional` nothing can be
    left out: the recipe means nothing without it, and `instead` only lets the rest be checked.
    """

    pattern: str
    reason: str
    values: tuple[Any, ...] = ()
    drop: str = ""
    optional: bool = True
    instead: Any = None


_ENGINES = ("mocker",)
_BENCHMARKS = (
    "aiperf", "custom", "gpqa", "gsm8k", "gsm8k-bench", "longbenchv2", "mmlu", "mooncake-router", "router", "sa-bench",
    "trace-replay",
)  # fmt: skip

_BENCHMARK_SETTINGS = (
    "isl", "osl", "concurrencies", "req_rate", "command", "env", "aiperf_package", "custom_tokenizer", "itl_threshold_ms",
    "max_tokens", "mooncake_workload", "num_examples", "num_prompts_mult", "num_shots", "num_threads", "num_warmup_mult",
    "random_range_ratio", "repeat", "slow_down_sleep_time", "slow_down_wait_time", "temperature", "top_k", "top_p",
    "trace_file", "ttft_threshold_ms", "use_chat_template",
)  # fmt: skip

NOT_BUILT: tuple[NotBuilt, ...] = (
    NotBuilt("engine", "no backend plans it", _ENGINES, optional=False, instead="sglang"),
    NotBuilt("engine.type", "no backend plans it", _ENGINES, "engine", optional=False, instead="sglang"),
    NotBuilt("roles.*.engine", "one engine serves every role"),
    NotBuilt("roles.*.container", "every role uses `model.container`"),
    NotBuilt("roles.*.critical", "the first failure of any process ends the job"),
    NotBuilt("roles.*.restart", "the first failure of any process ends the job"),
    NotBuilt("roles.*.srun_options", "further srun options"),
    NotBuilt("roles.*.sidecar.kind", "the sidecar that belongs to the engine is the only kind"),
    NotBuilt("resources.het_jobs", "heterogeneous jobs schedule badly and complicate node order", (True,)),
    NotBuilt("dynamo.install", "the image must hold Dynamo", (True,)),
    NotBuilt("dynamo.source", "the image must hold Dynamo"),
    NotBuilt("dynamo.direct_dispatch", "requests go through the router"),
    NotBuilt("dynamo.sidecar_port", "sidecars get claimed ports"),
    NotBuilt("dynamo.sidecar_binary", "the sidecar is the Python module in the image"),
    NotBuilt("frontend.enable_multiple_frontends", "one frontend serves the run", (True,)),
    NotBuilt("frontend.num_additional_frontends", "one frontend serves the run"),
    NotBuilt("frontend.nginx_*", "one frontend serves the run, without nginx before it"),
    NotBuilt("benchmark.type", "only `manual` is built, which serves until cancelled", _BENCHMARKS, "benchmark"),
    *(
        NotBuilt(f"benchmark.{key}", "only `manual` is built, and takes no settings")
        for key in _BENCHMARK_SETTINGS
    ),
    NotBuilt("infra.nats_max_payload_mb", "NATS takes payloads of up to 1 MB, its default"),
    NotBuilt("container_mounts", "mounts come from the cluster profile"),
    NotBuilt("extra_mount", "mounts come from the cluster profile"),
    NotBuilt("srun_options", "further srun options"),
    NotBuilt("setup_script", "a script before the engines start"),
    NotBuilt("post_eval", "an evaluation after the benchmark"),
    NotBuilt("identity", "labels of model, image and frameworks"),
    NotBuilt("reporting", "sending results elsewhere"),
    NotBuilt("profiling", "profiler windows"),
    NotBuilt("telemetry", "metrics collection"),
    NotBuilt("observability", "metrics collection"),
    NotBuilt("services", "extra processes beside the deployment"),
    NotBuilt("enable_config_dump", "the bundle holds every setting as it runs"),
)  # fmt: skip

_V1_TABLE = {
    "prefill_environment": "roles.prefill.env",
    "decode_environment": "roles.decode.env",
    "aggregated_environment": "roles.agg.env",
    "kv_events_config": "roles.*.kv_events",
    "type": "engine",
}
MOVED: dict[str, str] = {
    "backend": "`engine` and `roles`",
    **{f"backend.{old}": f"`{new}`" for old, new in _V1_TABLE.items()},
    **{f"resources.{role}_{key}": f"`roles.{role}.{key}`" for role in ROLE_NAMES for key in ("nodes", "workers")},
    **{f"resources.gpus_per_{role}": f"`roles.{role}.gpus`" for role in ROLE_NAMES},
    **{
        f"dynamo.{key}": "`dynamo.source`, which is not built yet"
        for key in ("version", "hash", "wheel", "top_of_tree")
    },
}


def key_hint(path: KeyPath) -> str:
    """What to say about an unknown key beyond its neighbours: a v1 key's new place, an engine flag outside `args`."""
    if new := MOVED.get(dotted(path)):
        return f"this is the v1 layout; in v2 it is {new}"
    if len(path) == 3 and path[0] == "roles" and path[1] in ROLE_NAMES:
        name = str(path[2])
        if not nearest(name, known_keys(Recipe, path[:2])) and not owners(Recipe, name):
            return f"engine flags go into `{dotted(path[:2])}.args`"
    return ""


def sift(document: YamlDocument, data: Any, *, allow_unsupported: bool) -> tuple[Any, list[Diagnostic]]:
    """`data` without what is not built, and a Diagnostic for each such key (a warning where it may be left out)."""
    kept, found = copy.deepcopy(data), []
    for row in NOT_BUILT:
        for path, value in list(matches(kept, row.pattern)):
            if row.values and not any(value == listed and type(value) is type(listed) for listed in row.values):
                continue
            found.append(_diagnostic(row, path, value, document, allow_unsupported))
            _replace(kept, tuple(row.drop.split(".")) if row.drop else path, row.instead)
    return kept, found


def _diagnostic(row: NotBuilt, path: KeyPath, value: Any, document: YamlDocument, allowed: bool) -> Diagnostic:
    subject = f"`{dotted(path)}`" + (f" {value}" if row.values and isinstance(value, str) else "")
    span = document.span(path, key=not row.values)
    if allowed and row.optional:
        left_out = f"`{row.drop}`" if row.drop else "it"
        message = f"{subject} is known but not built yet, {left_out} is left out: {row.reason}"
        return Diagnostic("recipe/not-built", message, dotted(path), span, severity="warning")
    hint = "remove it, or pass --allow-unsupported to go on without it" if row.optional else "use another engine"
    return Diagnostic(
        "recipe/not-built", f"{subject} is known but not built yet: {row.reason}", dotted(path), span, hint
    )


def _replace(data: Any, path: KeyPath, instead: Any) -> None:
    """Remove what is at `path`, or put `instead` there; nothing happens where an earlier row removed it already."""
    for part in path[:-1]:
        data = data.get(part, {})
    if instead is None:
        data.pop(path[-1], None)
    else:
        data[path[-1]] = instead
