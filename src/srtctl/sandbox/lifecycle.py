"""`up` and `down`."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from srtctl.cluster.paths import sandbox_dir, sandbox_name
from srtctl.sandbox import addresses, boot, network, packages, record, stack
from srtctl.sandbox.errors import SandboxError, SandboxRefusedError
from srtctl.sandbox.hostlock import host_lock
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.record import Record
from srtctl.sandbox.spec import SandboxSpec, Shape, loopback_shape, netns_shape
from srtctl.sandbox.status import status
from srtctl.sandbox.teardown import teardown

UNIX_PATH_MAX = 107
"""Bytes that a socket's path may have, unix(7): 108 with the final zero."""
ADDRESS_LOCK_SECONDS = 120

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox that is up. `booted` is False when it was up before."""

    shape: Shape
    state: Path
    profile: Path
    booted: bool


def up(spec: SandboxSpec, say: Say = lambda _: None, env: Mapping[str, str] = os.environ) -> Sandbox:
    """Boots the sandbox, or finds it up in the same shape. `say` gets lines for people.

    Raises SandboxRefusedError when it cannot be or is up in another shape, SandboxError (with the end of a log) when
    the boot fails; then nothing stays behind unless `spec.retain`.
    """
    layout = Layout(sandbox_dir(spec.name, env).absolute())
    with host_lock(f"the sandbox {layout.root}"):
        now = status(spec.name, env)
        if now.intact and now.shape and now.profile:
            if differences := now.shape.differences(spec):
                raise SandboxRefusedError(
                    f"the sandbox `{spec.name}` is up with {' and '.join(differences)}",
                    hint=f"run `srtctl sandbox down{_name_option(spec.name)}` first",
                )
            return Sandbox(now.shape, layout.root, now.profile, booted=False)
        programs = packages.require()
        tools = stack.require(env)
        _check_paths(layout, spec.nodes)
        if layout.root.exists():
            say("an earlier sandbox is broken or was cut short: removing what it left")
        teardown(spec.name, layout, say)
        try:
            shape = _boot(spec, layout, programs, tools, say)
        except BaseException:
            _clean_up(spec, layout, say)
            raise
        return Sandbox(shape, layout.root, layout.profile, booted=True)


def down(name: str | None = None, say: Say = lambda _: None, env: Mapping[str, str] = os.environ) -> bool:
    """Removes a sandbox, whatever is left of it: jobs, processes, network, files. Returns whether there was anything.

    Raises SandboxError when a process or a mount cannot be removed.
    """
    name = name or sandbox_name(env)
    layout = Layout(sandbox_dir(name, env).absolute())
    with host_lock(f"the sandbox {layout.root}"):
        return teardown(name, layout, say)


def _boot(spec: SandboxSpec, layout: Layout, programs: dict[str, str], tools: stack.Stack, say: Say) -> Shape:
    reason = network.why_not_netns() if spec.network != "loopback" else ""
    if reason and spec.network == "netns":
        raise SandboxRefusedError(f"--network netns is not possible: {reason}", hint="use --network loopback")
    if spec.network == "auto":
        say(f"network: loopback, because {reason}" if reason else "network: netns (root, and namespaces work)")
    use_netns = spec.network != "loopback" and not reason
    if use_netns and (other := network.owner(spec.name)) is not None:
        raise SandboxRefusedError(
            f"another sandbox named `{spec.name}` is up on this machine, in {other or 'an unknown folder'}",
            hint="give another --name",
        )
    host = socket.gethostname().partition(".")[0]
    with host_lock("sandbox addresses", wait_seconds=ADDRESS_LOCK_SECONDS):
        if use_netns:
            subnet = addresses.choose_subnet(spec, addresses.used_ranges())
            shape = netns_shape(spec, subnet, host, addresses.choose_controller_port())
        else:
            shape = loopback_shape(spec, addresses.choose_block(spec), host)
        data = layout.root.parent.parent
        made_data_dir = not data.exists() or [path.name for path in data.iterdir()] == [layout.root.parent.name]
        layout.root.mkdir(parents=True)
        record.write(layout.record, Record(shape, made_data_dir, use_netns and network.netns_dir_is_ours()))
        if use_netns:
            network.create_bridge(shape, layout.root)
        boot.write_files(shape, layout, programs)
        if not use_netns:
            boot.start_all(shape, layout, programs, say)
    if use_netns:
        network.create_nodes(shape)
        boot.start_all(shape, layout, programs, say)
    boot.finish(shape, layout, tools)
    return shape


def _clean_up(spec: SandboxSpec, layout: Layout, say: Say) -> None:
    later = f"`srtctl sandbox down{_name_option(spec.name)}` removes it"
    if spec.retain and layout.root.exists():
        say(f"kept for a look: {layout.root}; {later}")
        return
    try:
        teardown(spec.name, layout, say)
    except SandboxError as error:  # the reason why the boot failed matters more
        say(f"something stays behind ({error.message}); {later}")


def _check_paths(layout: Layout, nodes: int) -> None:
    hint = "set SRTCTL_DATA_DIR to a folder with a short, plain path"
    if (excess := len(os.fsencode(layout.step_socket(nodes - 1))) - UNIX_PATH_MAX) > 0:
        raise SandboxRefusedError(
            f"{layout.root} is {excess} bytes too long: Slurm keeps sockets below it, whose paths end at "
            f"{UNIX_PATH_MAX} bytes",
            hint=hint,
        )
    if not re.fullmatch(r"[\w/.@+-]+", str(layout.root)):
        raise SandboxRefusedError(f"slurm.conf cannot hold the path {layout.root}", hint=hint)


def _name_option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"
