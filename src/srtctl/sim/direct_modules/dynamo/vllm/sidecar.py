"""`python3 -m dynamo.vllm.sidecar`, as the real package has it: starts the reference sidecar."""

import sys

from srtctl.sim.direct.sidecar import main

if __name__ == "__main__":
    sys.exit(main())
