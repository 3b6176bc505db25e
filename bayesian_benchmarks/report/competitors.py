"""What is compared with what: models, told apart by depth and settings where one has several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..settings import FAST, OF_PAPERS_SCHEDULE, schedule_name

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
        differences = told_apart([part["protocol"].iloc[0] for _, part in parts])
        for (_, part), difference in zip(parts, differences, strict=True):
            depth = f"depth {part['depth'].iloc[0]}" if several_depths else ""
            found[", ".join(filter(None, [str(model), depth, difference]))] = part
    return found


def told_apart(protocols: Sequence[str]) -> list[str]:
    """What each protocol has where they are not all the same, such as "clip 2.0, num_steps 500".

    A setting that a protocol lacks, as it is of before there was one or does not read it, is not named.
    """
    several = [_readable(protocol) for protocol in protocols]
    names = _differing(several)
    return [
        ", ".join(f"{name} {settings[name]}" for name in names if name in settings)
        for settings in several
    ]


def _readable(protocol: str) -> dict[str, Any]:
    """Settings by name, the schedule by its own: "paper" has those that a schedule stands in place of,
    "own" what it has otherwise than the library's.
    """
    settings = json.loads(protocol)
    name, recipe = schedule_name(protocol), settings.pop("schedule", None)
    if name == "own":
        ours = json.loads(FAST.model_dump_json())
        settings["recipe"] = {key: of for key, of in recipe.items() if ours.get(key) != of}
    return _flat(settings | {"schedule": name})


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
