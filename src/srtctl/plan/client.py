"""The client of a benchmark: what bash runs once the deployment serves, and what it is told of the deployment.

The names of its variables are v1's, as far as a plan knows their values; SRT_MODEL_…, SRT_RESULTS_DIR and
SRT_FRONTEND_URL are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from srtctl.benchmarks import Load, client_script
from srtctl.diagnostics import Collector
from srtctl.plan.model import Client, Endpoint, Model, Worker, node_address
from srtctl.recipe.model import Recipe

CLIENT = "benchmark"
RESULTS = f"${{RUN_DIR}}/logs/{CLIENT}"
_METRICS = "AIPERF_SERVER_METRICS_URLS"


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Where the client runs, and what it is sent to. `ports`: purpose to first port, by worker and node rank."""

    node: int
    endpoint: Endpoint | None
    ports: Mapping[tuple[str, int], Mapping[str, int]]


def make_client(
    recipe: Recipe, model: Model, gpus_per_node: int, workers: Sequence[Worker], load: LoadPoint, found: Collector
) -> Client | None:
    """The client, None where the recipe only serves."""
    benchmark, endpoint = recipe.benchmark, load.endpoint
    if benchmark.type == "manual":
        return None
    if endpoint is None and benchmark.type != "custom":
        found.error(
            "benchmark/no-endpoint",
            f"benchmark `{benchmark.type}` sends requests, but frontend `{recipe.frontend.type}` takes none",
            path="benchmark.type",
            hint="use another `frontend.type`, or `type: custom`",
        )
        return None
    env = {
        "SRT_GPUS_PER_NODE": str(gpus_per_node),
        "SRT_MODEL_NAME": model.served_name,
        "SRT_MODEL_PATH": model.path,
        "SRT_RESULTS_DIR": RESULTS,
        **_frontend(endpoint),
        **dict(_workers(workers, load.ports)),
    }
    if _METRICS in recipe.environment:  # a list that somebody chose stays
        env.pop(_METRICS, None)
    script = client_script(benchmark, Load(recipe.engine.type, model.served_name, model.path))
    return Client(CLIENT, load.node, script, {**env, **benchmark.env}, "")


def _frontend(endpoint: Endpoint | None) -> dict[str, str]:
    if endpoint is None:
        return {}
    host, port = node_address(endpoint.node), str(endpoint.port)
    return {"SRT_FRONTEND_HOST": host, "SRT_FRONTEND_PORT": port, "SRT_FRONTEND_URL": f"http://{host}:{port}"}


def _workers(
    workers: Sequence[Worker], ports: Mapping[tuple[str, int], Mapping[str, int]]
) -> Iterator[tuple[str, str]]:
    """Leaders by role, in order; where each has one, the port that serves its metrics: its sidecar's, or its own."""
    answering: list[str] = []
    for role in dict.fromkeys(worker.role for worker in workers):
        leaders = [worker for worker in workers if worker.role == role]
        addresses = [node_address(worker.nodes[0]) for worker in leaders]
        yield f"SRT_{role.upper()}_IPS", ",".join(addresses)
        mine = [ports[worker.name, 0] for worker in leaders]
        chosen = [found.get("system", found.get("http")) for found in mine]
        if all(port is not None for port in chosen):
            endpoints = [f"{address}:{port}" for address, port in zip(addresses, chosen, strict=True)]
            yield f"SRT_{role.upper()}_ENDPOINTS", ",".join(endpoints)
            answering += endpoints
    if answering:
        yield _METRICS, ",".join(f"http://{endpoint}/metrics" for endpoint in answering)
