"""Modules of the user's, or of installed packages, that register models, datasets and tasks."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module, metadata
from pathlib import Path

from .errors import ConfigError

GROUP = "bayesian_benchmarks.plugins"
"""The entry points by which an installed package names its modules."""


def import_plugin(module: str, folder: Path | None = None) -> None:
    """Import a module that registers models, datasets or tasks, also one in a folder.

    :param folder: by default the working directory.
    :raises ConfigError: it is no module's name, or it cannot be imported.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(
            f"The plugin {module!r} is no module's name; write it as after `import`, such as my_models."
        )
    here = str(folder or Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        import_module(module)
    except Exception as error:  # whatever the module's own code raises
        raise ConfigError(f"Cannot import the plugin {module} ({_one_line(error)}).") from error


@cache
def import_installed_plugins() -> None:
    """Import the modules that installed packages name as entry points of `GROUP`, once a process.

    :raises ConfigError: one cannot be imported; it names the package.
    """
    for plugin in metadata.entry_points(group=GROUP):
        try:
            plugin.load()
        except Exception as error:  # whatever the module's own code raises
            package = plugin.dist.name if plugin.dist else "an unknown package"
            raise ConfigError(
                f"Cannot import the plugin {plugin.value} of {package} ({_one_line(error)}); mend it, or "
                f"uninstall {package}."
            ) from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
