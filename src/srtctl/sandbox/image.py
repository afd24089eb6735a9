"""The sandbox's "container image" and model: the simulated engines under the engines' module names, and a tokenizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from srtctl.sandbox.errors import SandboxError
from srtctl.sandbox.layout import Layout
from srtctl.sandbox.stack import Stack

MODEL_NAME = "qwen3-0.6b"
SOURCE = Path(__file__).parent.parent
PACKAGES = ("sim", "checks")
MODULES, PROGRAMS = "modules", "bin"
"""Folders of sim/ that hold the real engines' top-level modules, and their programs by name."""
MODEL_SECONDS = 60
_NO_CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


def build_image(image: Path) -> None:
    """Fills `image`, a folder for PYTHONPATH: `srtctl` with simulators and checks, the engines' modules beside it.

    `image/bin` is for PATH: the engines' programs.
    """
    package = image / "srtctl"
    package.mkdir(parents=True)
    shutil.copyfile(SOURCE / "__init__.py", package / "__init__.py")
    for name in PACKAGES:
        shutil.copytree(SOURCE / name, package / name, ignore=_NO_CACHES)
    modules = SOURCE / "sim" / MODULES
    if modules.is_dir():
        shutil.copytree(modules, image, ignore=_NO_CACHES, dirs_exist_ok=True)
    programs = image / PROGRAMS
    shutil.copytree(SOURCE / "sim" / PROGRAMS, programs)
    for program in programs.iterdir():
        program.chmod(0o755)  # whatever an archive made of it


def build_model(layout: Layout, stack: Stack) -> Path:
    """Writes the sandbox's model folder (a tokenizer, no weights) with the image's own generator; returns it.

    Raises SandboxError with what the generator said.
    """
    folder = layout.models / MODEL_NAME
    folder.parent.mkdir(parents=True)
    env = {
        "PYTHONPATH": str(layout.image),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.defpath,
        "HOME": str(layout.home),
    }
    argv = [str(stack.python), "-m", "srtctl.sim.model", str(folder)]
    try:
        done = subprocess.run(
            argv, env=env, cwd=layout.root, capture_output=True, text=True, timeout=MODEL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(f"making the model folder took longer than {MODEL_SECONDS} s: {' '.join(argv)}") from None
    if done.returncode:
        detail = "\n".join(f"  {line}" for line in done.stderr.splitlines()[-12:])
        raise SandboxError(
            f"the model folder could not be made: {' '.join(argv)} ended with {done.returncode}",
            hint="is the stack environment complete? `srtctl sandbox install` makes it",
            detail=detail,
        )
    return folder
