"""Stands in for SGLang in a sandbox's image, so that `python3 -m sglang.launch_server` starts the simulated engine."""
