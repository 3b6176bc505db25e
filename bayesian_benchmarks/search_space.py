"""Ranges of settings to search, and the settings that a choice in each range makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from .errors import ConfigError, UnknownNameError
from .models.registry import ModelSource
from .settings import OF_PAPERS_SCHEDULE, Settings, validated

__all__ = ["Choice", "Interval", "search_space"]

RATES = ("learning_rate", "natural_gradient")
"""Settings of which a number is the first or the highest rate; how it falls stays as it is."""

SYNTAX = "LOW:HIGH, log:LOW:HIGH, or A,B,..."


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, both included: whole numbers if both are, evenly or in the logarithm.

    >>> from bayesian_benchmarks.search_space import Interval
    >>> Interval(1e-3, 1e-1, log=True).examples
    (0.001, 0.1)
    """

    low: float
    high: float
    log: bool = False

    def suggest(self, trial: Any, name: str) -> float:
        """A value, chosen by an Optuna trial."""
        if isinstance(self.low, int):
            return int(trial.suggest_int(name, self.low, self.high, log=self.log))
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))

    @property
    def examples(self) -> tuple[float, ...]:
        """Values that are allowed if all are."""
        return self.low, self.high


@dataclass(frozen=True)
class Choice:
    """One of some values.

    >>> from bayesian_benchmarks.search_space import Choice
    >>> Choice(("fast", "paper")).examples
    ('fast', 'paper')
    """

    examples: tuple[str | bool | int | float | None, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """A value, chosen by an Optuna trial."""
        return trial.suggest_categorical(name, list(self.examples))


Space = Mapping[str, Interval | Choice]


def search_space(words: Sequence[str], source: ModelSource, settings: Settings) -> Space:
    """What `NAME=RANGE` words say: `num_inducing=50:200`, `learning_rate=log:1e-3:1e-1`, `ard=true,false`.

    :param source: the model, which must read each setting.
    :param settings: the others; a value of each range must be allowed beside them.
    :raises ConfigError: a word that is no range, or a setting or a value that cannot be searched.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.models import model_source
    >>> from bayesian_benchmarks.search_space import search_space
    >>> words = ["num_inducing=50:200", "schedule=fast,paper"]
    >>> search_space(words, model_source("dgp"), Settings())["num_inducing"]
    Interval(low=50, high=200, log=False)
    """
    texts: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or not text:
            raise ConfigError(f"--search: {word!r} is no range; write NAME={SYNTAX}.")
        if name in texts:
            raise ConfigError(f"--search: {name} stands twice; give one range.")
        texts[name] = text
    if not texts:
        raise ConfigError(f"Nothing is to be searched; give --search NAME={SYNTAX}.")
    settings = source.read(settings)
    variants = [settings]
    if "schedule" in texts and source.is_read("schedule"):
        found = _parsed("schedule", texts["schedule"])
        variants = [with_setting(settings, "schedule", value) for value in found.examples]
    return {name: _checked(name, text, source, variants) for name, text in texts.items()}


def words_of_file(path: Path) -> list[str]:
    """The words that a YAML file of ranges by name stands for: `num_inducing: 50:200`, `ard: [true, false]`.

    :raises ConfigError: it cannot be read, or is not that.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"Cannot read the search ranges {path} ({reason}).") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold ranges by name, such as 'num_inducing: 50:200'.")
    return [
        f"{name}={','.join(map(str, text)) if isinstance(text, list) else text}"
        for name, text in content.items()
    ]


def suggested(space: Space, source: ModelSource, settings: Settings, trial: Any) -> Settings:
    """The settings with what an Optuna trial chooses: of those that are read beside its schedule."""
    settings = source.read(settings)
    for name in sorted(space, key=lambda name: name != "schedule"):
        if is_read(name, source, settings):
            settings = with_setting(settings, name, space[name].suggest(trial, name))
    return settings


def is_read(name: str, source: ModelSource, settings: Settings) -> bool:
    """Whether a model's training reads a setting beside others: a schedule stands in place of some."""
    first, *rest = name.split(".")
    if name in settings.of_evaluation or not source.is_read(name):
        return False
    if first == "schedule" and rest:
        return settings.schedule is not None
    if name in RATES:
        return getattr(settings.schedule or settings, name, None) is not None
    return settings.schedule is None or first not in OF_PAPERS_SCHEDULE


def with_setting(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with another value of one, such as "num_inducing", "schedule.clip" or a rate.

    :raises ConfigError: the value is not allowed, or there is no such setting.
    """
    content = settings.model_dump()
    *outer, last = name.split(".")
    if name in RATES and settings.schedule is not None:
        outer = ["schedule"]
    inner: Any = content
    for part in outer:
        inner[part] = inner = dict(inner.get(part) or {})
    if name in RATES and isinstance(value, int | float) and not isinstance(value, bool):
        value = _rate(getattr(settings.schedule or settings, name), value)
    inner[last] = value
    found: Settings = validated(type(settings), content, f"--search {name}")
    return found


def _rate(known: Any, first: float) -> Any:
    """A rate that falls as a known one, from another first or highest value."""
    if isinstance(known, BaseModel):
        return known.model_dump() | {"rate": first}
    return [(fraction, rate * first / known[0][1]) for fraction, rate in known]


def _checked(
    name: str, text: str, source: ModelSource, variants: Sequence[Settings]
) -> Interval | Choice:
    """The range of a setting, once its values are known to be allowed."""
    fields = type(variants[0]).model_fields
    known = [field for field in fields if any(is_read(field, source, s) for s in variants)]
    if name.partition(".")[0] not in fields:
        raise UnknownNameError(f"setting to search of {source.name}", name, known)
    reading = [settings for settings in variants if is_read(name, source, settings)]
    if not reading:
        why = ", which only scores depend on" if name in variants[0].of_evaluation else ""
        raise ConfigError(
            f"--search: the training of {source.name} does not read {name}{why}; it reads "
            f"{', '.join(known)} here."
        )
    found = _parsed(name, text)
    if isinstance(found, Interval) and isinstance(found.low, int):
        middle = 0.5 + found.low
        if all(_allows(settings, name, middle) for settings in reading):
            found = Interval(float(found.low), float(found.high), found.log)
    for settings in reading:
        for value in found.examples:
            source.check_settings(with_setting(settings, name, value))
    return found


def _allows(settings: Settings, name: str, value: Any) -> bool:
    try:
        with_setting(settings, name, value)
    except ConfigError:
        return False
    return True


def _parsed(name: str, text: str) -> Interval | Choice:
    """A range as it is written."""
    if ":" not in text:
        values = [_value(part) for part in text.split(",")]
        if len(set(map(repr, values))) < len(values) or "" in values:
            raise ConfigError(f"--search {name}: {text!r} has a value twice, or none.")
        return Choice(tuple(values))
    log = text.startswith("log:")
    low, *high = (_value(part) for part in text.removeprefix("log:").split(":"))
    ends = (low, *high)
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends):
        raise ConfigError(f"--search {name}: {text!r} is no range; write {SYNTAX}.")
    if not -float("inf") < ends[0] < ends[1] < float("inf"):
        raise ConfigError(f"--search {name}: {text!r} goes from {low} to {ends[1]}; it must rise.")
    if log and ends[0] <= 0:
        raise ConfigError(f"--search {name}: {text!r} starts at {low}; log needs it above 0.")
    whole = all(type(end) is int for end in ends)
    bottom, top = ends if whole else map(float, ends)
    return Interval(bottom, top, log)


def _value(text: str) -> Any:
    """A word as a number, true, false or null, or itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "null": None}.get(text, text)
