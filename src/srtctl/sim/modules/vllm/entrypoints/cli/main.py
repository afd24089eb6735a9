"""`python3 -m vllm.entrypoints.cli.main`, as the real package has it."""

import sys

from srtctl.sim.vllm.launch import main

if __name__ == "__main__":
    sys.exit(main())
