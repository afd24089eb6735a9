"""Stands in for TensorRT-LLM in a sandbox's image: `tensorrt_llm.commands.serve` and the workers that its launcher starts."""
