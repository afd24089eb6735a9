"""Accuracy of answers: SGLang's own runner in its images, lm-eval elsewhere.

Flags: SGLang 0.5 `sglang.test.run_eval`, lm-eval 0.4.9 `lm_eval`. Defaults are v1's where it has any.
"""

from __future__ import annotations

from dataclasses import dataclass

from srtctl.benchmarks.kinds import Kind, Load
from srtctl.benchmarks.script import (
    RESULTS,
    URL,
    Flag,
    call,
    command,
    function,
    need_command,
    need_module,
    number,
    script,
    word,
)
from srtctl.recipe.benchmark import Benchmark

_ANSWERS = ("num_examples", "max_tokens", "repeat", "num_threads", "temperature", "top_p", "top_k")


@dataclass(frozen=True, slots=True)
class _Suite:
    """A set of questions: its name in SGLang's runner and in lm-eval (empty: it has none that answers in text), v1's
    defaults, whether questions go out as chat, and further settings."""

    sglang: str
    lm_eval: str
    defaults: dict[str, int]
    chat: bool
    uses: tuple[str, ...] = ()


_GSM8K = _Suite("gsm8k", "gsm8k", {"num_threads": 128}, chat=False, uses=("num_shots",))
_SUITES = {
    "gsm8k": _GSM8K,
    "gsm8k-bench": _GSM8K,
    "gpqa": _Suite(
        "gpqa",
        "gpqa_diamond_cot_zeroshot",
        {"num_examples": 198, "max_tokens": 32768, "repeat": 8, "num_threads": 128},
        chat=True,
    ),
    "mmlu": _Suite(
        "mmlu",
        "mmlu_generative",
        {"num_examples": 200, "max_tokens": 2048, "repeat": 8, "num_threads": 512},
        chat=True,
    ),
    "longbenchv2": _Suite(
        "longbench_v2",
        "",
        {"max_tokens": 16384, "num_threads": 16, "max_context_length": 128_000},
        chat=True,
        uses=("max_context_length", "categories"),
    ),
}


def _setting(benchmark: Benchmark, suite: _Suite, name: str) -> int | float | None:
    value: int | float | None = getattr(benchmark, name)
    return suite.defaults.get(name) if value is None else value


def _sglang(name: str, suite: _Suite) -> Kind:
    def make(benchmark: Benchmark, load: Load) -> str:
        flags: list[Flag] = [("--base-url", URL), ("--model", load.model), ("--eval-name", suite.sglang)]
        if not suite.chat:
            flags.append(("--api", "completion"))
        for setting in (*_ANSWERS, *suite.uses):
            if setting == "categories":
                if benchmark.categories:
                    flags.append(("--categories", ",".join(benchmark.categories)))
            elif (value := _setting(benchmark, suite, setting)) is not None:
                flags.append((f"--{setting.replace('_', '-')}", _text(value)))
        # The runner writes its results to /tmp, named after the questions and the model.
        stem = f"/tmp/{suite.sglang}_{load.model.replace('/', '_')}"
        keep = f"cp {word(f'{stem}.json')} {word(f'{stem}.html')} {word(f'{RESULTS}/')} || echo 'note: see the score above'"
        run = command(("python3", "-m", "sglang.test.run_eval"), flags)
        return script(f"{name}: sglang.test.run_eval", need_module("sglang.test.run_eval", name), run, keep)

    return Kind("`sglang.test.run_eval`", make, (), (*_ANSWERS, *suite.uses))


def _lm_eval(name: str, suite: _Suite, refused: str = "") -> Kind:
    def make(benchmark: Benchmark, load: Load) -> str:
        path = "chat/completions" if suite.chat else "completions"
        endpoint = f"model={load.model},tokenizer={load.tokenizer},base_url={URL}/v1/{path}"
        model = f"{endpoint},num_concurrent={_setting(benchmark, suite, 'num_threads')},tokenized_requests=False"
        flags: list[Flag] = [("--model", f"local-{path.replace('/', '-')}"), ("--model_args", model)]
        flags.append(("--tasks", suite.lm_eval))
        if suite.chat:
            flags.append(("--apply_chat_template", None))
        if "num_shots" in suite.uses and benchmark.num_shots is not None:
            flags.append(("--num_fewshot", benchmark.num_shots))
        if (limit := _setting(benchmark, suite, "num_examples")) is not None:
            flags.append(("--limit", _text(limit)))
        sampling = {"max_gen_toks": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
        values = ((theirs, _setting(benchmark, suite, ours)) for theirs, ours in sampling.items())
        if given := ",".join(f"{theirs}={_text(value)}" for theirs, value in values if value is not None):
            flags.append(("--gen_kwargs", given))
        rounds = range(int(_setting(benchmark, suite, "repeat") or 1))
        calls = (call("ask", [("--seed", i), ("--output_path", f"{RESULTS}/round-{i}")]) for i in rounds)
        ask = function("ask", ("lm_eval",), flags)
        return script(f"{name}: lm_eval", need_command("lm_eval", name), ask, "\n".join(calls))

    refused = refused or ("" if suite.lm_eval else "only SGLang's images hold a public runner for it")
    return Kind("`lm_eval`", make, (), (*_ANSWERS, *suite.uses), refused=refused)


def _text(value: float) -> str:
    return number(float(value))


ACCURACY = {
    name: {
        "sglang": _sglang(name, suite),
        "vllm": _lm_eval(name, suite),
        "trtllm": _lm_eval(name, suite),
        "mocker": _lm_eval(name, suite, "it has no model, so its answers mean nothing"),
    }
    for name, suite in _SUITES.items()
}
