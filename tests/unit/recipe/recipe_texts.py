"""Recipes the tests change: the happy path, and a way to mark where a problem is expected."""

from __future__ import annotations

HAPPY = """\
# yaml-language-server: $schema=../../schemas/recipe.schema.json
schema: 2
name: qwen3-attention-dp
model: {path: qwen3-0.6b, container: sglang}
resources: {gpus_per_node: 1}
engine: sglang
roles:
  agg:
    nodes: 2
    workers: 1
    gpus: 2
    kv_events: true
    sidecar: true
    args: {served-model-name: Qwen/Qwen3-0.6B, tensor-parallel-size: 2, data-parallel-size: 2, \
enable-dp-attention: true, page-size: 16}
frontend:
  type: dynamo
  args: {router-mode: kv}
"""

DISAGGREGATED = """\
schema: 2
name: pd
model: {path: /models/m, container: sglang}
engine: {type: sglang, knob: 3}
roles:
  decode: {nodes: colocate, sidecar: false, kv_events: {topic: mine}}
  prefill:
    nodes: 2
    workers: 2
    env: {RATIO: 1.50, MASK: 0x10, ON: yes, COUNT: 8}
    args: {tp-size: 2, json: {a: [1, null]}, switch: null}
dynamo:
  sidecar: true
  sidecar_args: {a: 1, b: [x, y]}
  sidecar_startup_timeout: 7
  request_plane: nats
checks: {rank_routing: warn, kv_events: false, registration: {timeout: 5}}
slurm: {time_limit: 1-00:30:00, account: me}
environment: {PORT: 1e3}
sbatch_directives: {mem: 0, requeue: null, comment: a b}
health_check: {max_attempts: 3, interval_seconds: 2}
"""


def changed(old: str, new: str, text: str = HAPPY) -> str:
    """`text` with its one `old` replaced by `new`; "" for `old` appends."""
    if not old:
        return text + new
    assert text.count(old) == 1, old
    return text.replace(old, new)


def marked(text: str) -> tuple[str, str]:
    """`text` without its `«`, and the `line:column` the mark stood at."""
    before, mark, after = text.partition("«")
    assert mark, "no place is marked"
    assert "«" not in after
    return before + after, f"{before.count(chr(10)) + 1}:{len(before) - (before.rfind(chr(10)) + 1) + 1}"
