"""What AIPerf runs: random prompts, shared prefixes, and traces. Flags: aiperf 0.13 `aiperf profile`; defaults are v1's."""

from __future__ import annotations

from srtctl.benchmarks.kinds import Kind, Load
from srtctl.benchmarks.script import RESULTS, URL, Flag, command, need_command, number, script, word
from srtctl.recipe.benchmark import Benchmark

#: Where Mooncake's public traces are (github.com/kvcache-ai/Mooncake, FAST25-release).
_TRACES = "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release"
_WORKLOADS = {
    "mooncake": "arxiv-trace/mooncake_trace.jsonl",
    "conversation": "traces/conversation_trace.jsonl",
    "synthetic": "traces/synthetic_trace.jsonl",
    "toolagent": "traces/toolagent_trace.jsonl",
}
PROMPTS_MULT = 10
_GOODPUT = ("ttft_threshold_ms", "itl_threshold_ms")
_COMMON = (*_GOODPUT, "aiperf_package")
_PREFIXES = 5  # distinct ones, in v1's router benchmark


def _profile(load: Load, result: str, flags: list[Flag], *, goodput: str = "", chat: bool = True) -> str:
    common: list[Flag] = [
        ("--model", load.model),
        ("--tokenizer", load.tokenizer),
        ("--tokenizer-trust-remote-code", None),
    ]
    common += [("--url", URL), ("--endpoint-type", "chat" if chat else "completions"), ("--streaming", None)]
    common += [*flags, ("--extra-inputs", "ignore_eos:true")]
    if goodput:
        common.append(("--goodput", goodput))
    common += [("--output-artifact-dir", f"{RESULTS}/{result}"), ("--ui", "none")]
    return command(("aiperf", "profile"), common)


def _goodput(ttft: float | None, itl: float | None) -> str:
    """AIPerf's words for the two thresholds, in milliseconds."""
    pairs = (("time_to_first_token", ttft), ("inter_token_latency", itl))
    return " ".join(f"{metric}:{number(value)}" for metric, value in pairs if value is not None)


def _thresholds(benchmark: Benchmark) -> str:
    return _goodput(benchmark.ttft_threshold_ms, benchmark.itl_threshold_ms)


def _need(benchmark: Benchmark) -> str:
    return need_command("aiperf", benchmark.type, benchmark.aiperf_package)


def _aiperf(benchmark: Benchmark, load: Load) -> str:
    runs = []
    for concurrency in benchmark.concurrencies or ():
        flags: list[Flag] = [("--concurrency", concurrency)]
        if benchmark.req_rate and benchmark.req_rate != float("inf"):
            flags.append(("--request-rate", number(benchmark.req_rate)))
        flags.append(("--request-count", concurrency * (benchmark.num_prompts_mult or PROMPTS_MULT)))
        if benchmark.num_warmup_mult:
            flags.append(("--warmup-request-count", concurrency * benchmark.num_warmup_mult))
        flags += [("--isl", benchmark.isl), ("--osl", benchmark.osl)]
        chat = benchmark.use_chat_template is not False
        call = _profile(load, f"concurrency-{concurrency}", flags, goodput=_thresholds(benchmark), chat=chat)
        runs.append(f"# {concurrency} in flight\n{call}")
    return script("aiperf: random prompts, one measurement a concurrency", _need(benchmark), *runs)


def _router(benchmark: Benchmark, load: Load) -> str:
    isl, osl = benchmark.isl or 14_000, benchmark.osl or 200
    runs = []
    for ratio in benchmark.prefix_ratios or (0.1, 0.3, 0.5, 0.7, 0.9):
        shared = round(isl * ratio)
        flags: list[Flag] = [("--concurrency", benchmark.concurrency or 20)]
        flags += [("--request-count", benchmark.num_requests or 200), ("--isl", isl - shared), ("--osl", osl)]
        if shared:  # AIPerf lays the prefix before the prompt
            flags += [("--num-prefix-prompts", _PREFIXES), ("--prefix-prompt-length", shared)]
        runs.append(f"# {number(ratio * 100)} % of each prompt is shared\n{_profile(load, f'prefix-{ratio}', flags)}")
    return script("router: prompts with shared prefixes, one measurement a ratio", _need(benchmark), *runs)


def _mooncake(benchmark: Benchmark, load: Load) -> str:
    workload = benchmark.mooncake_workload or "conversation"
    ttft, itl = benchmark.ttft_threshold_ms or 2000.0, benchmark.itl_threshold_ms or 25.0
    trace, fetch = benchmark.trace_file, ""
    if trace is None:
        trace = f"{RESULTS}/{workload}.jsonl"
        url = f"{_TRACES}/{_WORKLOADS[workload]}"
        fetch = need_command("curl", "mooncake-router") + f"\ncurl -fsSL -o {word(trace)} {url}"
    flags: list[Flag] = [
        ("--input-file", trace),
        ("--custom-dataset-type", "mooncake_trace"),
        ("--fixed-schedule", None),
    ]
    call = _profile(load, workload, flags, goodput=_goodput(ttft, itl))
    return script(f"mooncake-router: Mooncake's {workload} trace at its own pace", _need(benchmark), fetch, call)


def _replay(benchmark: Benchmark, load: Load) -> str:
    runs = []
    for concurrency in benchmark.concurrencies or ():
        flags: list[Flag] = [("--input-file", benchmark.trace_file), ("--custom-dataset-type", "mooncake_trace")]
        flags.append(("--concurrency", concurrency))
        call = _profile(load, f"concurrency-{concurrency}", flags, goodput=_thresholds(benchmark))
        runs.append(f"# {concurrency} in flight\n{call}")
    return script("trace-replay: the requests of a trace, one measurement a concurrency", _need(benchmark), *runs)


AIPERF = {
    "aiperf": Kind(
        "`aiperf profile`",
        _aiperf,
        ("isl", "osl", "concurrencies"),
        ("req_rate", "num_prompts_mult", "num_warmup_mult", "use_chat_template", *_COMMON),
    ),
    "router": Kind(
        "`aiperf profile`",
        _router,
        (),
        ("isl", "osl", "num_requests", "concurrency", "prefix_ratios", "aiperf_package"),
    ),
    "mooncake-router": Kind("`aiperf profile`", _mooncake, (), ("mooncake_workload", "trace_file", *_COMMON)),
    "trace-replay": Kind("`aiperf profile`", _replay, ("trace_file", "concurrencies"), _COMMON),
}
