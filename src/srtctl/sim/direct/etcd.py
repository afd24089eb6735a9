"""etcd over its JSON gateway: enough to register under a lease, and to read what others registered."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Mapping
from typing import Any

TIMEOUT = 5.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Etcd:
    """The first of `ETCD_ENDPOINTS`. Every method raises OSError when it does not answer, ValueError for nonsense."""

    def __init__(self, endpoints: str) -> None:
        self._url = endpoints.split(",")[0].rstrip("/")

    def prefix(self, prefix: str) -> dict[str, Any]:
        """The JSON value of every key that begins with `prefix`."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self._post("kv/range", {"key": _encode(prefix), "range_end": _encode(end)}).get("kvs", [])
        return {_decode(pair["key"]): json.loads(_decode(pair["value"])) for pair in found}

    def grant(self, seconds: int) -> int:
        """A new lease that ends by itself after so many seconds without `keep`."""
        return int(self._post("lease/grant", {"TTL": seconds})["ID"])

    def put(self, key: str, value: object, lease: int) -> None:
        """Set a key for as long as the lease lives."""
        body = {"key": _encode(key), "value": _encode(json.dumps(value)), "lease": lease}
        self._post("kv/put", body)

    def keep(self, lease: int) -> bool:
        """Prolong a lease; false when it has ended."""
        return int(self._post("lease/keepalive", {"ID": lease}).get("result", {}).get("TTL", 0)) > 0

    def revoke(self, lease: int) -> None:
        """End a lease, and all that was registered under it."""
        self._post("lease/revoke", {"ID": lease})

    def _post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._url}/v3/{path}", json.dumps(body).encode())
        with _OPENER.open(request, timeout=TIMEOUT) as answer:
            return dict(json.loads(answer.read()))


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()
