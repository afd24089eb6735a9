"""The v1 layout is read as v2: every rule of the table, and every diagnostic still at the user's line."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from srtctl.reading.document import parse_yaml
from srtctl.recipe.convert import as_v2
from srtctl.recipe.load import load_recipe
from srtctl.recipe.v1 import is_v1

DISAGGREGATED = """\
name: pd
model: {path: /models/m, container: c}
resources:
  gpus_per_node: 4
  prefill_nodes: 2
  prefill_workers: 2
  decode_nodes: 1
  decode_workers: 1
  gpus_per_decode: 4
backend:
  type: sglang
  prefill_environment:
    RATIO: 1.50
  kv_events_config:
    prefill: true
  sglang_config:
    prefill:
      tensor-parallel-size: 4
      host: 0.0.0.0
      model-path: /model/
    decode:
      tensor-parallel-size: 4
"""


def v2(text: str) -> Any:
    return as_v2(parse_yaml(textwrap.dedent(text), "f")).data


def test_a_whole_recipe(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(DISAGGREGATED)
    loaded = load_recipe(path)
    assert loaded.diagnostics == []
    recipe = loaded.recipe
    assert recipe is not None
    assert recipe.engine.type == "sglang"
    prefill, decode = recipe.roles["prefill"], recipe.roles["decode"]
    assert (prefill.nodes, prefill.workers, prefill.gpus) == (2, 2, None)
    assert (decode.nodes, decode.workers, decode.gpus) == (1, 1, 4)
    assert prefill.env == {"RATIO": "1.50"}
    assert prefill.kv_events is not None
    assert decode.kv_events is None
    assert prefill.args == decode.args == {"tensor-parallel-size": 4}


# What is written in a v1 recipe beside `backend: {}`, and what it says in v2.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("backend: {type: vllm}", {"engine": "vllm"}),
    ("backend: {}", {"engine": "sglang"}),
    ("backend:", {"engine": "sglang"}),
    ("resources: {agg_nodes: 1}", {"engine": "sglang", "roles": {"agg": {"nodes": 1}}}),
    (
        "backend: {type: vllm, connector: null, vllm_config: {aggregated: {a_b: 1}}}",
        {"engine": {"type": "vllm", "connector": None}, "roles": {"agg": {"args": {"a_b": 1}}}},
    ),
    ("backend: {connector: nixl}", {"engine": {"type": "sglang", "connector": "nixl"}}),
    ("backend: {sglang_config: {}}", {"engine": "sglang"}),
    (
        "backend: {aggregated_environment: {A: b}}",
        {"engine": "sglang", "roles": {"agg": {"env": {"A": "b"}}}},
    ),
    (
        "resources: {prefill_nodes: 2, prefill_workers: 6, gpus_per_node: 8, decode_nodes: 0}\nbackend: {}",
        {
            "engine": "sglang",
            "resources": {"gpus_per_node": 8},
            "roles": {"prefill": {"nodes": 2, "workers": 6}, "decode": {"nodes": "colocate", "gpus": 2}},
        },
    ),
    (
        "resources: {gpus_per_prefill: 1, gpus_per_decode: 2, decode_nodes: 0}\nbackend: {}",
        {
            "engine": "sglang",
            "roles": {"prefill": {"gpus": 1}, "decode": {"nodes": "colocate", "gpus": 2}},
        },
    ),
    (
        "resources: {agg_nodes: 1}\nbackend: {kv_events_config: true}",
        {"engine": "sglang", "roles": {"agg": {"nodes": 1, "kv_events": True}}},
    ),
    (
        'backend: {sglang_config: {decode: {kv-events-config: \'{"endpoint": "tcp://*:5557"}\'}}}',
        {
            "engine": "sglang",
            "roles": {"decode": {"kv_events": True, "args": {"kv-events-config": {"endpoint": "tcp://*:5557"}}}},
        },
    ),
    (
        "backend: {prefill_environment: {DYN_REQUEST_PLANE: nats}}",
        {
            "engine": "sglang",
            "roles": {"prefill": {"env": {"DYN_REQUEST_PLANE": "nats"}}},
            "dynamo": {"request_plane": "nats"},
        },
    ),
    (
        "backend: {prefill_environment: {DYN_REQUEST_PLANE: nats}, decode_environment: {DYN_REQUEST_PLANE: tcp}}",
        {
            "engine": "sglang",
            "roles": {
                "prefill": {"env": {"DYN_REQUEST_PLANE": "nats"}},
                "decode": {"env": {"DYN_REQUEST_PLANE": "tcp"}},
            },
        },
    ),
    (
        "backend: {prefill_environment: {DYN_REQUEST_PLANE: [nats]}}",
        {"engine": "sglang", "roles": {"prefill": {"env": {"DYN_REQUEST_PLANE": ["nats"]}}}},
    ),
    (
        "backend: {}\ninfra: {etcd_nats_dedicated_node: true, nats_max_payload_mb: 32}",
        {"engine": "sglang", "infra": {"placement": {"node": "dedicated"}, "nats_max_payload_mb": 32}},
    ),
    (
        "backend: {}\ninfra: {etcd_nats_dedicated_node: false}",
        {"engine": "sglang", "infra": {"placement": {"node": 0}}},
    ),
    (
        "backend: {}\nfrontend: {orchestrator_placement: 1}\nbenchmark: {client_placement: dedicated}",
        {
            "engine": "sglang",
            "frontend": {"placement": {"node": 1}},
            "benchmark": {"placement": {"node": "dedicated"}},
        },
    ),
    ("backend: {}\ndynamo: {version: 0.8.0}", {"engine": "sglang", "dynamo": {"source": {"pypi": "0.8.0"}}}),
    ("backend: {}\ndynamo: {wheel: 1.2.0}", {"engine": "sglang", "dynamo": {"source": {"wheel": "1.2.0"}}}),
    (
        "backend: {}\ndynamo: {hash: 39d2a68}",
        {
            "engine": "sglang",
            "dynamo": {"source": {"git": "https://github.com/ai-dynamo/dynamo.git", "rev": "39d2a68"}},
        },
    ),
    ("backend: {}\ndynamo: {top_of_tree: false}", {"engine": "sglang"}),
    (
        "backend: {}\ndynamo: {top_of_tree: true}",
        {"engine": "sglang", "dynamo": {"source": {"git": "https://github.com/ai-dynamo/dynamo.git", "rev": "main"}}},
    ),
    # v1's frontend `sglang`: the engine itself where it is one worker without flags for a router.
    ("backend: {}\nfrontend: {type: sglang}", {"engine": "sglang", "frontend": {"type": "sglang"}}),
    (
        "backend: {}\nfrontend: {type: sglang, args: {policy: x}}",
        {"engine": "sglang", "frontend": {"type": "sglang-router", "args": {"policy": "x"}}},
    ),
    (
        "resources: {agg_workers: 2}\nbackend: {}\nfrontend: {type: sglang}",
        {
            "engine": "sglang",
            "roles": {"agg": {"workers": 2}},
            "frontend": {"type": "sglang-router"},
        },
    ),
]


@pytest.mark.parametrize(("text", "data"), CASES, ids=[text.replace("\n", " ") for text, _ in CASES])
def test_each_rule(text: str, data: dict[str, Any]) -> None:
    assert v2(text) == {"schema": 2, **data}


@pytest.mark.parametrize("data", [None, [], {}, {"schema": 2, "backend": {}}, {"engine": "sglang"}, {"roles": {}}])
def test_what_is_not_v1_stays(data: Any) -> None:
    assert not is_v1(data)


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "path"),
    [
        ("prefill_workers: 2", "prefill_workers: two", "recipe/type", "6:20", "roles.prefill.workers"),
        ("RATIO: 1.50", "RATIO: [1]", "recipe/type", "13:12", "roles.prefill.env.RATIO"),
        ("    decode:", "    deocde:", "recipe/unknown-key", "21:5", "backend.sglang_config.deocde"),
        ("decode_nodes: 1", "decode_nodes: -1", "recipe/value", "7:17", "roles.decode.nodes"),
        ("type: sglang", "type: slang", "recipe/value", "11:9", "engine"),
        ("  gpus_per_node: 4", "  gpus_per_noed: 4", "recipe/unknown-key", "4:3", "resources.gpus_per_noed"),
        ("    prefill: true", "    prefill: [1]", "recipe/type", "15:14", "roles.prefill.kv_events"),
        ("name: pd", "name: pd\nextra: 1", "recipe/unknown-key", "2:1", "extra"),
    ],
)
def test_a_diagnostic_points_at_the_line_that_was_written(
    tmp_path: Path, old: str, new: str, code: str, place: str, path: str
) -> None:
    file = tmp_path / "r.yaml"
    assert DISAGGREGATED.count(old) == 1
    file.write_text(DISAGGREGATED.replace(old, new))
    [found] = load_recipe(file).diagnostics
    assert (found.code, str(found.span), found.path) == (code, f"{file}:{place}", path)


def test_an_override_of_a_v1_key_says_where_it_went(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(DISAGGREGATED)
    [found] = load_recipe(file, overrides=["resources.prefill_workers=3"]).diagnostics
    assert "in v2 it is `roles.prefill.workers`" in found.hint
    loaded = load_recipe(file, overrides=["roles.prefill.workers=1"])
    assert loaded.recipe is not None
    assert loaded.recipe.roles["prefill"].workers == 1
