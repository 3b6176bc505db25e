"""What the benchmarks of a step share: each case in a process of its own, which gains nothing from others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def in_fresh_process(script: str, case: dict[str, Any]) -> Any:
    """What a script prints as JSON in its last line for `--case`, in a process of its own."""
    command = [sys.executable, script, "--case", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
