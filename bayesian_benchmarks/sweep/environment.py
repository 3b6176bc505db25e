"""What a result was computed with: package versions, hardware, the code."""

from __future__ import annotations

import hashlib
import inspect
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("gpflow-dkp", "gpflow", "tensorflow", "tensorflow-probability", "numpy")
OWN = ("gpflow_dkp", "bayesian_benchmarks")
IN_FINGERPRINT = ("datasets", "models", "tasks", "settings.py")
"""Parts of `bayesian_benchmarks` that a run's numbers depend on."""


def versions() -> str:
    """Versions of Python and of the packages that matter: "python 3.11.4, gpflow 2.11.0, ..."."""
    found = [f"python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


@cache
def fingerprint() -> str:
    """Digest of the code that a run's numbers depend on: 12 hexadecimal digits."""
    here = Path(__file__).resolve().parent.parent
    spec = find_spec("gpflow_dkp")
    library = Path(spec.origin).parent if spec is not None and spec.origin else here
    return _digest_of_files([library, *(here / name for name in IN_FINGERPRINT)])[:12]


def code_digest(functions: Iterable[Callable[..., Any]]) -> str:
    """Digest of the sources of functions that are not this project's: of their module, or whole package.

    "" where all are this project's, or have no source file.
    """
    roots = set()
    for function in functions:
        name = (getattr(function, "__module__", None) or "").partition(".")[0]
        try:
            file = inspect.getsourcefile(inspect.unwrap(function)) if name not in OWN else None
        except TypeError:  # an object that can be called, with no source of its own
            continue
        if file is not None and Path(file).is_file():
            package = find_spec(name) if name not in ("", "__main__") else None
            folder = package.submodule_search_locations if package is not None else None
            roots.add(Path(next(iter(folder))) if folder else Path(file))
    return _digest_of_files(sorted(roots))[:16] if roots else ""


def _digest_of_files(roots: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for root in roots:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            found.update(str(path.relative_to(root.parent)).encode())
            found.update(path.read_bytes())
    return found.hexdigest()


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
    """The commit of the code, "-modified" after it if files differ.

    Empty outside a checkout, also where the package lies in a folder of another project's.
    """
    if not _git("ls-files", "--error-unmatch", Path(__file__).name):
        return ""
    commit = _git("rev-parse", "HEAD")
    return f"{commit}-modified" if commit and _git("status", "--porcelain", "-uno") else commit


def available_cores() -> int:
    """Cores that this process may use, as affinity and a container's quota allow."""
    from joblib import cpu_count  # type: ignore[import-untyped]

    return cpu_count()


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
