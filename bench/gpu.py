"""What a visitor with GPUs can run and send back: `make bench-gpu`. Never run by us: there is no GPU here.

Runs the bench and the tests of several processes, and prints what the machine is.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("There is no GPU here: nothing was measured.", file=sys.stderr)
        return 2
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(json.dumps({"devices": devices, "torch": torch.__version__, "cuda": torch.version.cuda}))
    failed = []
    if len(devices) > 1:
        words = [sys.executable, str(HERE / "processes.py"), "--device", "cuda", "--rounds", "9", "--steps", "50"]
        failed += [] if subprocess.run(words, check=False).returncode == 0 else ["processes"]
    tests = [sys.executable, "-m", "pytest", "-q", "tests/distributed/test_comm.py", "tests/models/test_sharding.py"]
    failed += [] if subprocess.run(tests, check=False, cwd=HERE.parent).returncode == 0 else ["tests"]
    print("send back bench/results/processes.json and the lines above" + (f"; FAILED: {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
