"""Engines. The registry is the only list of them."""

from __future__ import annotations

from srtctl.backends.base import Backend
from srtctl.backends.mocker import MockerBackend
from srtctl.backends.sglang import SglangBackend
from srtctl.backends.trtllm import TrtllmBackend
from srtctl.backends.vllm import VllmBackend

_ALL = (SglangBackend(), VllmBackend(), TrtllmBackend(), MockerBackend())

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in _ALL}
