"""Plans of any size, for tests of what is done with plans."""

from __future__ import annotations

from pathlib import Path

from srtctl.plan.model import Plan
from tests.support import plan_of

DISAGGREGATED = """\
schema: 2
name: pd
model: {{path: /models/big, container: none}}
resources: {{gpus_per_node: 8}}
slurm: {{account: research, time_limit: "4:00:00"}}
engine: sglang
environment: {{HF_HUB_OFFLINE: "1"}}
roles:
  prefill:
    nodes: {prefill}
    workers: {prefill_workers}
    gpus: 4
    kv_events: true
    sidecar: true
    args: {{served-model-name: big, tensor-parallel-size: 4, page-size: 16}}
  decode:
    nodes: {decode}
    workers: {decode_workers}
    gpus: 16
    kv_events: true
    sidecar: true
    args:
      served-model-name: big
      tensor-parallel-size: 16
      data-parallel-size: 16
      enable-dp-attention: true
      page-size: 16
frontend: {{type: dynamo, args: {{router-mode: kv}}}}
"""


def disaggregated(tmp_path: Path, nodes: int, **options: object) -> Plan:
    """A quarter of the nodes holds prefill workers of 4 GPUs, the others decode workers of two nodes."""
    prefill = nodes // 4
    recipe = tmp_path / "pd.yaml"
    recipe.write_text(
        DISAGGREGATED.format(
            prefill=prefill, prefill_workers=prefill * 2, decode=nodes - prefill, decode_workers=(nodes - prefill) // 2
        )
    )
    return plan_of(recipe, **options)
