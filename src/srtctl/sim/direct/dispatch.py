"""One request from the router's choice to its last token. Its booking is released before an error goes on."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Generator

from srtctl.sim.direct.chat import Answer, ChatRequest, rank_metadata, tokenize
from srtctl.sim.direct.router import Booking, Router

_TIMEOUT = 5.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Tokenizers:
    """The vocabulary behind each URL, fetched once."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    def vocab(self, url: str) -> dict[str, int]:
        """Raises OSError where nobody answers, ValueError or KeyError for what is no tokenizer."""
        with self._lock:
            if url not in self._known:
                with _OPENER.open(url, timeout=_TIMEOUT) as answer:
                    self._known[url] = json.loads(answer.read())["model"]["vocab"]
            return self._known[url]


class Dispatch:
    """A request that holds a place: `texts` runs it, `answer` is what came so far. To be closed, whatever happens."""

    def __init__(self, request: ChatRequest, router: Router, tokenizers: Tokenizers) -> None:
        """Book a place. Raises PinError, or as `Tokenizers.vocab`."""
        self.request, self.answer, self.first_ms = request, Answer(), 0.0
        self._router, self._started, self._released = router, time.monotonic(), False
        self.booking: Booking = router.book(request.model, request.worker_id, request.dp_rank)
        try:
            member = next(m for m in router.members() if m.worker_id == self.booking.rank[0])
            self._message = request.message(tokenize(request.prompt, tokenizers.vocab(member.tokenizer)))
        except BaseException:
            self.close()
            raise

    def texts(self) -> Generator[str]:
        """The generated text, piece by piece. Raises EngineError, once the place is given back."""
        try:
            for raw in self.booking.client.generate(self._message, rank_metadata(self.booking)):
                self.first_ms = self.first_ms or (time.monotonic() - self._started) * 1000
                yield self.answer.add(raw)
        finally:
            self.close()

    def close(self) -> None:
        """Give the place back, if that has not happened yet."""
        if not self._released:
            self._released = True
            self._router.release(self.booking)
