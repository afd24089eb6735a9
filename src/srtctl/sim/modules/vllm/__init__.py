"""Stands in for vLLM in a sandbox's image, so that `python3 -m vllm.entrypoints.cli.main` starts the simulated engine."""
