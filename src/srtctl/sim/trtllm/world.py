"""The MPI world of an engine: as many ranks as Slurm started, which meet at rank 0's MASTER_ADDR:MASTER_PORT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from srtctl.sim.address import Address
from srtctl.sim.errors import GroupError, MemberLostError
from srtctl.sim.group import Group, Handler, form
from srtctl.sim.process import group_timeout
from srtctl.sim.rendezvous import Membership

JOIN_SECONDS = 300.0
FLAG = "MASTER_ADDR:MASTER_PORT"


@dataclass(frozen=True)
class World:
    """This process's place: its rank among `size`. `address` is where rank 0 waits, None for a world of one."""

    rank: int
    size: int
    address: Address | None

    @property
    def host(self) -> str:
        """The address of rank 0's node."""
        return self.address.host if self.address else "127.0.0.1"

    def form(self, handle: Handler, on_lost: Callable[[MemberLostError], None]) -> Group:
        """Join the others. Raises GroupError, or OSError where rank 0 cannot listen."""
        sizes = {"world_size": self.size}
        mine = Membership(self.rank, self.size, self.address if self.size > 1 else None, sizes, FLAG)
        return form(mine, group_timeout(JOIN_SECONDS), handle, on_lost)


def read_world(env: Mapping[str, str]) -> World:
    """From the variables that Slurm and the launch set. Raises GroupError where a world has no meeting point."""
    rank, size = int(env.get("SLURM_PROCID", "0")), int(env.get("SLURM_NTASKS", "1"))
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    if host and port.isdecimal():
        return World(rank, size, Address(host, int(port)))
    if size > 1:
        raise GroupError(f"{size} MPI ranks, but {FLAG} says {host or 'nothing'}:{port or 'nothing'}")
    return World(rank, size, None)
