"""Rows of the diagnosis table: what goes wrong until every rank is registered.

Texts of processes are those of Dynamo 1.6.1 and SGLang 0.5.x as recorded in tests and design notes.
"""

from __future__ import annotations

from srtctl.checks.symptom import BEFORE, Row, Symptom

_REGISTRATION = (BEFORE, "registration")


def _no_event_source(symptom: Symptom) -> bool:
    return "KV event source" in symptom.message


def _unregistered(symptom: Symptom) -> bool:
    return "no registration of its sidecar" in symptom.message


ROWS: tuple[Row, ...] = (
    # ---- the engine's word against the sidecar's
    Row(
        "folded dp_size",
        _REGISTRATION,
        r"KV source rank (?P<source>\d+) is outside dp_size (?P<size>\d+)",
        "{process} on {node}: the engine reports [{engine}], the sidecar ({dynamo}) says `KV source rank {source} is "
        "outside dp_size {size}`: it checks KV source ranks against `dp_size` alone, where newer SGLang folds attention "
        "DP into `attn_dp_size`",
        "use a Dynamo whose sidecar reads attn_dp_size, or an SGLang that reports the real dp_size; until then say "
        "`kv_events: false` for this role",
        ("message", "sidecar"),
    ),
    Row(
        "engine too old",
        _REGISTRATION,
        r"requires GetServerInfo\.kv_event_sources|GetServerInfo does not map DP ranks to publisher hosts",
        "{process} on {node}: the engine [{engine}] is too old for KV events over several nodes: the sidecar ({dynamo}) "
        "needs `kv_event_sources` in its GetServerInfo",
        "use an SGLang with sgl-project/sglang#39659 (node-local kv_event_sources, also on followers), or say "
        "`kv_events: false` for this role",
        ("message", "sidecar"),
    ),
    Row(
        "follower without publisher",
        _REGISTRATION,
        r"telemetry-only node has no local KV sources",
        "{process} on {node}: the plan has a KV publisher there, the engine [{engine}] has none on that node",
        "compare `enable-dp-attention` and the sizes in the recipe with what the engine reports",
        ("message", "sidecar"),
    ),
    Row(
        "group already published",
        _REGISTRATION,
        r"local KV rank (?P<rank>\d+) is already published by the leader",
        "{process} on {node}: its sidecar found a leader that publishes rank {rank} itself, so two workers run under one "
        "distributed group (`dist-init-addr`), or two processes under one node rank",
        "give each worker its own `--dist-init-addr` and each node its own `--node-rank`",
        ("message", "sidecar"),
    ),
    Row(
        "one group for two workers",
        _REGISTRATION,
        r"multiple SGLang leaders registered for group (?P<group>\S+)",
        "{process} on {node}: several workers run under one distributed group, {group}, so its sidecar cannot tell its "
        "leader; the engine reports [{engine}]",
        "give each worker its own `--dist-init-addr`",
        ("message", "sidecar"),
    ),
    Row(
        "no incremental output",
        _REGISTRATION,
        r"requires incremental streaming output",
        "{process} on {node}: the engine streams whole texts, its sidecar needs increments",
        "do not turn `incremental-streaming-output` off behind a sidecar",
        ("message", "sidecar"),
    ),
    Row(
        "no bootstrap host",
        _REGISTRATION,
        r"could not derive a routable prefill bootstrap host|did not report disaggregation_bootstrap_port",
        "{process} on {node}: the prefill sidecar does not know where its engine's bootstrap server is",
        "start the prefill leader's sidecar with `--bootstrap-host <leader address>` and its engine with "
        "`--disaggregation-bootstrap-port`",
        ("message", "sidecar"),
    ),
    Row(
        "port taken",
        (BEFORE,),
        r"(?i)address already in use|cannot assign requested address",
        "{process} on {node}: something else on that node has a port that the process binds",
        "if two workers share the node, claim the whole range of each (KV events: base + global DP rank); else set "
        "`resources.port_offset`",
    ),
    Row(
        "NATS not there",
        _REGISTRATION,
        r"NATS not reachable yet|(?i:\bnats\b.*(refused|failed to connect|timed out))",
        "{process} on {node}: Dynamo is told to use NATS, and no NATS server answers",
        "start NATS (a service of the run when `dynamo.event_plane` or `dynamo.request_plane` is `nats`), or use the "
        "planes `zmq` and `tcp`",
        ("message", "sidecar"),
    ),
    Row(
        "module missing",
        (BEFORE,),
        r"No module named '?(?P<module>[\w.]+)'?|Error while finding module specification for '(?P<other>[\w.]+)'",
        "{process} on {node}: the Python of that container has no module {module}{other}",
        "use an image that holds it: sidecars need ai-dynamo 1.6.1 or newer, engines their own package",
    ),
    Row(
        "flag unknown",
        (BEFORE,),
        r"(unrecognized arguments|unexpected argument|no such option)[: ]+(?P<flags>.*)",
        "{process} on {node}: the installed version does not know {flags}",
        "use a version that knows the flag, or remove it from the recipe's `args`",
    ),
    # ---- processes
    Row(
        "sidecar not started",
        ("placement",),
        r"(?P<who>\S+) sidecar does not run on (?P<where>\S+?)(?:;| but|$)",
        "nothing started the sidecar of {who} on {where}: a node that holds a KV publisher needs one, or no event of "
        "its ranks reaches the router",
        "start it beside the engine with `--grpc-endpoint` alone; a follower's selects telemetry mode by itself",
    ),
    Row(
        "wrong GPUs",
        ("placement",),
        r"(?P<who>\S+ engine) on (?P<where>\S+) has GPUs (?P<found>.*?), the plan gives it (?P<planned>[\d,]+)",
        "{who} runs on GPUs {found} of {where}, its own are {planned}",
        "let nothing overwrite CUDA_VISIBLE_DEVICES: neither the recipe's `environment` nor the image",
    ),
    # ---- registration
    Row(
        "one group for two workers",
        ("registration",),
        r"(?P<one>\S+) and (?P<two>\S+) registered as one distributed group, (?P<group>\S+)",
        "{one} and {two} run under one distributed group ({group}), so a follower's sidecar cannot tell its leader",
        "give each worker its own `--dist-init-addr`",
    ),
    Row(
        "leader not found",
        ("registration",),
        r"Waiting for SGLang leader.*group=\"?(?P<group>[^\"\s]+)",
        "the sidecar of {process} on {node} finds no leader of its group {group}: the engine reports another "
        "`dist_init_addr` than its leader's, or the leader registered elsewhere",
        "use one `--dist-init-addr` on all nodes of a worker, and one namespace, component and endpoint for its sidecars",
        ("sidecar",),
        _no_event_source,
    ),
    Row(
        "wrong bootstrap address",
        ("registration",),
        r"announces .*bootstrap server.*, the plan has it at (?P<planned>\S+) \((?P<home>[^)]+)\)",
        "{worker} announces a bootstrap address where no decode engine will find its cache; its bootstrap server is at "
        "{planned}, on {home}, the node of its leader",
        "start only the prefill leader's sidecar with `--bootstrap-host`, with its own node's address",
    ),
    Row(
        "router mode",
        ("registration",),
        r"the router has nobody|no dynamo_component_router\w+ for .*is its router mode kv",
        "the frontend does not run with `--router-mode kv`, so it keeps no index, whatever the engines publish",
        "set `frontend.args.router-mode: kv`, or `kv_events: false` where events are not wanted",
    ),
    Row(
        "fewer ranks",
        ("registration",),
        r"registered DP ranks (?P<found>\[.*?\]), the plan has (?P<planned>\[.*?\])",
        "{worker} registered DP ranks {found} of {planned}: the sidecar takes `dp_size` from the engine on {node}, which "
        "reports [{engine}]",
        "use an engine whose GetServerInfo reports the planned dp_size, or correct `data-parallel-size` in the recipe",
    ),
    Row(
        "engine not healthy",
        ("registration",),
        r"SGLang not healthy yet; retrying|vLLM .*, not SERVING",
        "the engine of {process} on {node} listens, but says that it is not healthy, so its sidecar waits and does not "
        "register",
        "look at logs/{process}.engine.log: it is still loading, or a rank of it is stuck; raise `health_check` if it is slow",
        ("sidecar", "engine"),
        _unregistered,
    ),
    Row(
        "no event source",
        ("registration",),
        r"no KV event source registered, the plan has one, published on node \d+ (?P<place>port \d+|on a port of its choice)",
        "no sidecar relays the KV events of {worker} rank {dp_rank}, which {process} publishes on {node} {place}; the "
        "engine reports [{engine}]",
        "each node with a KV publisher needs a sidecar beside its engine; look at logs/{process}.sidecar.log",
    ),
)
