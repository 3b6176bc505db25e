"""The experiments that come with the package, a YAML file each, found by name from anywhere."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ..errors import ConfigError

CONFIGS = Path(str(resources.files(__name__)))
"""The folder of the package's own."""


def find_config(name: str | Path, folder: Path = CONFIGS) -> Path:
    """The YAML file of an experiment, by the name of one of the folder's or by its path.

    A folder's name goes before a file of the working directory that is called the same, without an ending.
    `configs/NAME.yaml`, where these files were once, is the packaged one if there is no such file.

    :raises ConfigError: there is neither.
    """
    path = Path(name)
    was_here = path.parent.name == CONFIGS.name and path.suffix == ".yaml" and not path.exists()
    packaged = folder / f"{path.stem if was_here else name}.yaml"
    if packaged.is_file():
        return packaged
    if path.exists():
        return path
    names = ", ".join(list_configs(folder))
    raise ConfigError(
        f"Cannot read the config {name} (No such file or directory); give a YAML file, or one of {names}."
    )


def list_configs(folder: Path = CONFIGS) -> list[str]:
    """Names of the folder's configs, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))
