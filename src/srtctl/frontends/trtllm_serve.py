"""TensorRT-LLM's own server before prefill and decode: `trtllm-serve disaggregated`, configured by a YAML file."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from srtctl.frontends.targets import RouterCommand, Target
from srtctl.recipe.arguments import Arguments, words
from srtctl.recipe.model import Frontend
from srtctl.references import bundle_file

FILE = "trtllm-serve.yaml"


def trtllm_disaggregated(frontend: Frontend, targets: Sequence[Target], port: int) -> RouterCommand:
    """The server's command, and the file with the workers that it sends context and generation requests to."""
    urls = {role: [target.authority for target in targets if target.role == role] for role in ("prefill", "decode")}
    config = {
        "hostname": "0.0.0.0",
        "port": port,
        "context_servers": {"num_instances": len(urls["prefill"]), "urls": urls["prefill"]},
        "generation_servers": {"num_instances": len(urls["decode"]), "urls": urls["decode"]},
    }
    argv = ["trtllm-serve", "disaggregated", "--config_file", bundle_file(FILE)]
    argv += [word for item in Arguments("frontend.args", frontend.args) for word in words(item)]
    return RouterCommand(tuple(argv), {FILE: yaml.safe_dump(config, sort_keys=False)})
