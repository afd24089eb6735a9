"""Migrating text: comments, order and layout stay; what comes out means the same, and is not changed again."""

from __future__ import annotations

import pytest

from srtctl.reading.document import parse_yaml
from srtctl.recipe.convert import as_v2
from srtctl.recipe.migrate import migrate

V1 = """\
# What this file is for.
#
# More of it.

# The name.
name: "pd"   # in quotes

model:
  path: /models/m
  container: c

resources:
  gpu_type: "h200"
  # two of them
  prefill_nodes: 2
  prefill_workers: 2 # one a node
  decode_nodes: 0
  decode_workers: 1
  gpus_per_node: 8

# How the engine runs.
backend: # the old way
  # sglang it is
  type: sglang

  # For prefill only.
  prefill_environment:
    A: "1"
    # B: "2"

  sglang_config:
    prefill:
      # The model.
      model-path: "/model/"
      served-model-name: 'm'
      json: |
        # no comment
        {"a": 1}
      # stream-interval: 50

    decode:
      cuda-graph-bs: [1,  2,
        3]

# Last.
benchmark:
  type: manual
"""

V2 = """\
# What this file is for.
#
# More of it.

schema: 2
# The name.
name: "pd"   # in quotes

model:
  path: /models/m
  container: c

resources:
  gpu_type: "h200"
  gpus_per_node: 8

# How the engine runs.
# the old way
# sglang it is
engine: sglang
roles:
  prefill:
    # two of them
    nodes: 2
    workers: 2 # one a node

    # For prefill only.
    env:
      A: "1"
      # B: "2"

    args:
      # The model.
      served-model-name: 'm'
      json: |
        # no comment
        {"a": 1}
      # stream-interval: 50
  decode:
    nodes: colocate
    workers: 1
    gpus: 8

    args:
      cuda-graph-bs: [1,  2,
        3]

# Last.
benchmark:
  type: manual
"""


def test_the_whole_text() -> None:
    assert migrate(V1, "f").text == V2


def test_v2_stays_as_it_is() -> None:
    done = migrate(V2, "f")
    assert done.text == V2
    assert done.diagnostics == ()


CASES = [
    # one line, without comments
    ("backend: {}", "schema: 2\nengine: sglang"),
    (
        "name: x\nbackend: {type: vllm, connector: null}\n",
        "schema: 2\nname: x\nengine:\n  type: vllm\n  connector: null\n",
    ),
    (
        "resources: {agg_nodes: 1, gpu_type: h100}\nbackend:\n    type: sglang\n",
        "schema: 2\nresources:\n  gpu_type: h100\nengine: sglang\nroles:\n  agg:\n    nodes: 1\n",
    ),
    (
        "backend:\n  type: sglang\ninfra:\n  etcd_nats_dedicated_node: true # busy\n",
        "schema: 2\nengine: sglang\ninfra:\n  placement:\n    node: dedicated # busy\n",
    ),
    (
        "resources:\n    agg_nodes: 1\nbackend:\n    aggregated_environment:\n        A: |\n          x\n",
        "schema: 2\nengine: sglang\nroles:\n  agg:\n    nodes: 1\n    env:\n        A: |\n          x\n",
    ),
    (
        "base:\n  backend:\n    type: sglang\nzip_override_a:\n  resources:\n    decode_nodes: [0, 1]\n",
        "schema: 2\nbase:\n  engine: sglang\nzip_override_a:\n  roles:\n    decode:\n      nodes: [colocate, 1]\n",
    ),
    (
        "base:\n  backend:\n    type: sglang\nzip_override_a:\n  backend:\n    type: [vllm, null]\n",
        "schema: 2\nbase:\n  engine: sglang\nzip_override_a:\n  engine: [vllm, sglang]\n",
    ),
    ('backend: {type: "sglang"}\r\n', "schema: 2\nengine: sglang\n"),
]


@pytest.mark.parametrize(("old", "new"), CASES)
def test_small_ones(old: str, new: str) -> None:
    done = migrate(old, "f")
    assert done.text == new
    assert migrate(new, "f").text == new
    if "base:" not in old:
        assert parse_yaml(new, "f").data == as_v2(parse_yaml(old, "f")).data


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("backend: [\n", "yaml/syntax"),
        ("backend: {a: 1, a: 2}\n", "yaml/duplicate-key"),
        ("x: &x\n  prefill: {a: 1}\nbackend:\n  sglang_config:\n    <<: *x\n", "migrate/text"),
    ],
)
def test_what_cannot_be_migrated(text: str, code: str) -> None:
    done = migrate(text, "f")
    assert done.text is None
    assert [item.code for item in done.diagnostics] == [code]


@pytest.mark.parametrize("text", ["- 1\n", "engine: sglang\n", "schema: 2\nbackend: {}\n"])
def test_what_is_not_v1_is_left_alone(text: str) -> None:
    assert migrate(text, "f").text == text
