"""SGLang's own router: `python3 -m sglang_router.launch_router` before engines that serve HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Frontend


@dataclass(frozen=True, slots=True)
class Target:
    """One worker's leader: its role, where its HTTP server answers, and (prefill) its bootstrap port."""

    role: str
    address: str
    port: int
    bootstrap_port: int | None = None


def sglang_router(frontend: Frontend, targets: Sequence[Target], *, port: int) -> tuple[str, ...]:
    """The router's command: `--worker-urls` for aggregated workers, a `--prefill`/`--decode` flag each otherwise."""
    argv = ["python3", "-m", "sglang_router.launch_router", "--host", "0.0.0.0", "--port", str(port)]
    aggregated = [t for t in targets if t.role == "agg"]
    if aggregated:
        argv += ["--worker-urls", *(_url(t) for t in aggregated)]
    else:
        argv.append("--pd-disaggregation")
        for target in targets:
            argv += [f"--{target.role}", _url(target)]
            if target.bootstrap_port is not None:
                argv.append(str(target.bootstrap_port))
    argv += [word for item in Arguments("frontend.args", frontend.args) for word in words(item)]
    return tuple(argv)


def _url(target: Target) -> str:
    return f"http://{target.address}:{target.port}"
