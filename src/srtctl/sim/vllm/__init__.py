"""A simulated vLLM server: the real one's flags, ports and protocols; nothing about tokens or speed."""
