"""Extra processes beside the deployment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from srtctl.reading.types import EnvTable, Text, as_tuple
from srtctl.reading.validation import Strict, refuse, shown

PortNumber = Annotated[int, Field(ge=1, le=65535)]
_STARTS = {"infra": "before", "before_workers": "before", "after_frontend": "after"}


def _command(value: Any) -> Any:
    """A list of words, or text that bash runs → a tuple of words."""
    if isinstance(value, str) and value.strip():
        return ("bash", "-c", value)
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return tuple(value)
    if isinstance(value, tuple):
        return value
    hint = "a list is run as it is, text by bash; quote each word that is not text"
    raise refuse("type", f"must be a list of words, or text, not {shown(value)}", hint)


def _placed(value: Any) -> Any:
    if value == "head":
        return 0
    if value in ("infra", "dedicated") or (type(value) is int and value >= 0):
        return value
    hint = "one process on one node: give several services where several nodes need one"
    raise refuse("value", f"must be a node counted from 0, `head`, `infra` or `dedicated`, not {shown(value)}", hint)


def _port(value: Any) -> Any:
    if value is None or value == "auto" or (type(value) is int and 1 <= value <= 65535):
        return value
    quoted = isinstance(value, str) and value.isdecimal()
    hint = f"remove the quotes: {value}" if quoted else "`auto`: srtctl chooses one that is free in the plan"
    raise refuse("value", f"must be a port, 1 to 65535, or `auto`, not {shown(value)}", hint)


def _start(value: Any) -> Any:
    """The public words for when a service starts, as ours."""
    return _STARTS.get(value, value) if isinstance(value, str) else value


def _readiness(value: Any) -> Any:
    """`{tcp: {port: 9000}}` as `{port: 9000}`; true and false stay."""
    if isinstance(value, dict) and isinstance(value.get("tcp"), dict):
        return {**{key: kept for key, kept in value.items() if key != "tcp"}, **value["tcp"]}
    if isinstance(value, dict) and (other := next((key for key in ("http", "log", "file") if key in value), "")):
        raise refuse("value", f"asks for `{other}`, which is not built", "`port`: it is ready when the port answers")
    return value


class Readiness(Strict):
    """When a service is ready: its port answers."""

    port: PortNumber = Field(description="The port that answers when it is up.")


class ServicePlacement(Strict):
    """Where a service runs."""

    node: Annotated[
        int | Literal["infra", "dedicated"],
        BeforeValidator(
            _placed, json_schema_input_type=Annotated[int, Field(ge=0)] | Literal["head", "infra", "dedicated"]
        ),
    ] = Field(
        default=0,
        description="Node of the job, counted from 0 (`head`); `infra`: where etcd and NATS run; `dedicated`: one more "
        "node, for this alone.",
    )


class ExtraService(Strict):
    """An extra process beside the deployment. Its end is the end of the job, as everybody's is."""

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$",
        description="Its name, and that of its log: letters, digits, `_` and `-`, a letter first.",
    )
    type: Literal["generic"] = Field(
        default="generic", description="Kind of service: `generic`, which runs exactly what `command` says."
    )
    enabled: bool = Field(default=True, description="`false` leaves it out.")
    command: Annotated[tuple[str, ...], BeforeValidator(_command, json_schema_input_type=list[str] | Text)] = Field(
        description="A list of words, or text that bash runs. `{port}`, `{node_ip}`, `{head_ip}`, `{infra_ip}` and "
        "`{gpus_per_node}` are filled in.",
        examples=[["python3", "-m", "my_exporter", "--port", "{port}"], "exec ./proxy --listen {node_ip}:{port}"],
    )
    args: Annotated[tuple[str, ...], BeforeValidator(as_tuple, json_schema_input_type=list[str])] = Field(
        default=(), description="Words after those of `command`."
    )
    env: EnvTable = Field(default_factory=dict, description="Its environment; placeholders as in `command`.")
    inherit_discovery_env: bool = Field(
        default=True, description="Tell it where etcd and NATS are, as Dynamo's own processes are told."
    )
    container: Text | None = Field(default=None, description="Its image; default: `model.container`.")
    placement: ServicePlacement = Field(default_factory=ServicePlacement, description="Where it runs.")
    port: Annotated[
        int | Literal["auto"] | None,
        BeforeValidator(_port, json_schema_input_type=PortNumber | Literal["auto"] | None),
    ] = Field(default=None, description="What it listens on: a port, or `auto`: srtctl chooses one.")
    readiness: Annotated[
        Readiness | bool | None,
        BeforeValidator(_readiness, json_schema_input_type=Readiness | bool | None),
    ] = Field(
        default=None,
        description="Wait until its port answers: true, false, or `port`; default: where it has a port.",
        examples=[{"port": 9000}],
    )
    start: Annotated[
        Literal["before", "after"],
        BeforeValidator(
            _start, json_schema_input_type=Literal["before", "after", "infra", "before_workers", "after_frontend"]
        ),
    ] = Field(
        default="before",
        description="`before` the frontend and the workers, or `after` every worker is registered.",
    )
    critical: Literal[True] = Field(
        default=True, description="Only `true`: the first failure of any process ends the job."
    )

    @property
    def wanted_port(self) -> int | Literal["auto"] | None:
        """The port that it listens on, as the recipe says it."""
        return (
            self.port
            if self.port is not None
            else self.readiness.port
            if isinstance(self.readiness, Readiness)
            else None
        )

    @property
    def waits(self) -> bool:
        """Whether the job goes on only when its port answers."""
        return self.wanted_port is not None and self.readiness is not False
