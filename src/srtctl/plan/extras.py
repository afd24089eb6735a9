"""Extra processes beside the deployment (`services`): their ports, and what is filled in for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from srtctl.diagnostics import Collector, nearest
from srtctl.plan.client import CLIENT
from srtctl.plan.containers import Containers, resolve_image
from srtctl.plan.heads import Heads
from srtctl.plan.model import Service, node_address
from srtctl.plan.ports import Ledger
from srtctl.recipe.model import Recipe

#: Names that the plan gives others.
_TAKEN = re.compile(rf"etcd|nats|nginx|{CLIENT}|job|probe.*|reach|survey|(?:frontend|prefill|decode|agg)-\d+")
_FILLED_IN = ("port", "node_ip", "head_ip", "infra_ip", "gpus_per_node")
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(_FILLED_IN)})\}}")
_IN_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_]+)\}")  # ${NAME} is bash's


class Extras:
    """Claims what the services listen on, before anything else is chosen; then makes them."""

    def __init__(self, recipe: Recipe, heads: Heads, ledger: Ledger, found: Collector) -> None:
        self._recipe, self._heads, self._found = recipe, heads, found
        self._entries = [(i, entry) for i, entry in enumerate(recipe.services) if entry.enabled]
        seen: set[str] = set()
        self._ports: dict[int, int] = {}
        for index, entry in self._entries:
            if _TAKEN.fullmatch(entry.name) or entry.name in seen:
                found.error(
                    "services/name-taken",
                    f"service `{entry.name}`: something else of the run is called so",
                    path=f"services.{index}.name",
                    hint="give it another name",
                )
            seen.add(entry.name)
            node, wanted = heads.services[index], entry.wanted_port
            if wanted == "auto":
                self._ports[index], problems = ledger.claim((node,), "service", entry.name)
                found.items += problems
            elif wanted is not None:
                self._ports[index] = wanted
                path = f"services.{index}.{'port' if entry.port is not None else 'readiness.port'}"
                found.items += ledger.reserve((node,), "service", entry.name, wanted, path=path)

    def services(
        self, dynamo_env: Mapping[str, str], gpus_per_node: int, containers: Containers
    ) -> tuple[Service, ...]:
        """The services, in the order of the recipe."""
        return tuple(self._service(index, dynamo_env, gpus_per_node, containers) for index, _ in self._entries)

    def _service(
        self, index: int, dynamo_env: Mapping[str, str], gpus_per_node: int, containers: Containers
    ) -> Service:
        entry, node, port = self._recipe.services[index], self._heads.services[index], self._ports.get(index)
        values = {
            "port": "" if port is None else str(port),
            "node_ip": node_address(node),
            "head_ip": node_address(0),
            "infra_ip": node_address(self._heads.infra),
            "gpus_per_node": str(gpus_per_node),
        }
        texts = (*entry.command, *entry.args, *entry.env.values())
        if port is None and any("{port}" in text for text in texts):
            self._found.error(
                "services/no-port",
                f"service `{entry.name}` uses `{{port}}`, but has no `port`",
                path=f"services.{index}.command",
                hint="give it `port: auto`, or a number",
            )
        self._warn_of_misspelt(texts, index)
        image = entry.container or self._recipe.model.container
        path = f"services.{index}.container" if entry.container else "model.container"
        env = {**(dynamo_env if entry.inherit_discovery_env else {}), **entry.env}
        return Service(
            name=entry.name,
            node=node,
            argv=_filled((*entry.command, *entry.args), values),
            env={name: _fill(text, values) for name, text in env.items()},
            port=port if entry.waits else None,
            image=resolve_image(image, path, containers, self._found),
            setup=(),
            start=entry.start,
        )

    def _warn_of_misspelt(self, texts: Sequence[str], index: int) -> None:
        """Words in braces that nothing fills in may be meant so (awk, JSON): only what looks like one of ours is told."""
        for name in dict.fromkeys(name for text in texts for name in _IN_BRACES.findall(text)):
            if name not in _FILLED_IN and (near := nearest(name.lower(), _FILLED_IN, cutoff=0.75)):
                self._found.warning(
                    "services/placeholder",
                    f"service `{self._recipe.services[index].name}`: nothing fills in `{{{name}}}`",
                    path=f"services.{index}.command",
                    hint=f"`{{{near}}}`, if that is meant",
                )


def _filled(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_fill(word, values) for word in words)


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Only the known names in braces are filled in; other braces (JSON) stay."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)
