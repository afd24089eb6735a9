"""The programs that a sandbox needs, the Debian packages they come in, and their installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping

from srtctl.sandbox.errors import SandboxError, SandboxRefusedError

PACKAGES: Mapping[str, str] = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-client",
    "srun": "slurm-client",
    "sinfo": "slurm-client",
    "squeue": "slurm-client",
    "scancel": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "etcd": "etcd-server",
    "nats-server": "nats-server",
    "nginx": "nginx",
    "mount": "mount",
    "umount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Program -> Debian package."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Debian starts a service when its package is installed, unless a policy-rc.d says no (invoke-rc.d(8)), and enables it
# for the next boot. The machine's services stay as they were: no start now, and none later of what is new.
INSTALL_SCRIPT = """
set -eu
guard=/usr/sbin/policy-rc.d
if [ ! -e "$guard" ]; then
  trap 'rm -f "$guard"' EXIT
  trap 'exit 130' HUP INT TERM
  printf '#!/bin/sh\\nexit 101\\n' >"$guard"
  chmod 755 "$guard"
fi
new=
for unit in munge slurmctld slurmd etcd nats-server nginx; do
  [ -e "/lib/systemd/system/$unit.service" ] || new="$new $unit"
done
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q -o DPkg::Lock::Timeout=120 --no-install-recommends "$@"
command -v systemctl >/dev/null || exit 0
for unit in $new; do
  if [ -e "/lib/systemd/system/$unit.service" ]; then systemctl disable "$unit" || true; fi
done
"""


def find_program(name: str) -> str | None:
    """Path of a program: from PATH, else from the folders for daemons, which an ordinary user's PATH often lacks."""
    return shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)


def missing() -> list[str]:
    """Debian packages of the programs that are not here, sorted, each once."""
    return sorted({package for program, package in PACKAGES.items() if find_program(program) is None})


def require() -> dict[str, str]:
    """Program -> path of everything in PACKAGES. Raises SandboxRefusedError naming the missing packages."""
    if names := missing():
        raise SandboxRefusedError(
            f"the sandbox needs packages that are not installed: {', '.join(names)}",
            hint=f"run `srtctl sandbox install`, or: {apt_command(names)}",
        )
    return {program: path for program in PACKAGES if (path := find_program(program))}


def apt_command(names: Iterable[str]) -> str:
    """What an administrator types to install these packages."""
    return f"apt-get install --no-install-recommends {' '.join(names)}"


def install(say: Callable[[str], None]) -> None:
    """Installs what is missing, as root or through `sudo -n`. Raises SandboxError when that cannot be done or fails."""
    names = missing()
    if not names:
        return
    line = apt_command(names)
    if find_program("apt-get") is None:
        raise SandboxError(
            f"not installed: {', '.join(names)} (Debian's names), and there is no apt-get here",
            hint="install Slurm, munge, iproute2, etcd, nats-server and nginx with this system's package manager",
        )
    prefix = privileged()
    if prefix is None:
        raise SandboxError(f"not installed: {', '.join(names)}; this needs root", hint=f"run as root: {line}")
    say(f"installing {', '.join(names)}")
    done = subprocess.run(
        [*prefix, "/bin/sh", "-c", INSTALL_SCRIPT, "sh", *names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or missing():
        tail = "\n".join(f"  {text}" for text in done.stdout.splitlines()[-12:])
        raise SandboxError(f"apt-get could not install {', '.join(names)}", hint=f"try by hand: {line}", detail=tail)


def privileged() -> list[str] | None:
    """What to put before a command so that it runs as root: nothing, `sudo -n`, or None when neither works."""
    if os.geteuid() == 0:
        return []
    sudo = find_program("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None
