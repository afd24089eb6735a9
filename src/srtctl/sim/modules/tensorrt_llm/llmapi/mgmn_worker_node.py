"""`python3 -m tensorrt_llm.llmapi.mgmn_worker_node`, as the real launcher starts it on every rank but 0."""

import sys

from srtctl.sim.trtllm.worker import main

if __name__ == "__main__":
    sys.exit(main())
