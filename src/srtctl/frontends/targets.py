"""What routers other than Dynamo's are given: the servers behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from srtctl.recipe.model import Frontend


@dataclass(frozen=True, slots=True)
class Target:
    """One process that takes requests: its role, where its HTTP server answers, and (prefill) its bootstrap port."""

    role: str
    address: str
    port: int
    bootstrap_port: int | None = None

    @property
    def authority(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}"


@dataclass(frozen=True, slots=True)
class RouterCommand:
    """A router's argv, and the files that it reads: name to text (see `srtctl.plan.model.Plan.files`)."""

    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)


#: A router before targets, on its claimed port: (settings, targets, port).
Router = Callable[[Frontend, Sequence[Target], int], RouterCommand]


def pd_flags(targets: Sequence[Target]) -> list[str]:
    """`--prefill URL [BOOTSTRAP_PORT]` and `--decode URL`, as the routers of SGLang and vLLM share them."""
    argv: list[str] = []
    for target in targets:
        argv += [f"--{target.role}", target.url]
        if target.bootstrap_port is not None:
            argv.append(str(target.bootstrap_port))
    return argv
