"""Stands in for `dynamo.vllm` in the image whose Dynamo has direct dispatch."""
