"""The public recipes, brought along unchanged: each is planned, or it is said why not.

With --allow-unsupported every file ends as *ok*, or as the recipe's own fault; the latter are listed here, reviewed.
The corpus lies beside the checkout (`../shared/corpus`), or where SRTCTL_CORPUS says.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from srtctl.cluster.load import load_cluster
from srtctl.diagnostics import Diagnostic
from srtctl.plan.build import build_plan
from srtctl.plan.model import Plan
from srtctl.plan.serial import plan_json
from srtctl.plan.variants import plan_variants
from srtctl.reading.document import read_yaml
from srtctl.recipe.load import load_recipe
from srtctl.recipe.migrate import migrate
from srtctl.recipe.variants import expand
from tests.support import CORPUS, needs_corpus

pytestmark = [needs_corpus, pytest.mark.process, pytest.mark.xdist_group("corpus")]  # one survey serves all of them

#: Loading and planning the corpus may take this many times what reading its YAML takes: 60 s where reading takes 1.6 s.
BUDGET = 25

TOO_BIG = "GPUs are left over: the sizes take fewer GPUs than the role's nodes give each worker, and `gpus_per_*` is not given"
GRID = "the sweep's grid holds combinations whose sizes do not make up the GPUs of a worker (8, of one node)"

_GRIDS = {
    "DeepSeek-R1/B200/trtllm": "1k8k-mtp",
    "DeepSeek-R1/B300/sglang": "1k1k-mtp 8k1k-mtp",
    "DeepSeek-R1/B300/trtllm": "1k1k-mtp 8k1k-mtp",
    "DeepSeek-R1/B300/vllm": "1k1k-mtp 8k1k-mtp",
    "DeepSeek-V4-Pro/B200/sglang": "1k1k-mtp 8k1k-mtp",
    "DeepSeek-V4-Pro/B200/trtllm": "1k1k-mtp 8k1k-mtp",
    "DeepSeek-V4-Pro/B200/vllm": "1k1k-mtp 8k1k-mtp",
    "Kimi-K2.5/B200/sglang": "1k1k 8k1k",
    "Kimi-K2.5/B200/trtllm": "1k1k 8k1k",
    "Kimi-K2.5/B200/vllm": "1k1k 1k8k 1k8k-ep 8k1k",
    "MiniMax-M2.5/B200/sglang": "1k1k 8k1k",
    "MiniMax-M2.5/B200/vllm": "1k1k 8k1k",
    "MiniMax-M3/B300/vllm": "1k1k_fp4_mtp_off 1k1k_fp4_mtp_off_dpattn 1k1k_fp4_mtp_on 1k1k_fp4_mtp_on_dpattn",
    "NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4/B200/sglang": "1k1k 8k1k",
    "NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4/B200/trtllm": "1k1k 8k1k",
    "NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4/B200/vllm": "1k1k 8k1k",
    "NVIDIA-Nemotron-3-Ultra/B200/vllm": "1k1k 8k1k",
    "Qwen3.5/B200/sglang": "1k1k 8k1k",
    "gpt-oss-120b/B200/vllm": "1k1k 1k1k-eagle 8k1k 8k1k-eagle",
    "gpt-oss-120b/H100/vllm": "1k1k 1k1k-eagle 8k1k 8k1k-eagle",
    "gpt-oss-120b/H200/vllm": "1k8k",
}
#: The recipe's own fault, by file.
OWN_FAULT = {
    "srt-slurm/gb300-fp4/glm5-mtp.yaml": TOO_BIG,
    **{
        f"srt-slurm-recipes/single-node/{folder}/{name}.yaml": GRID
        for folder, names in _GRIDS.items()
        for name in names.split()
    },
}
#: What each of these reasons looks like.
CODES = {
    TOO_BIG: {"sglang/gpu-count"},
    GRID: {"sglang/gpu-count", "vllm/gpu-count", "trtllm/gpu-count", "sglang/dp-divides-tp"},
}


@dataclass(frozen=True)
class Outcome:
    """One file of the corpus, planned with --allow-unsupported."""

    engine: str
    variants: int
    errors: tuple[Diagnostic, ...]
    not_built: frozenset[str]

    @property
    def state(self) -> str:
        """As `srtctl validate` would end: with the option, and what would have been refused without it."""
        if self.errors:
            return "fault" if {item.code for item in self.errors} - {"recipe/not-built"} else "refused"
        return "needs the option" if self.not_built else "ok"


@dataclass(frozen=True)
class Survey:
    outcomes: dict[str, Outcome]
    ratio: float


@cache
def files() -> tuple[Path, ...]:
    return tuple(sorted(CORPUS.rglob("*.yaml")))


@cache
def survey() -> Survey:
    """All of them, and what that took (in CPU time of this process) beside reading their YAML."""
    profile = load_cluster(None)
    begin = time.process_time()
    for path in files():
        read_yaml(path)
    read = time.process_time()
    outcomes = {}
    for path in files():
        planned = plan_variants(path, profile, allow_unsupported=True)
        found = [item for variant in planned for item in variant.diagnostics]
        engines = {variant.recipe.engine.type for variant in planned if variant.recipe}
        outcomes[str(path.relative_to(CORPUS))] = Outcome(
            "/".join(sorted(engines)) or "none",
            len(planned),
            tuple(item for item in found if item.severity == "error"),
            frozenset(item.path for item in found if item.code == "recipe/not-built"),
        )
    return Survey(outcomes, (time.process_time() - read) / (read - begin))


def of_state(*states: str) -> set[str]:
    return {name for name, outcome in survey().outcomes.items() if outcome.state in states}


def test_every_file_is_planned_or_listed_here_with_its_reason() -> None:
    assert len(files()) > 1000
    assert of_state("fault") == set(OWN_FAULT)
    assert of_state("refused") == set()


@pytest.mark.parametrize("name", OWN_FAULT)
def test_a_listed_reason_is_what_is_said_about_it(name: str) -> None:
    said = survey().outcomes[name].errors
    assert {item.code for item in said} <= CODES[OWN_FAULT[name]]


def test_every_diagnostic_stands_in_the_file_and_says_what_to_do() -> None:
    lines = {str(path): path.read_text().splitlines() for path in files()}
    for outcome in survey().outcomes.values():
        for item in outcome.errors:
            assert item.span is not None, item
            assert 0 < item.span.line <= len(lines[item.span.file]), item
            assert lines[item.span.file][item.span.line - 1].strip(), item
            assert item.hint, item


def test_nobodys_key_is_unknown() -> None:
    codes = Counter(item.code for outcome in survey().outcomes.values() for item in outcome.errors)
    assert not {"recipe/unknown-key", "recipe/type", "recipe/missing", "recipe/value"} & set(codes)


def test_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = survey().outcomes.values()
    with capsys.disabled():
        print(
            f"\n  {sum(o.variants for o in outcomes)} recipes in {len(outcomes)} files; {survey().ratio:.1f} x reading"
        )
        for engine in sorted({outcome.engine for outcome in outcomes}):
            states = Counter(outcome.state for outcome in outcomes if outcome.engine == engine)
            print(f"  {engine:<8} {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}")
        keys = Counter(key for outcome in outcomes for key in outcome.not_built)
        print("  not built: " + ", ".join(f"{key} {count}" for key, count in keys.most_common()))
    assert len(of_state("ok", "needs the option")) > 0.95 * len(files())


def test_nearly_all_need_no_option() -> None:
    """What `srtctl validate` says without --allow-unsupported: at least nine files in ten are ok."""
    assert len(of_state("ok")) >= 0.9 * len(files())


def test_the_whole_corpus_is_fast() -> None:
    assert survey().ratio < BUDGET


def plans(path: Path) -> Iterator[str]:
    """What the first and the last recipe of the file run, as JSON; without the places in the file."""
    profile = load_cluster(None)
    names = [variant.name for variant in expand(read_yaml(path))]
    for name in (names[0], names[-1]) if len(names) > 1 else ("",):
        loaded = load_recipe(f"{path}:{name}" if name else path, allow_unsupported=True)
        plan = build_plan(loaded, profile).plan
        yield plan_json(without_places(plan)) if plan else "none"


def without_places(plan: Plan) -> Plan:
    bare = (replace(item, span=None, related=()) for item in plan.warnings)
    return replace(plan, source="", warnings=tuple(sorted(bare, key=lambda item: (item.code, item.path, item.message))))


@cache
def migrated(path: Path) -> str:
    done = migrate(path.read_text(), str(path))
    assert done.text is not None, done.diagnostics
    return done.text


def test_each_migrates_to_the_same_plan_and_no_further(tmp_path: Path) -> None:
    copy = tmp_path / "recipe.yaml"
    for path in files():
        assert migrate(migrated(path), str(path)).text == migrated(path)
        copy.write_text(migrated(path))
        assert list(plans(copy)) == list(plans(path)), path


def test_migrating_keeps_every_comment() -> None:
    for path in files():
        assert comments(migrated(path)) == comments(path.read_text()), path


def comments(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.splitlines() if line.lstrip().startswith("#"))
