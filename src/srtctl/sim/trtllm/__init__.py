"""A simulated TensorRT-LLM server: the real one's flags, file, ranks and protocol; nothing about tokens or speed."""
