"""TensorRT-LLM: one MPI job a worker, configured by a YAML file (rules: docs/engines.md)."""

from srtctl.backends.trtllm.backend import TrtllmBackend

__all__ = ["TrtllmBackend"]
