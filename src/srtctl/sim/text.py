"""What a simulated engine generates: the rank's name, then the alphabet, again and again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from srtctl.sim.model import Model, ModelError

DEFAULT_NEW_TOKENS = 16
TOKEN_SECONDS = 0.002  # long enough to abort a request while it runs, short enough for tests
_REST = "abcdefghijklmnopqrstuvwxyz"


class Text:
    """The endless text of each DP rank, `r1abc...` for rank 1, in tokens of one character."""

    def __init__(self, model: Model, dp_ranks: Iterable[int]) -> None:
        """Raises ModelError when the model's vocabulary lacks a character that is generated."""
        self._starts = {rank: _tokens(f"r{rank}", model) for rank in dp_ranks}
        self._rest = _tokens(_REST, model)

    def of(self, dp_rank: int) -> Iterator[tuple[int, str]]:
        """Token ids with their characters, from the beginning."""
        return itertools.chain(self._starts[dp_rank], itertools.cycle(self._rest))


def _tokens(text: str, model: Model) -> tuple[tuple[int, str], ...]:
    try:
        return tuple((model.vocab[character], character) for character in text)
    except KeyError as missing:
        raise ModelError(f"{model.path}: the tokenizer has no token for {missing}") from None
