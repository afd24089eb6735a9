"""Rows of the diagnosis table: an engine that says over OpenEngine that it is not what the plan needs."""

from __future__ import annotations

from srtctl.checks.symptom import Row

_WHERE = "{worker} ({process} on {node})"

ROWS: tuple[Row, ...] = (
    Row(
        "schema revisions apart",
        ("capabilities",),
        r"speaks schema revision (?P<server>\d+), for clients from revision (?P<minimum>\d+); the sidecar has revision (?P<client>\d+)",
        f"the engine of {_WHERE} speaks OpenEngine revision {{server}} and takes clients from revision {{minimum}}; the "
        "sidecar ({dynamo}) has revision {client}",
        "use an engine and a Dynamo whose OpenEngine revisions overlap, or `sidecar.kind: native`",
    ),
    Row(
        "another role",
        ("capabilities",),
        r"reports role (?P<found>\w+), the plan has it as (?P<planned>\w+)",
        f"the engine of {_WHERE} says that its role is {{found}}, it was planned as {{planned}}",
        "is the role among its flags (`--disaggregation-mode`, `--server_role`, `kv_role`), and nothing else in its image?",
    ),
    Row(
        "another model",
        ("capabilities",),
        r"serves model (?P<found>.*), the plan serves (?P<planned>.*)",
        f"the engine of {_WHERE} answers to {{found}} and not to {{planned}}",
        "use one `served-model-name` for all roles, or leave it out",
    ),
    Row(
        "KV events by other means",
        ("capabilities",),
        r"(?P<what>reports no source of KV events.*|publishes the KV events.*)",
        f"the engine of {_WHERE} {{what}}",
        "are KV events among its flags? Else say `kv_events: false` for this role",
    ),
    Row(
        "handoffs apart",
        ("capabilities",),
        r"hands KV caches over as (?P<ours>.*), (?P<other>\S+) as (?P<theirs>.*)",
        f"the engine of {_WHERE} hands KV caches over as {{ours}}, that of {{other}} as {{theirs}}: neither can read the "
        "other's sessions",
        "use one engine, version and transfer backend for prefill and decode",
    ),
    Row(
        "feature missing",
        ("capabilities",),
        r"reports no (?P<feature>lora|multimodal) support",
        f"the engine of {_WHERE} was started for {{feature}} and says that it has none",
        "look at logs/{process}.engine.log; does the model have it?",
    ),
)
