"""The flags of the simulated SGLang, against the recipes that people use."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from srtctl.sim.sglang import flags

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LISTS = {name for flag in flags.flags() if flag.kind == "numbers" for name in flag.names}
REQUIRED = ["--model-path", "m"]


def sglang_settings(node: object) -> Iterator[tuple[str, Any]]:
    """Every (flag, value) below any `sglang_config`, whatever the role."""
    if isinstance(node, list):
        for item in node:
            yield from sglang_settings(item)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "sglang_config" and isinstance(value, dict):
            for role in value.values():
                yield from role.items() if isinstance(role, dict) else ()
        else:
            yield from sglang_settings(value)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the public recipes are not at {CORPUS}")
def test_every_flag_of_the_public_recipes_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    parser = flags.parser()
    used: dict[str, list[Any]] = collections.defaultdict(list)
    for path in CORPUS.rglob("*.y*ml"):
        text = path.read_text()
        for document in yaml.load_all(text, LOADER) if "sglang_config" in text else ():
            for name, value in sglang_settings(document):
                if value not in used[name]:
                    used[name].append(value)
    assert len(used) > 50
    refused = []
    for name, values in used.items():
        for value in values:
            try:
                parser.parse_args([*REQUIRED, *as_flag(name, value)])
            except SystemExit:
                refused.append((name, value, capsys.readouterr().err.splitlines()[-1]))
    assert not refused


def as_flag(name: str, value: Any) -> list[str]:
    """The words that a launcher writes for a recipe's setting. Of a sweep's alternatives the first is taken."""
    name = name.replace("_", "-")
    if isinstance(value, list) and name in LISTS:
        return [f"--{name}", *map(str, value)]
    if isinstance(value, list):
        return as_flag(name, value[0])
    if value is None or isinstance(value, bool):
        return [f"--{name}"] if value else []
    placeholder = re.fullmatch(r"\{\w+\}", str(value))
    return [f"--{name}", "1" if placeholder else str(value)]


@pytest.mark.parametrize(
    ("written", "attribute", "value"),
    [
        (["--tp", "4"], "tensor_parallel_size", 4),
        (["--tp-size", "4"], "tensor_parallel_size", 4),
        (["--tensor-parallel-size=4"], "tensor_parallel_size", 4),
        (["--dp", "2"], "data_parallel_size", 2),
        (["--dp-size", "2"], "data_parallel_size", 2),
        (["--data-parallel-size", "2"], "data_parallel_size", 2),
        (["--pp", "2"], "pipeline_parallel_size", 2),
        (["--pp-size", "2"], "pipeline_parallel_size", 2),
        (["--ep", "2"], "expert_parallel_size", 2),
        (["--model", "other"], "model_path", "other"),
        (["--nccl-init-addr", "h:1"], "dist_init_addr", "h:1"),
        (["--stream-output"], "incremental_streaming_output", True),
        (["--speculative-algo", "EAGLE"], "speculative_algorithm", "EAGLE"),
        (["--cuda-graph-bs", "1", "2"], "cuda_graph_bs", [1, 2]),
        (["--model-checksum"], "model_checksum", None),
        (["--disaggregation-mode", "prefill"], "disaggregation_mode", "prefill"),
        ([], "page_size", None),
        ([], "enable_dp_attention", False),
    ],
)
def test_spellings(written: list[str], attribute: str, value: object) -> None:
    assert getattr(flags.parse([*REQUIRED, *written]), attribute) == value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*REQUIRED, "--dump-config-to", "x"], "unrecognized arguments: --dump-config-to x"),
        ([*REQUIRED, "--tp_size", "2"], "unrecognized arguments: --tp_size 2"),
        ([*REQUIRED, "--port", "http"], "argument --port: invalid int value: 'http'"),
        ([*REQUIRED, "--kv-events-config", "{"], "argument --kv-events-config: invalid json value: '{'"),
        ([*REQUIRED, "--disaggregation-mode", "both"], "argument --disaggregation-mode: invalid choice: 'both'"),
        ([*REQUIRED, "--mamba", "1"], "ambiguous option: --mamba"),
        ([], "the following arguments are required: --model-path/--model"),
    ],
)
def test_bad_usage_exits_with_2(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        flags.parse(argv)
    assert end.value.code == 2
    usage, *_, last = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: launch_server.py")
    assert message in last


def test_no_flag_is_listed_twice() -> None:
    names = [name for flag in flags.flags() for name in flag.names]
    assert [name for name, count in collections.Counter(names).items() if count > 1] == []
