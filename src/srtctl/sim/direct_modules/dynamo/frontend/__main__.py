"""`python3 -m dynamo.frontend`, as the real package has it."""

import sys

from srtctl.sim.direct.frontend import main

if __name__ == "__main__":
    sys.exit(main())
