"""SGLang: flags, publishers and ports of `python3 -m sglang.launch_server` (rules: docs/sglang.md)."""

from srtctl.backends.sglang.backend import SglangBackend

__all__ = ["SglangBackend"]
