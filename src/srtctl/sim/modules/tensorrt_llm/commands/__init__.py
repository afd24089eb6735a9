"""The commands of TensorRT-LLM that are simulated."""
