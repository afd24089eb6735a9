"""Entry point of the `srtctl` command."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line; `--version` answers before anything is imported, so shells and scripts can ask often."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from srtctl import __version__

        print(f"srtctl {__version__}")
        return
    from srtctl.cli.app import app

    # A large plan is a million objects that all stay: the default threshold would look through them again and again.
    gc.set_threshold(200_000, 20, 20)
    app()


if __name__ == "__main__":
    main()
