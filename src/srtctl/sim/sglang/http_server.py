"""The routes of the HTTP server: health and information. A follower answers health alone, as SGLang's does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from srtctl.sim.http_server import Answer, Route, json_answer, text_answer
from srtctl.sim.sglang.config import Config


def routes(
    config: Config, server_info: dict[str, Any], model_info: dict[str, Any], flush: Callable[[], None] | None
) -> dict[str, Route]:
    """The routes of a process; `flush` empties the caches, None on a follower, which answers health alone."""

    table: dict[str, Route] = {"/health": text_answer, "/health_generate": text_answer}
    if flush is None:
        return table
    card = {"id": config.served_model_name, "object": "model", "owned_by": "sglang", "root": config.model_path}
    card["max_model_len"] = server_info["context_length"]

    def flush_cache() -> Answer:
        flush()
        return text_answer("Cache flushed.\n")

    return table | {
        "/v1/models": lambda: json_answer({"object": "list", "data": [card]}),
        "/get_server_info": lambda: json_answer(server_info),
        "/server_info": lambda: json_answer(server_info),
        "/get_model_info": lambda: json_answer(model_info),
        "/model_info": lambda: json_answer(model_info),
        "/flush_cache": flush_cache,
    }
