"""The text of every configuration file of a sandbox. Pure functions of the shape and the paths."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from srtctl.sandbox.layout import Layout
from srtctl.sandbox.spec import Shape, namespace_name

CPUS_PER_NODE = 64
MEMORY_MIB_PER_NODE = 262144
"""What each node claims to have. Nothing is enforced (`config_overrides`): all nodes share this machine anyway."""
EPHEMERAL_PORTS = (32768, 60999)
KILL_WAIT_SECONDS = 10


def slurm_conf(shape: Shape, layout: Layout, user: str) -> str:
    """slurm.conf. `user` runs all daemons: root in netns mode, whoever boots it in loopback mode."""
    return _lines(
        [
            ("ClusterName", "sandbox"),
            ("SlurmctldHost", f"{shape.host}({shape.controller})"),
            ("SlurmctldPort", shape.controller_port),
            ("SlurmUser", user),
            ("SlurmdUser", user),
            ("AuthType", "auth/munge"),
            ("CredType", "cred/munge"),
            ("AuthInfo", f"socket={layout.munge_socket}"),
            # Only the controller: with NoInAddrAny no job launch reaches slurmd. It binds the address that this
            # machine's name resolves to, which only `controller_command` can choose.
            *([("CommunicationParameters", "NoCtldInAddrAny")] if shape.network == "netns" else []),
            ("StateSaveLocation", layout.controller_state),
            ("SlurmdSpoolDir", layout.spool / "%n"),
            ("SlurmctldPidFile", layout.controller_state / "slurmctld.pid"),
            ("SlurmdPidFile", layout.spool / "%n" / "slurmd.pid"),
            ("SlurmctldLogFile", layout.logs / "slurmctld.log"),
            ("SlurmdLogFile", layout.logs / "slurmd-%n.log"),
            ("SlurmctldSyslogDebug", "quiet"),
            ("SlurmdSyslogDebug", "quiet"),
            ("AccountingStorageType", "accounting_storage/none"),
            ("JobAcctGatherType", "jobacct_gather/none"),
            ("JobCompType", "jobcomp/none"),
            ("MpiDefault", "none"),
            ("MailProg", "/bin/true"),
            # cgroups belong to the machine, and an ordinary user has none to give.
            ("ProctrackType", "proctrack/linuxproc"),
            ("TaskPlugin", "task/none"),
            ("SelectType", "select/cons_tres"),
            ("SelectTypeParameters", "CR_CPU_Memory"),
            ("SchedulerType", "sched/backfill"),
            # Slurm waits 3 s for more batch jobs before it starts one; a sandbox is for people who wait.
            ("SchedulerParameters", "batch_sched_delay=0,bf_interval=5"),
            ("SlurmdParameters", "config_overrides"),
            ("ReturnToService", 2),
            ("KillWait", KILL_WAIT_SECONDS),
            ("OverTimeLimit", 0),
            ("MinJobAge", 300),
            ("SlurmctldTimeout", 30),
            ("SlurmdTimeout", 60),
            *([("GresTypes", "gpu")] if shape.gpus_per_node else []),
        ]
    ) + "".join(_node_lines(shape))


def _node_lines(shape: Shape) -> Iterable[str]:
    gres = f" Gres=gpu:{shape.gpus_per_node}" if shape.gpus_per_node else ""
    for node in shape.nodes:
        # slurmd asks for its own host name; only in a namespace of its own is that the node's name.
        hostname = node.name if shape.network == "netns" else shape.host
        yield (
            f"NodeName={node.name} NodeHostname={hostname} NodeAddr={node.address} Port={node.port} "
            f"CPUs={CPUS_PER_NODE} RealMemory={MEMORY_MIB_PER_NODE}{gres} State=UNKNOWN\n"
        )
    yield "PartitionName=sandbox Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


def gres_conf(shape: Shape, layout: Layout) -> str:
    """gres.conf: the stand-in device files; empty without GPUs."""
    if not shape.gpus_per_node:
        return ""
    return f"AutoDetect=off\nName=gpu File={layout.gpus}/gpu[0-{shape.gpus_per_node - 1}]\n"


def cgroup_conf(slurm_version: tuple[int, int]) -> str:
    """cgroup.conf that keeps Slurm away from the machine's cgroups.

    `disabled` exists in newer releases only (cgroup.conf(5) of 24.05 has it, that of 22.05 does not). The v1 plugin
    touches nothing as long as no other plugin asks it to, while the v2 plugin wants to create a scope at once.
    """
    return f"CgroupPlugin={'disabled' if slurm_version >= (24, 5) else 'cgroup/v1'}\n"


def hosts(shape: Shape) -> str:
    """/etc/hosts of the nodes of a netns sandbox: each other, and this machine at the bridge."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{shape.controller} {shape.host}"]
    return "\n".join(lines + [f"{node.address} {node.name}" for node in shape.nodes]) + "\n"


def controller_command(shape: Shape, layout: Layout, programs: Mapping[str, str]) -> list[str]:
    """argv that becomes slurmctld; in netns mode it sees the nodes' /etc/hosts, so it listens on the bridge alone."""
    slurmctld = [programs["slurmctld"], "-D", "-f", str(layout.slurm_conf)]
    if shape.network == "loopback":
        return slurmctld
    return _unshared(["--mount"], f"{_own_hosts(layout)} && exec {shlex.join(slurmctld)}", programs)


def node_command(shape: Shape, layout: Layout, index: int, programs: Mapping[str, str]) -> list[str]:
    """argv that becomes the slurmd of a node (every part execs the next: the pid stays).

    nsenter, not `ip netns exec`: the latter mounts /sys anew, where slurmd looks for its cgroups.
    """
    node = shape.nodes[index]
    slurmd = [programs["slurmd"], "-D", "-f", str(layout.slurm_conf), "-N", node.name]
    if shape.network == "loopback":
        return slurmd
    low, high = EPHEMERAL_PORTS
    script = (
        f"{_own_hosts(layout)} && hostname {node.name} && "
        f"echo {low} {high} >/proc/sys/net/ipv4/ip_local_port_range && exec {shlex.join(slurmd)}"
    )
    enter = [programs["nsenter"], f"--net=/run/netns/{namespace_name(shape.name, index)}"]
    return [*enter, *_unshared(["--uts", "--mount"], script, programs)]


def _unshared(namespaces: list[str], script: str, programs: Mapping[str, str]) -> list[str]:
    return [programs["unshare"], *namespaces, "/bin/sh", "-c", script]


def _own_hosts(layout: Layout) -> str:
    return f"mount --bind {shlex.quote(str(layout.hosts))} /etc/hosts"


def _lines(pairs: Iterable[tuple[str, object]]) -> str:
    return "".join(f"{key}={value}\n" for key, value in pairs)
