"""The mocker backend: engine and registration in one process (`python3 -m dynamo.mocker`, ai-dynamo 1.6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from srtctl.backends.base import Command, Layout, PortNeed, ProcessContext, ProcessShape, WorkerShape, flags
from srtctl.backends.mocker import rules
from srtctl.backends.rules import check_knobs
from srtctl.backends.sizes import size
from srtctl.diagnostics import Diagnostic
from srtctl.recipe.arguments import words
from srtctl.recipe.engines import SETTINGS
from srtctl.recipe.model import Recipe

#: The settings beside `engine.type`, and the flag that each is for every role.
KNOBS: Mapping[str, str] = {name: name.replace("_", "-") for name in SETTINGS["mocker"]}

#: A port of each of the workers that one process may be; here it is one.
_PORT_FLAGS: Mapping[str, str] = {"bootstrap": "bootstrap-ports", "kv_events": "zmq-kv-events-ports"}

_NAME = "model-name"
_DATA = ("data-parallel-size",)


class MockerBackend:
    """A process that registers, publishes KV events and answers as an engine would, and needs no GPU."""

    name = "mocker"

    def check_recipe(self, recipe: Recipe) -> list[Diagnostic]:
        return [*check_knobs(recipe), *rules.check_recipe(recipe, _NAME)]

    def check(self, recipe: Recipe, role_name: str, gpus: int) -> list[Diagnostic]:  # noqa: ARG002
        """Sizes and GPUs need not agree: a role's GPUs are what the engine that it stands for would have."""
        _, problems = size(recipe.arguments[role_name], _DATA)
        return [*problems, *rules.check_arguments(recipe, role_name)]

    def shape(self, recipe: Recipe, role_name: str, layout: Layout) -> tuple[WorkerShape | None, list[Diagnostic]]:
        if problems := list(rules.check_layout(role_name, layout)):
            return None, problems
        dp, _ = size(recipe.arguments[role_name], _DATA)
        ranks = tuple(range(dp))
        published = ranks if recipe.roles[role_name].kv_events is not None else ()
        needs = tuple(_port_needs(role_name, len(published)))
        process = ProcessShape(needs, serves=ranks, publisher_ranks=published, registers=True)
        return WorkerShape(dp, (process,)), []

    def served_name(self, recipe: Recipe, model_path: str) -> str:
        """`--model-name` of any role, else the model's path."""
        written = (found for args in recipe.arguments.values() if (found := args.get(_NAME)))
        return next((str(found.value) for found in written), model_path)

    def command(self, recipe: Recipe, role_name: str, shape: WorkerShape, context: ProcessContext) -> Command:  # noqa: ARG002
        """What a role's `args` say wins over the knobs, which are for all roles."""
        args = recipe.arguments[role_name]
        common = [("model-path", context.model_path), (_NAME, self.served_name(recipe, context.model_path))]
        common += [
            (flag, str(recipe.engine.knobs[knob]))
            for knob, flag in KNOBS.items()
            if knob in recipe.engine.knobs and args.get(flag) is None
        ]
        if role_name != "agg":
            common.append(("disaggregation-mode", role_name))
        common += [(flag, str(context.ports[need])) for need, flag in _PORT_FLAGS.items() if need in context.ports]
        user = [word for item in args if item.flag not in (_NAME, "disaggregation-mode") for word in words(item)]
        return Command(("python3", "-m", "dynamo.mocker", *flags(common), *user), {}, context.ports["system"])

    def sidecar(self, recipe: Recipe, role_name: str, context: ProcessContext) -> tuple[str, ...]:  # noqa: ARG002
        """None: the mocker registers itself."""
        return ()

    def files(self, recipe: Recipe, role_name: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}


def _port_needs(role: str, published: int) -> Iterator[PortNeed]:
    yield PortNeed("system")
    if role == "prefill":
        yield PortNeed("bootstrap")
    if published:
        yield PortNeed("kv_events", published)
