"""What is compared with what: models, told apart by depth and settings where one has several."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..settings import OF_PAPERS_SCHEDULE, schedule_name

if TYPE_CHECKING:
    import pandas as pd


def competitors(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of a `frame` by competitor: a model, with its depth and settings where it has several.

    A label such as "dwp-ab-gw, depth 3, num_steps 500" names only the settings that differ.
    """
    found = {}
    for model, of_model in rows.groupby("model"):
        parts = list(of_model.groupby(["depth", "protocol"]))
        several_depths = of_model["depth"].nunique() > 1
        protocols = [_readable(part["protocol"].iloc[0]) for _, part in parts]
        for (_, part), settings in zip(parts, protocols, strict=True):
            label = str(model)
            if several_depths:
                label += f", depth {part['depth'].iloc[0]}"
            for name in _differing(protocols):
                if name in settings or name not in OF_PAPERS_SCHEDULE:
                    label += f", {name} {settings.get(name, 'default')}"
            found[label] = part
    return found


def _readable(protocol: str) -> dict[str, Any]:
    """Settings by name, the schedule by its own: "paper" has those that a schedule stands in place of."""
    settings = json.loads(protocol) | {"schedule": schedule_name(protocol)}
    return _flat(settings)


def _differing(settings: list[dict[str, Any]]) -> list[str]:
    """Names of the settings that are not the same in all."""
    names = sorted({name for each in settings for name in each})
    values = {
        name: [
            each.get(name) for each in settings if name in each or name not in OF_PAPERS_SCHEDULE
        ]
        for name in names
    }
    return [name for name in names if any(value != values[name][0] for value in values[name])]


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Nested settings by their last name, where no other has it."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = value.items() if isinstance(value, dict) else [(name, value)]
        flat |= {key if key not in flat else f"{name}.{key}": each for key, each in inner}
    return flat
