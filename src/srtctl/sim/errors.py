"""How a request, or the engine's group of processes, can fail."""

from __future__ import annotations


class RequestError(Exception):
    """The request cannot be served: the client's fault."""


class InternalError(Exception):
    """The request failed inside the engine."""


class UnavailableError(Exception):
    """The part of the engine that would run the request is gone."""


class TransferError(Exception):
    """The KV cache did not get from prefill to decode."""


class AbortedError(Exception):
    """The client gave the request up while it waited."""


class GroupError(Exception):
    """The distributed group could not form, or lost a member."""


class MemberLostError(GroupError):
    """A member went away after the group had formed."""
