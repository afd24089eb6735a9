"""vLLM: hybrid data parallelism, replicas over nodes and KV connectors of `vllm serve` (rules: docs/engines.md)."""

from srtctl.backends.vllm.backend import VllmBackend

__all__ = ["VllmBackend"]
