"""Dynamo's mocker: an engine without a model, for trying routers and launches (rules: docs/engines.md)."""

from srtctl.backends.mocker.backend import MockerBackend

__all__ = ["MockerBackend"]
