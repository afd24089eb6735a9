"""What each kind of benchmark runs on each engine, and what a recipe must and may say about it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from srtctl.benchmarks import BENCHMARKS, Load, check_benchmark, client_script
from srtctl.recipe.benchmark import Benchmark, Kind

SERVED, WEIGHTS = "Qwen/Qwen3-0.6B", "/models/qwen"
#: The least that each kind needs.
LEAST: dict[str, dict[str, Any]] = {
    "custom": {"command": "echo hello"},
    "sa-bench": {"isl": 1000, "osl": 100, "concurrencies": [4]},
    "aiperf": {"isl": 1000, "osl": 100, "concurrencies": [4]},
    "router": {},
    "mooncake-router": {},
    "trace-replay": {"trace_file": "/traces/t.jsonl", "concurrencies": [4]},
    "gsm8k": {},
    "gsm8k-bench": {},
    "gpqa": {},
    "mmlu": {},
    "longbenchv2": {},
}
ALL = [(kind, engine) for kind, engines in BENCHMARKS.items() for engine in engines if not engines[engine].refused]


def benchmark(kind: str, **settings: Any) -> Benchmark:
    return Benchmark.model_validate({"type": kind, **LEAST[kind], **settings})


def text(kind: str, engine: str, **settings: Any) -> str:
    return client_script(benchmark(kind, **settings), Load(engine, SERVED, WEIGHTS))


def words(kind: str, engine: str, **settings: Any) -> list[str]:
    """Everything that the script says, word by word."""
    return shlex.split(text(kind, engine, **settings).replace("\\\n", " "), comments=True)


def value(said: list[str], flag: str) -> str:
    """What follows the last `flag`."""
    return said[len(said) - said[::-1].index(flag)]


def test_every_kind_but_manual_is_in_the_table() -> None:
    assert sorted(BENCHMARKS) == sorted(set(get_args(Kind)) - {"manual"}) == sorted(LEAST)


@pytest.mark.parametrize(("kind", "engine"), ALL)
def test_the_least_is_enough_and_the_script_is_clean(tmp_path: Path, kind: str, engine: str) -> None:
    assert list(check_benchmark(benchmark(kind), engine)) == []
    path = tmp_path / "command.sh"
    path.write_text(f"#!/bin/bash\n{text(kind, engine)}")
    found = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize(("kind", "engine"), [pair for pair in ALL if pair[0] != "custom"])
def test_it_asks_the_endpoint_for_the_model_and_keeps_the_results(kind: str, engine: str) -> None:
    said = text(kind, engine)
    assert "SRT_FRONTEND_URL" in said
    assert SERVED in said
    assert "$SRT_RESULTS_DIR" in said
    assert said.index("exit 127") < said.index("SRT_FRONTEND_URL")  # a missing tool is named before anything starts


SA_BENCH = [
    ("sglang", "python3 -m sglang.bench_serving", "sglang-oai-chat", "sglang-oai", "1000", "0.8", "inf"),
    ("vllm", "vllm bench serve", "openai-chat", "openai", "900", "0.1111", "inf"),
    ("mocker", "vllm bench serve", "openai-chat", "openai", "900", "0.1111", "inf"),
    (
        "trtllm",
        "python3 -m tensorrt_llm.serve.scripts.benchmark_serving",
        "openai-chat",
        "openai",
        "900",
        "0.1111",
        "inf",
    ),
]


@pytest.mark.parametrize(("engine", "tool", "chat", "plain", "isl", "ratio", "rate"), SA_BENCH)
def test_sa_bench(engine: str, tool: str, chat: str, plain: str, isl: str, ratio: str, rate: str) -> None:
    said = words("sa-bench", engine)
    assert f"  {tool} " in text("sa-bench", engine)
    assert value(said, "--backend") == chat
    assert value(words("sa-bench", engine, use_chat_template=False), "--backend") == plain
    assert (value(said, "--model"), value(said, "--tokenizer")) == (SERVED, WEIGHTS)
    assert (value(said, "--random-input-len"), value(said, "--random-range-ratio")) == (isl, ratio)
    assert value(said, "--request-rate") == rate


def measured(said: list[str]) -> list[tuple[str, str, str]]:
    """Concurrency, prompts and rate of each call."""
    at = [i for i, word in enumerate(said) if word == "--max-concurrency"]
    return [(said[i + 1], said[i + 3], said[i + 5]) for i in at]


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"concurrencies": [4]}, [("4", "8", "250"), ("4", "40", "inf")]),
        ({"concurrencies": "1x16"}, [("1", "2", "250"), ("1", "10", "inf"), ("16", "32", "250"), ("16", "160", "inf")]),
        ({"concurrencies": ["2"], "num_warmup_mult": 0, "num_prompts_mult": 3}, [("2", "6", "inf")]),
        ({"num_warmup_mult": 1, "req_rate": "300"}, [("4", "4", "250"), ("4", "40", "300")]),
        ({"num_warmup_mult": 0, "req_rate": 0.5}, [("4", "40", "0.5")]),
    ],
)
def test_a_warm_up_and_a_measurement_for_each_concurrency(settings: dict[str, Any], calls: list[Any]) -> None:
    for engine in ("sglang", "vllm", "trtllm"):
        assert measured(words("sa-bench", engine, **settings)) == calls


@pytest.mark.parametrize(
    ("ratio", "centre", "spread", "low", "high"),
    [(1.0, "1000", "0", 1000, 1000), (0.8, "900", "0.1111", 800, 1000), (0.0, "500", "0.9999", 0, 1000)],
)
def test_lengths_are_the_same_however_a_tool_says_them(
    ratio: float, centre: str, spread: str, low: int, high: int
) -> None:
    said = words("sa-bench", "vllm", random_range_ratio=ratio)
    assert (value(said, "--random-input-len"), value(said, "--random-range-ratio")) == (centre, spread)
    assert int(centre) * (1 - float(spread)) == pytest.approx(low, abs=1)
    assert int(centre) * (1 + float(spread)) == pytest.approx(high, abs=1)


# kind, engine, settings, what the script then says
FLAGS: list[tuple[str, str, dict[str, Any], list[tuple[str, str]]]] = [
    ("aiperf", "vllm", {"ttft_threshold_ms": 2000, "itl_threshold_ms": 25},
     [("--goodput", "time_to_first_token:2000 inter_token_latency:25"), ("--request-count", "40"), ("--isl", "1000")]),
    ("aiperf", "sglang", {"req_rate": 3, "num_warmup_mult": 2, "use_chat_template": False},
     [("--request-rate", "3"), ("--warmup-request-count", "8"), ("--endpoint-type", "completions")]),
    ("router", "sglang", {"isl": 100, "prefix_ratios": "0.25", "num_requests": 9, "concurrency": 3},
     [("--isl", "75"), ("--prefix-prompt-length", "25"), ("--request-count", "9"), ("--concurrency", "3")]),
    ("router", "sglang", {"prefix_ratios": [0]}, [("--isl", "14000"), ("--osl", "200")]),
    ("mooncake-router", "sglang", {"mooncake_workload": "toolagent", "ttft_threshold_ms": 5000},
     [("--goodput", "time_to_first_token:5000 inter_token_latency:25"), ("--input-file", "$SRT_RESULTS_DIR/toolagent.jsonl")]),
    ("mooncake-router", "vllm", {"trace_file": "/t.jsonl"}, [("--input-file", "/t.jsonl")]),
    ("trace-replay", "mocker", {"concurrencies": "2x4"},
     [("--input-file", "/traces/t.jsonl"), ("--custom-dataset-type", "mooncake_trace"), ("--concurrency", "4")]),
    ("gsm8k", "sglang", {"num_shots": 8, "max_tokens": 16000, "num_examples": 1319, "num_threads": 64, "top_p": 0.95},
     [("--eval-name", "gsm8k"), ("--api", "completion"), ("--num-shots", "8"), ("--max-tokens", "16000"),
      ("--num-examples", "1319"), ("--num-threads", "64"), ("--top-p", "0.95")]),
    ("gsm8k-bench", "vllm", {"num_shots": 20, "max_tokens": 512, "num_examples": 10, "temperature": 0.6},
     [("--tasks", "gsm8k"), ("--num_fewshot", "20"), ("--limit", "10"),
      ("--gen_kwargs", "max_gen_toks=512,temperature=0.6"), ("--model", "local-completions")]),
    ("gpqa", "sglang", {}, [("--eval-name", "gpqa"), ("--num-examples", "198"), ("--repeat", "8")]),
    ("gpqa", "trtllm", {"repeat": 2}, [("--model", "local-chat-completions"), ("--seed", "1"),
                                       ("--output_path", "$SRT_RESULTS_DIR/round-1")]),
    ("mmlu", "sglang", {"num_threads": 16}, [("--eval-name", "mmlu"), ("--num-threads", "16"), ("--max-tokens", "2048")]),
    ("longbenchv2", "sglang", {"categories": ["a", "b"]},
     [("--eval-name", "longbench_v2"), ("--categories", "a,b"), ("--max-context-length", "128000")]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "engine", "settings", "flags"), FLAGS)
def test_settings_become_flags(kind: str, engine: str, settings: dict[str, Any], flags: list[tuple[str, str]]) -> None:
    assert list(check_benchmark(benchmark(kind, **settings), engine)) == []
    said = words(kind, engine, **settings)
    assert [(flag, value(said, flag)) for flag, _ in flags] == flags


def test_the_whole_script_reads_well() -> None:
    golden = Path(__file__).with_name("sa_bench.sh")
    settings = {"concurrencies": "1x64", "req_rate": 300, "use_chat_template": False}
    assert f"#!/bin/bash\n{text('sa-bench', 'sglang', **settings)}" == golden.read_text()


def test_a_package_is_installed_only_where_the_image_lacks_the_tool() -> None:
    said = text("trace-replay", "mocker", aiperf_package="aiperf>=0.7.0")
    assert "command -v aiperf >/dev/null || python3 -m pip install --quiet 'aiperf>=0.7.0'\n" in said
    assert "pip install" not in text("trace-replay", "mocker")


def test_a_command_is_run_as_it_is() -> None:
    assert text("custom", "vllm", command='a "$B" {c}\nd | e  \n\n') == 'a "$B" {c}\nd | e\n'


# kind, engine, settings (None: left out), severity, code, path, words of the message
FINDINGS: list[tuple[str, str, dict[str, Any], str, str, str, str]] = [
    ("custom", "sglang", {"command": None}, "error", "benchmark/missing", "benchmark.command", "needs"),
    ("sa-bench", "vllm", {"isl": None}, "error", "benchmark/missing", "benchmark.isl", "needs"),
    ("sa-bench", "vllm", {"concurrencies": None}, "error", "benchmark/missing", "benchmark.concurrencies", "needs"),
    ("trace-replay", "mocker", {"trace_file": None}, "error", "benchmark/missing", "benchmark.trace_file", "needs"),
    ("longbenchv2", "vllm", {}, "error", "benchmark/engine", "benchmark.type", "only SGLang's images"),
    ("gsm8k", "mocker", {}, "error", "benchmark/engine", "benchmark.type", "it has no model"),
    ("gsm8k", "vllm", {"isl": 5}, "warning", "benchmark/unused-setting", "benchmark.isl", "has no such setting"),
    ("gpqa", "vllm", {"num_shots": 5}, "warning", "benchmark/unused-setting", "benchmark.num_shots", "`gpqa` has no"),
    ("custom", "vllm", {"isl": 5}, "warning", "benchmark/unused-setting", "benchmark.isl", "has no such setting"),
    ("sa-bench", "sglang", {"custom_tokenizer": "a.B"}, "warning", "benchmark/no-equivalent",
     "benchmark.custom_tokenizer", "is left out: the public tool loads"),
    ("sa-bench", "sglang", {"slow_down_wait_time": 1.0}, "warning", "benchmark/no-equivalent",
     "benchmark.slow_down_wait_time", "cannot throttle"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "engine", "settings", "severity", "code", "path", "message"), FINDINGS)
def test_what_is_missing_or_changes_nothing(
    kind: str, engine: str, settings: dict[str, Any], severity: str, code: str, path: str, message: str
) -> None:
    [found] = check_benchmark(benchmark(kind, **settings), engine)
    assert (found.severity, found.code, found.path) == (severity, code, path)
    assert message in found.message
    assert found.hint or code == "benchmark/no-equivalent"


def test_manual_has_no_settings() -> None:
    given = Benchmark.model_validate({"type": "manual", "isl": 1, "osl": 1})
    assert [found.path for found in check_benchmark(given, "sglang")] == ["benchmark.isl", "benchmark.osl"]


@pytest.mark.parametrize(
    ("script", "missing"), [("sa-bench", "sglang.bench_serving"), ("gsm8k", "sglang.test.run_eval")]
)
def test_a_missing_tool_is_named_before_anything_starts(script: str, missing: str) -> None:
    done = subprocess.run(["bash", "-c", text(script, "sglang")], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == f"error: the image has no Python module {missing}, which {script} runs\n"


@pytest.mark.parametrize(
    ("setting", "given", "words"),
    [
        ("concurrencies", "{conc}", "must be whole numbers of at least 1, as a list or as `1x2x4`"),
        ("concurrencies", [1, 0], "must be whole numbers of at least 1"),
        ("concurrencies", [True], "must be whole numbers of at least 1"),
        ("concurrencies", [], "must be whole numbers of at least 1"),
        ("req_rate", "fast", "must be a number above 0, or `inf`"),
        ("req_rate", 0, "must be a number above 0, or `inf`"),
        ("req_rate", True, "must be a number above 0, or `inf`"),
        ("prefix_ratios", "0.5 1", "must be numbers from 0 to below 1"),
        ("prefix_ratios", ["x"], "must be numbers from 0 to below 1"),
    ],
)
def test_values_that_mean_nothing(setting: str, given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", "\\(")):
        benchmark("router", **{setting: given})
