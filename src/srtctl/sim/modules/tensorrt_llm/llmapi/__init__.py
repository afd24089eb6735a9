"""The parts of TensorRT-LLM's launcher that are simulated."""
