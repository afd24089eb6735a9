"""Rows of the diagnosis table: direct dispatch that is not there, or not where the plan has it."""

from __future__ import annotations

from srtctl.checks.symptom import Row

_CHECK = ("direct_dispatch",)
_WHERE = "{worker} ({process} on {node})"

ROWS: tuple[Row, ...] = (
    Row(
        "not advertised",
        _CHECK,
        r"it advertises no gRPC endpoint, the plan has (?P<planned>\S+);",
        f"the sidecar of {_WHERE} was told to advertise {{planned}} and registered without it: its Dynamo ({{dynamo}}) "
        "takes the flag, but has no direct dispatch for this engine",
        "use an image whose Dynamo has direct dispatch for vLLM, or set `direct_dispatch: false` for this role",
    ),
    Row(
        "another endpoint advertised",
        _CHECK,
        r"it advertises (?P<found>\S+), (the plan has (?P<planned>\S+);|but the plan keeps it on the request plane)",
        f"the sidecar of {_WHERE} advertises {{found}}, which the plan does not: something else tells it so",
        "remove `DYN_ADVERTISE_GRPC_ENDPOINT` from the image and the node: only `direct_dispatch` is to decide",
    ),
    Row(
        "engine not connected",
        _CHECK,
        r"direct dispatch: connect failed.*?error=\"?(?P<error>[^\"]*)",
        f"the frontend could not connect to the engine of {_WHERE}: {{error}}; it tries again when a worker comes or goes, "
        "and sends its requests through the sidecar until then",
        "can the frontend's node reach that port? Look at logs/{process}.engine.log, then restart the run",
        ("frontend",),
    ),
    Row(
        "frontend without direct dispatch",
        _CHECK,
        r"the frontend has no connection to its gRPC port|requests still came through its sidecar",
        f"the frontend sends the requests of {_WHERE} through its sidecar and has not tried to connect to the engine: its "
        "Dynamo ({dynamo}) ignores `DYN_ROUTER_DIRECT_DISPATCH`, or does not run its KV router",
        "use the same image for frontend and sidecars, and `frontend.args.router-mode: kv`",
    ),
)
