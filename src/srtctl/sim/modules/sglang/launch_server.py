"""`python3 -m sglang.launch_server`, as the real package has it."""

import sys

from srtctl.sim.sglang.launch import main

if __name__ == "__main__":
    sys.exit(main())
