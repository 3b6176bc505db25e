"""What a result was computed with: package versions, hardware, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = ("gpflow-dkp", "gpflow", "tensorflow", "tensorflow-probability", "numpy")


def versions() -> str:
    """Versions of Python and of the packages that matter: "python 3.11.4, gpflow 2.11.0, ..."."""
    found = [f"python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def hardware() -> str:
    """The processor and its cores, and the GPUs if TensorFlow is loaded and sees any."""
    found = [f"{_processor()}, {available_cores()} cores"]
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        for gpu in tensorflow.config.list_physical_devices("GPU"):
            details = tensorflow.config.experimental.get_device_details(gpu)
            found.append(details.get("device_name", "GPU"))
    return "; ".join(found)


def git_commit() -> str:
    """The commit of the code, "-modified" after it if files differ; empty outside a checkout."""
    commit = _git("rev-parse", "HEAD")
    return f"{commit}-modified" if commit and _git("status", "--porcelain", "-uno") else commit


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
