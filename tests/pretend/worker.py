"""A process with pretend GPUs that does one job after the other: it imports torch once for all tests of a session.

A job is a line of JSON, {"module", "name", "args"}; the answer is one too, {"value"} or {"error"}.
"""

import importlib
import json
import os
import sys
import traceback


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job prints must not look like an answer
    importlib.import_module("torch")  # with it come the devices
    for line in sys.stdin:
        job = json.loads(line)
        try:
            found = getattr(importlib.import_module(job["module"]), job["name"])(*job["args"])
            answer = json.dumps({"value": found})
        except BaseException:
            answer = json.dumps({"error": traceback.format_exc()})
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
