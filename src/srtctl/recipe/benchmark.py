"""What is run against the deployment once it serves, and its settings. `srtctl.benchmarks` says which kind knows which."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from srtctl.reading.types import EnvTable, Text, as_tuple
from srtctl.reading.validation import Strict
from srtctl.recipe import benchmark_values as values
from srtctl.recipe.placement import Placement

Kind = Literal[
    "manual",
    "custom",
    "sa-bench",
    "aiperf",
    "router",
    "mooncake-router",
    "trace-replay",
    "gsm8k",
    "gsm8k-bench",
    "gpqa",
    "mmlu",
    "longbenchv2",
]
Count = Annotated[int, Field(ge=1)]


class Benchmark(Strict):
    """What is run against the deployment once it serves. Which settings a kind knows: docs/benchmarks.md."""

    type: Kind = Field(
        default="manual",
        description="`manual`: serve until the job is cancelled or its time is over. Any other is a client whose end is "
        "the end of the job: `custom` runs `command`; the others run public tools.",
    )
    placement: Placement = Field(
        default_factory=Placement,
        description="Where the load comes from; `dedicated` reserves a node for it.",
    )
    command: Text | None = Field(
        default=None,
        description="`custom`: what bash runs, in the engine's image. $SRT_FRONTEND_URL is where it sends requests, "
        "$SRT_RESULTS_DIR where it leaves results.",
        examples=['python3 my_benchmark.py --url "$SRT_FRONTEND_URL"'],
    )
    env: EnvTable = Field(default_factory=dict, description="Environment of the client.")
    isl: Count | None = Field(default=None, description="Input length of a request, in tokens.")
    osl: Count | None = Field(default=None, description="Output length of a request, in tokens.")
    concurrencies: Annotated[
        tuple[int, ...] | None,
        BeforeValidator(values.concurrencies, json_schema_input_type=list[Count] | Count | str | None),
    ] = Field(
        default=None,
        description="Requests in flight: one measurement each. A list, or text such as `1x2x4`.",
        examples=[[1, 8, 64], "1x8x64"],
    )
    req_rate: Annotated[
        float | None, BeforeValidator(values.rate, json_schema_input_type=float | Literal["inf"] | str | None)
    ] = Field(
        default=None, description="Requests a second, or `inf`: as fast as the concurrency lets them (the default)."
    )
    random_range_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Lengths vary evenly from this part of `isl` and `osl` up to them; 1: all are equal.",
    )
    num_prompts_mult: Count | None = Field(
        default=None, description="Requests of a measurement, times its concurrency."
    )
    num_warmup_mult: int | None = Field(
        default=None, ge=0, description="Requests before a measurement, times its concurrency; 0: none."
    )
    custom_tokenizer: Text | None = Field(
        default=None, description="Class of a tokenizer of v1's own: no public tool has it."
    )
    use_chat_template: bool | None = Field(
        default=None, description="Send chat requests, on which the server lays the model's chat template."
    )
    slow_down_sleep_time: float | None = Field(
        default=None, description="SGLang's decode throttle: no public tool has it."
    )
    slow_down_wait_time: float | None = Field(
        default=None, description="SGLang's decode throttle: no public tool has it."
    )
    num_requests: Count | None = Field(default=None, description="`router`: requests of a measurement.")
    concurrency: Count | None = Field(default=None, description="`router`: requests in flight.")
    prefix_ratios: Annotated[
        tuple[float, ...] | None,
        BeforeValidator(values.ratios, json_schema_input_type=list[float] | str | None),
    ] = Field(default=None, description="`router`: parts of the input that requests share, one measurement each.")
    num_examples: Count | None = Field(default=None, description="Questions that are asked; default: the whole set.")
    max_tokens: Count | None = Field(default=None, description="Longest answer, in tokens.")
    repeat: Count | None = Field(default=None, description="How often the whole set is asked.")
    num_threads: Count | None = Field(default=None, description="Requests in flight.")
    num_shots: int | None = Field(default=None, ge=0, description="Solved examples before each question.")
    temperature: float | None = Field(default=None, ge=0, description="Sampling temperature of the answers.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling of the answers.")
    top_k: int | None = Field(default=None, description="Top-k sampling of the answers.")
    max_context_length: Count | None = Field(default=None, description="`longbenchv2`: longest context, in characters.")
    categories: Annotated[
        tuple[Text, ...] | None, BeforeValidator(as_tuple, json_schema_input_type=list[Text] | None)
    ] = Field(default=None, description="`longbenchv2`: kinds of tasks; default: all.")
    ttft_threshold_ms: float | None = Field(
        default=None, gt=0, description="A request counts as good up to this time to its first token, in milliseconds."
    )
    itl_threshold_ms: float | None = Field(
        default=None, gt=0, description="A request counts as good up to this time between tokens, in milliseconds."
    )
    trace_file: Text | None = Field(default=None, description="Requests to replay, in Mooncake's format (JSON lines).")
    mooncake_workload: Literal["mooncake", "conversation", "synthetic", "toolagent"] | None = Field(
        default=None, description="Which of Mooncake's public traces is replayed."
    )
    aiperf_package: Text | None = Field(
        default=None, description="What pip installs first where the image holds no AIPerf.", examples=["aiperf>=0.7.0"]
    )

    @property
    def given(self) -> tuple[str, ...]:
        """The settings that the recipe names, in the order of the model."""
        own = self.model_fields_set - {"type", "placement", "env"}
        return tuple(name for name in type(self).model_fields if name in own and getattr(self, name) is not None)
