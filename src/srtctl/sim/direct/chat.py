"""OpenAI chat completions to vLLM's gRPC and back, with the part of Dynamo's `nvext` that the checks use."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from srtctl.sim.direct.router import Booking
from srtctl.sim.vllm.grpc_server import RANK_METADATA
from srtctl.sim.vllm.messages import MESSAGES

_FINISH = {1: "length", 2: "stop"}


class BadRequestError(ValueError):
    """The client's fault, in words."""


@dataclass(frozen=True)
class ChatRequest:
    """A request. `worker_id` and `dp_rank` pin it; None leaves the choice to the router."""

    request_id: str
    model: str
    prompt: str
    max_tokens: int | None
    stream: bool
    worker_id: int | None
    dp_rank: int | None

    def message(self, tokens: Sequence[int]) -> bytes:
        """What the engine gets."""
        stopping = MESSAGES["StoppingCriteria"](max_new_tokens=self.max_tokens or 0)
        wanted = MESSAGES["ResponseOptions"](output_text=True, output_token_ids=True)
        prompt = MESSAGES["TokenIds"](ids=tokens)
        request = MESSAGES["GenerateRequest"](
            request_id=self.request_id, model=self.model, token_ids=prompt, stopping=stopping, response=wanted
        )
        return bytes(request.SerializeToString())


def rank_metadata(booking: Booking) -> tuple[tuple[str, str], ...]:
    """How vLLM is told the DP rank."""
    return ((RANK_METADATA, str(booking.rank[1])),)


def read_request(body: bytes) -> ChatRequest:
    """The request in the body of a POST. Raises BadRequestError."""
    try:
        data = json.loads(body)
        extension = data.get("nvext") or {}
        worker = extension.get("backend_instance_id", extension.get("decode_worker_id"))
        rank = extension.get("dp_rank")
        return ChatRequest(
            request_id=uuid.uuid4().hex,
            model=str(data["model"]),
            prompt=_prompt(data["messages"]),
            max_tokens=None if data.get("max_tokens") is None else int(data["max_tokens"]),
            stream=bool(data.get("stream")),
            worker_id=None if worker is None else int(worker),
            dp_rank=None if worker is None or rank is None else int(rank),  # Dynamo ignores a rank without a worker
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadRequestError(f"not a chat completion request: {type(error).__name__}: {error}") from None


def _prompt(messages: Sequence[Mapping[str, Any]]) -> str:
    """As the template of the simulated model writes it."""
    return "".join(f"<|{m['role']}|>{m['content']}<|end|>" for m in messages) + "<|assistant|>"


def tokenize(prompt: str, vocab: Mapping[str, int]) -> list[int]:
    """One token a special word or byte, as in the simulated model (byte-level BPE without merges)."""
    texts, found, at = _byte_texts(), [], 0
    special = sorted((word for word in vocab if word.startswith("<") and len(word) > 1), key=len, reverse=True)
    while at < len(prompt):
        word = next((word for word in special if prompt.startswith(word, at)), None)
        if word is not None:
            found.append(vocab[word])
            at += len(word)
            continue
        found += [vocab[texts[byte]] for byte in prompt[at].encode()]
        at += 1
    return found


def _byte_texts() -> list[str]:
    """The character by which byte-level BPE writes each byte (GPT-2's rule)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(0x100)]


@dataclass
class Answer:
    """What came back so far."""

    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None

    def add(self, raw: bytes) -> str:
        """Take in one message of the stream; returns its text."""
        message = MESSAGES["GenerateResponse"].FromString(raw)
        if message.HasField("prompt_info"):
            self.prompt_tokens = message.prompt_info.num_prompt_tokens
        self.completion_tokens += message.outputs.num_tokens
        self.text += message.outputs.text
        if message.outputs.HasField("finish_info"):
            self.finish_reason = _FINISH.get(int(message.outputs.finish_info.finish_reason), "error")
        return str(message.outputs.text)

    def usage(self) -> dict[str, int]:
        """OpenAI's count of tokens."""
        total = self.prompt_tokens + self.completion_tokens
        counts = (self.prompt_tokens, self.completion_tokens, total)
        return dict(zip(("prompt_tokens", "completion_tokens", "total_tokens"), counts, strict=True))


def completion(request: ChatRequest, booking: Booking, answer: Answer, first_ms: float) -> dict[str, Any]:
    """The whole answer. Both legs of `nvext.worker_id` are the one aggregated worker, as in Dynamo."""
    message = {"role": "assistant", "content": answer.text}
    legs = {f"{leg}_{name}": value for leg in ("prefill", "decode") for name, value in _named(booking)}
    return {
        "id": f"chatcmpl-{request.request_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
        "usage": answer.usage(),
        "nvext": {"worker_id": legs, "timing": {"ttft_ms": round(first_ms, 3)}},
    }


def _named(booking: Booking) -> tuple[tuple[str, int], ...]:
    return ("worker_id", booking.rank[0]), ("dp_rank", booking.rank[1])


def events(request: ChatRequest, texts: Iterator[str], answer: Answer) -> Iterator[dict[str, Any]]:
    """A chunk for each text as it comes, then one with the reason and the usage."""
    frame: dict[str, Any] = {
        "id": f"chatcmpl-{request.request_id}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": request.model,
    }
    for text in texts:
        delta = {"role": "assistant", "content": text}
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = {"index": 0, "delta": {}, "finish_reason": answer.finish_reason}
    yield {**frame, "choices": [last], "usage": answer.usage()}
