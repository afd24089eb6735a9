#!/bin/bash
# shellcheck disable=all
python3 - <<'EOF'
import json, os, time, urllib.request

url, results = os.environ["SRT_FRONTEND_URL"], os.environ["SRT_RESULTS_DIR"]
body = {"model": os.environ["SRT_MODEL_NAME"], "prompt": "What is a benchmark?", "max_tokens": 8}
seconds = []
for _ in range(int(os.environ["REQUESTS"])):
    began = time.monotonic()
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        tokens = json.load(answer)["usage"]["completion_tokens"]
    seconds.append(time.monotonic() - began)
with open(f"{results}/results.json", "w") as file:
    json.dump({"requests": len(seconds), "tokens": tokens, "seconds": seconds}, file)
print(f"{len(seconds)} requests, the slowest took {max(seconds):.3f} s")
EOF
