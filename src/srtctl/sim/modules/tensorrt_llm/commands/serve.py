"""`python3 -m tensorrt_llm.commands.serve`, as the real package has it."""

import sys

from srtctl.sim.trtllm.launch import main

if __name__ == "__main__":
    sys.exit(main())
