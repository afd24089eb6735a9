"""`sa-bench`: the engine's own serving benchmark with random prompts, one measurement a concurrency.

Defaults and meaning are v1's: prompts of `random_range_ratio` times `isl` up to `isl` tokens, a warm-up, then ten
requests for each one in flight. Flags: SGLang 0.5 `sglang.bench_serving`, vLLM 0.11 `vllm bench serve`, TensorRT-LLM
1.3 `tensorrt_llm.serve.scripts.benchmark_serving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from srtctl.benchmarks.kinds import Kind, Load
from srtctl.benchmarks.script import RESULTS, URL, Flag, call, function, need_command, need_module, number, script
from srtctl.recipe.benchmark import Benchmark

RANGE_RATIO, PROMPTS_MULT, WARMUP_MULT = 0.8, 10, 2
WARMUP_RATE = "250"
WARMUP_SEED = 4242  # other prompts than the measured ones, or the prefix cache would serve those
_USES = ("req_rate", "random_range_ratio", "num_prompts_mult", "num_warmup_mult", "use_chat_template")
_LOST = {
    "custom_tokenizer": "the public tool loads the tokenizer of the model's folder",
    **dict.fromkeys(("slow_down_sleep_time", "slow_down_wait_time"), "the public tool cannot throttle decode workers"),
}
_SGLANG, _VLLM = "sglang.bench_serving", "vllm bench serve"
_TRTLLM = "tensorrt_llm.serve.scripts.benchmark_serving"


def _sglang(benchmark: Benchmark, load: Load) -> str:
    chat, ratio = _chat(benchmark), _ratio(benchmark)
    flags: list[Flag] = [("--backend", "sglang-oai-chat" if chat else "sglang-oai"), ("--base-url", URL)]
    flags += [("--model", load.model), ("--tokenizer", load.tokenizer), ("--dataset-name", "random-ids")]
    flags += [("--random-input-len", benchmark.isl), ("--random-output-len", benchmark.osl)]
    flags += [("--random-range-ratio", number(ratio)), ("--disable-tqdm", None)]
    measure = function("measure", ("python3", "-m", _SGLANG), flags)
    calls = _calls(
        benchmark, [("--output-file", "/dev/null")], lambda name: [("--output-file", f"{RESULTS}/{name}.jsonl")]
    )
    return script(_title(_SGLANG), need_module(_SGLANG, "sa-bench"), measure, *calls)


def _vllm(benchmark: Benchmark, load: Load) -> str:
    measure = function("measure", ("vllm", "bench", "serve"), _vllm_flags(benchmark, load))
    return script(_title(_VLLM), need_command("vllm", "sa-bench"), measure, *_calls(benchmark, [], _vllm_result))


def _trtllm(benchmark: Benchmark, load: Load) -> str:
    flags: list[Flag] = [*_vllm_flags(benchmark, load), ("--random-ids", None)]
    measure = function("measure", ("python3", "-m", _TRTLLM), flags)
    return script(_title(_TRTLLM), need_module(_TRTLLM, "sa-bench"), measure, *_calls(benchmark, [], _vllm_result))


def _vllm_flags(benchmark: Benchmark, load: Load) -> list[Flag]:
    """What vLLM's benchmark and the one that TensorRT-LLM made of it have in common."""
    chat, ratio = _chat(benchmark), _ratio(benchmark)
    isl, osl = (_centre(length or 1, ratio) for length in (benchmark.isl, benchmark.osl))
    flags: list[Flag] = [("--backend", "openai-chat" if chat else "openai"), ("--base-url", URL)]
    flags += [("--endpoint", "/v1/chat/completions" if chat else "/v1/completions")]
    flags += [("--model", load.model), ("--tokenizer", load.tokenizer), ("--trust-remote-code", None)]
    flags += [("--dataset-name", "random"), ("--random-input-len", isl), ("--random-output-len", osl)]
    flags += [("--random-range-ratio", _spread(ratio)), ("--ignore-eos", None), ("--disable-tqdm", None)]
    return [*flags, ("--percentile-metrics", "ttft,tpot,itl,e2el")]


def _vllm_result(name: str) -> list[Flag]:
    return [("--save-result", None), ("--result-dir", RESULTS), ("--result-filename", f"{name}.json")]


def _chat(benchmark: Benchmark) -> bool:
    return benchmark.use_chat_template is not False


def _ratio(benchmark: Benchmark) -> float:
    return RANGE_RATIO if benchmark.random_range_ratio is None else benchmark.random_range_ratio


def _centre(length: int, ratio: float) -> int:
    """v1's and SGLang's `ratio * length … length` has this centre, which is what vLLM is told."""
    return max(int(length * (1 + ratio) / 2), 1)


def _spread(ratio: float) -> str:
    """The part of the centre by which lengths differ from it; vLLM refuses 1, which a `ratio` of 0 would be."""
    return number(int(min((1 - ratio) / (1 + ratio), 0.9999) * 10_000) / 10_000)


def _calls(benchmark: Benchmark, warming: list[Flag], result: Callable[[str], list[Flag]]) -> Iterator[str]:
    """For each concurrency a warm-up and a measurement; `warming` and `result` say where their results go."""
    warmup = WARMUP_MULT if benchmark.num_warmup_mult is None else benchmark.num_warmup_mult
    rate = number(benchmark.req_rate) if benchmark.req_rate else "inf"
    for flying in benchmark.concurrencies or ():
        lines = [f"# {flying} in flight"]
        if warmup:
            flags = [*_pressure(flying, warmup, WARMUP_RATE), ("--seed", WARMUP_SEED), *warming]
            lines.append(call("measure", flags))
        prompts = benchmark.num_prompts_mult or PROMPTS_MULT
        lines.append(call("measure", [*_pressure(flying, prompts, rate), *result(f"concurrency-{flying}")]))
        yield "\n".join(lines)


def _pressure(flying: int, times: int, rate: str) -> list[Flag]:
    return [("--max-concurrency", flying), ("--num-prompts", flying * times), ("--request-rate", rate)]


def _title(tool: str) -> str:
    return f"sa-bench: {tool} against the endpoint; for each concurrency a warm-up, then the measurement"


def _kind(tool: str, make: Callable[[Benchmark, Load], str]) -> Kind:
    return Kind(f"`{tool}`", make, ("isl", "osl", "concurrencies"), _USES, _LOST)


SA_BENCH = {
    "sglang": _kind(_SGLANG, _sglang),
    "vllm": _kind(_VLLM, _vllm),
    "trtllm": _kind(_TRTLLM, _trtllm),
    "mocker": _kind(_VLLM, _vllm),
}
