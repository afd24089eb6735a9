"""`python3 -m srtctl.checks.sockets RUN_DIR PORT...`: this node's TCP connections to or from those ports, and whose they are.

One line of JSON on stdout. Bytes are the kernel's own count for each connection (`tcp_info`, over netlink); where it
does not tell, they are null. Processes are those that `node.sh` started here, known by their process groups.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ESTABLISHED = 1
_SOCK_DIAG, _BY_FAMILY, _DUMP_REQUEST = 4, 20, 0x301
_DONE, _ERROR, _INET_DIAG_INFO = 3, 2, 2
_HEADER, _MESSAGE = struct.Struct("=IHHII"), 72  # nlmsghdr; inet_diag_msg
_BYTES_RECEIVED = 128  # in tcp_info, since Linux 4.1


@dataclass(frozen=True)
class Connection:
    """An established connection as this end sees it; `received` bytes (None: not told), `process` and `part` of the run
    that hold it (empty: not visible)."""

    local: str
    remote: str
    received: int | None = None
    process: str = ""
    part: str = ""


def connections(ports: Collection[int]) -> Iterator[tuple[Connection, int]]:
    """Every established connection with one of `ports` at either end, and the inode of this end's socket.

    Raises OSError where the kernel has no socket diagnosis.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        for message in _dump(family):
            yield from _parsed(message, ports)


def _dump(family: int) -> Iterator[bytes]:
    extensions = 1 << (_INET_DIAG_INFO - 1)
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, extensions, 0, 1 << ESTABLISHED) + bytes(48)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
        netlink.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP_REQUEST, 1, 0) + request)
        while True:
            data = netlink.recv(1 << 18)
            while data:
                length, kind, *_ = _HEADER.unpack_from(data)
                body, data = data[_HEADER.size : length], data[(length + 3) & ~3 :]
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    raise OSError(code, os.strerror(code))
                yield body


def _parsed(message: bytes, ports: Collection[int]) -> Iterator[tuple[Connection, int]]:
    local_port, remote_port = struct.unpack_from(">HH", message, 4)
    if local_port not in ports and remote_port not in ports:
        return
    size = 4 if message[0] == socket.AF_INET else 16
    local, remote = (_address(message[at : at + size]) for at in (8, 24))
    inode = struct.unpack_from("=I", message, 68)[0]
    yield Connection(f"{local}:{local_port}", f"{remote}:{remote_port}", _received(message[_MESSAGE:])), inode


def _address(packed: bytes) -> str:
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _received(attributes: bytes) -> int | None:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == _INET_DIAG_INFO and length >= 4 + _BYTES_RECEIVED + 8:
            return int(struct.unpack_from("=Q", attributes, 4 + _BYTES_RECEIVED)[0])
        attributes = attributes[(max(length, 4) + 3) & ~3 :]
    return None


def listed(ports: Collection[int], files: Sequence[Path]) -> Iterator[tuple[Connection, int]]:
    """The same from the text of /proc/net/tcp and tcp6, which has no bytes; what cannot be read is left out."""
    for path in files:
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines()[1:]:
                fields = line.split()
                ends = [field.split(":") for field in fields[1:3]]
                if int(fields[3], 16) == ESTABLISHED and any(int(port, 16) in ports for _, port in ends):
                    local, remote = (f"{_address(_packed(address))}:{int(port, 16)}" for address, port in ends)
                    yield Connection(local, remote), int(fields[9])


def _packed(text: str) -> bytes:
    """An address of /proc/net/tcp: words of 32 bits in the machine's byte order."""
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    return b"".join(struct.pack("=I", word) for word in words)


def owners(events: Path) -> dict[int, tuple[str, str]]:
    """Process and part of each socket, by inode: the sockets of the process groups that `events` says were started."""
    groups: dict[int, tuple[str, str]] = {}
    with contextlib.suppress(OSError):
        for line in events.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError):
                event = json.loads(line)
                if event["event"] == "started":
                    groups[os.getpgid(event["pid"])] = event["process"], event["part"]
    found: dict[int, tuple[str, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            owner = groups.get(os.getpgid(int(folder.name)))
            for handle in (folder / "fd").iterdir() if owner else ():
                with contextlib.suppress(OSError, ValueError):
                    kind, _, inode = str(handle.readlink()).partition(":")
                    if kind == "socket" and owner:
                        found[int(inode.strip("[]"))] = owner
    return found


def look(ports: Collection[int], events: Path) -> list[Connection]:
    """What this node sees now; `events` is what its tasks noted."""
    try:
        seen = list(connections(ports))
    except OSError:
        seen = list(listed(ports, [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]))
    owner: Mapping[int, tuple[str, str]] = owners(events) if seen else {}
    named = ((connection, owner.get(inode, ("", ""))) for connection, inode in seen)
    return [replace(connection, process=process, part=part) for connection, (process, part) in named]


def main(argv: Sequence[str]) -> int:
    """Print what is seen, as `{"node": INDEX, "connections": [...]}`. Returns 0."""
    run_dir, ports = Path(argv[0]), {int(port) for port in argv[1:]}
    nodes = [line.split("\t") for line in (run_dir / "state" / "nodes.tsv").read_text().splitlines()]
    index = next(int(fields[0]) for fields in nodes if fields[1] == os.environ["SLURMD_NODENAME"])
    seen = look(ports, run_dir / "events" / f"node-{index}.jsonl")
    print(json.dumps({"node": index, "connections": [asdict(connection) for connection in seen]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
