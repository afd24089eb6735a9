"""SGLang's own router: `python3 -m sglang_router.launch_router` before engines that serve HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from srtctl.frontends.targets import RouterCommand, Target, pd_flags
from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Frontend


def sglang_router(frontend: Frontend, targets: Sequence[Target], port: int) -> RouterCommand:
    """The router's command: `--worker-urls` for aggregated workers, a `--prefill`/`--decode` flag each otherwise."""
    argv = ["python3", "-m", "sglang_router.launch_router", "--host", "0.0.0.0", "--port", str(port)]
    if all(target.role == "agg" for target in targets):
        argv += ["--worker-urls", *(target.url for target in targets)]
    else:
        argv += ["--pd-disaggregation", *pd_flags(targets)]
    argv += [word for item in Arguments("frontend.args", frontend.args) for word in words(item)]
    return RouterCommand(tuple(argv))
