"""What the papers conclude, asked of our rows: each a sentence with its number."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tasks import directions
from .sources import Source
from .tables import frame, of_splits

if TYPE_CHECKING:
    import pandas as pd

FEWEST_DATASETS = 3
"""That tell anything of a claim about datasets in general."""


@dataclass(frozen=True)
class Competitor:
    """A model at a depth, both as the rows have them; a depth of None is any."""

    model: str
    depth: int | None = None


@dataclass(frozen=True)
class Claim:
    """That one competitor is better than another by a metric.

    :param papers: which say so, as they are cited.
    :param text: the claim.
    :param metric: with a direction.
    :param at_least: the better is claimed only not to be worse.
    """

    papers: str
    text: str
    better: Competitor
    worse: Competitor
    metric: str
    at_least: bool = False


def _order(better: str, worse: str, depth: int, text: str) -> Claim:
    return Claim(
        "[UAI23]",
        f"{text}, depth {depth}",
        Competitor(better, depth),
        Competitor(worse, depth),
        "elbo_per_point",
    )


NORMALISED = "test_log_likelihood_normalised"
TEST = "test_log_likelihood"
CLAIMS = (
    *(
        claim
        for depth in (2, 5)
        for claim in (
            _order("dwp-gw", "dgp", depth, "GW's bound is above the deep GP's"),
            _order("dwp-a-gw", "dwp-gw", depth, "A-GW's bound is above GW's"),
            _order("dwp-ab-gw", "dwp-a-gw", depth, "AB-GW's bound is above A-GW's"),
        )
    ),
    Claim(
        "[UAI23]",
        "more layers cost AB-GW bound: depth 2 is above depth 5",
        Competitor("dwp-ab-gw", 2),
        Competitor("dwp-ab-gw", 5),
        "elbo_per_point",
    ),
    Claim(
        "[NeurIPS21]",
        "DWPs predict at least as well as the deep GP, depth 5",
        Competitor("dwp-ab-gw", 5),
        Competitor("dgp", 5),
        TEST,
        at_least=True,
    ),
    *(
        Claim(
            "[ICML21]",
            f"DIWP predicts better than {name}, {words} kernels",
            Competitor(f"diwp:{kernel}"),
            Competitor(f"{model}:{kernel}"),
            TEST,
        )
        for kernel, words in (("squared_exponential", "squared exponential"), ("relu", "ReLU"))
        for model, name in (("nngp", "NNGP"), ("dgp", "the deep GP"))
    ),
    Claim(
        "[ICML19]",
        "latent variables help: LV-GP-GP predicts better than GP-GP",
        Competitor("lv-gp-gp:iwvi"),
        Competitor("gp-gp"),
        NORMALISED,
    ),
    Claim(
        "[ICML19]",
        "importance weighting helps: IWVI predicts better than VI",
        Competitor("lv-gp-gp:iwvi"),
        Competitor("lv-gp-gp:vi"),
        NORMALISED,
    ),
    *(
        Claim(
            "[NeurIPS22]",
            f"GWI with {network} predicts better than a sparse GP",
            Competitor(model),
            Competitor("svgp"),
            TEST,
        )
        for model, network in (
            ("gwi-net", "the paper's network"),
            ("gwi-net-selected", "a network of ours, chosen by held-out data,"),
        )
    ),
)


@dataclass(frozen=True)
class Conclusion:
    """What our rows say to a claim.

    :param num_for: datasets on which the difference is clearly what is claimed, at two standard errors.
    :param num_against: on which it is clearly the other way.
    :param num_datasets: of which both competitors have at least two splits.
    :param mean: of the datasets' mean differences, in the metric's units.
    :param median: of the same.
    """

    claim: Claim
    num_for: int
    num_against: int
    num_datasets: int
    mean: float
    median: float

    @property
    def verdict(self) -> str:
        """ "holds", "does not hold" or "open", which it is on one or two datasets whatever they say."""
        if self.num_datasets < FEWEST_DATASETS:
            return "open"
        if self.claim.at_least:
            return "holds" if self.num_for >= self.num_against else "does not hold"
        if self.num_for > self.num_against and self.num_for >= self.num_datasets / 2:
            return "holds"
        if self.num_against > self.num_for and self.num_against >= self.num_datasets / 2:
            return "does not hold"
        return "open"

    @property
    def sentence(self) -> str:
        """The claim, the verdict and its numbers."""
        claim = self.claim
        if not self.num_datasets:
            return f"{claim.papers} {claim.text}: open, there are no rows of both on two splits."
        return (
            f"{claim.papers} {claim.text}: {self.verdict}. Clearly so on {self.num_for} of "
            f"{self.num_datasets} datasets, clearly the other way on {self.num_against}; the mean difference "
            f"of {claim.metric} is {self.mean:+.3f}, the median {self.median:+.3f}."
        )


def conclusions(sources: Iterable[Source], claims: Sequence[Claim] = CLAIMS) -> list[Conclusion]:
    """What the rows say to each claim. Only rows of one source and one protocol are compared."""
    tables = [frame(source.rows) for source in sources]
    return [_conclude(claim, tables) for claim in claims]


def _conclude(claim: Claim, tables: Sequence[pd.DataFrame]) -> Conclusion:
    sign = 1.0 if directions()[claim.metric] else -1.0
    by_dataset: dict[str, tuple[float, float]] = {}
    for table in tables:
        if claim.metric not in table:
            continue
        for dataset, rows in table.groupby("dataset"):
            found = _difference(claim, rows)
            if found is not None:
                by_dataset.setdefault(str(dataset), found)
    differences = [(sign * mean, error) for mean, error in by_dataset.values()]
    return Conclusion(
        claim,
        sum(mean > 2 * error for mean, error in differences),
        sum(mean < -2 * error for mean, error in differences),
        len(differences),
        _of(differences, statistics.fmean),
        _of(differences, statistics.median),
    )


def _difference(claim: Claim, rows: pd.DataFrame) -> tuple[float, float] | None:
    """Mean and standard error of the paired differences on one dataset; None without two splits of both.

    Of one protocol, the last in order if there are several; or, as models may read settings of their own,
    of all rows where each competitor has one.
    """
    sides = [_of_competitor(rows, who) for who in (claim.better, claim.worse)]
    protocols = [set(side["protocol"].map(_without_steps)) for side in sides]
    shared = sorted(protocols[0] & protocols[1])
    for protocol in reversed(shared):
        parts = [side[side["protocol"].map(_without_steps) == protocol] for side in sides]
        found = _paired(parts, claim.metric)
        if found is not None:
            return found
    if shared or any(len(each) != 1 for each in protocols):
        return None
    return _paired(sides, claim.metric)


def _paired(sides: Sequence[pd.DataFrame], metric: str) -> tuple[float, float] | None:
    ours, theirs = (of_splits(side, metric) for side in sides)
    shared = sorted(set(ours.index) & set(theirs.index))
    if len(shared) < 2:
        return None
    values = ours[shared] - theirs[shared]
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _without_steps(protocol: str) -> str:
    """A protocol but for how long it is: deeper models take more steps."""
    return json.dumps({k: v for k, v in json.loads(protocol).items() if k != "num_steps"})


def _of_competitor(rows: pd.DataFrame, who: Competitor) -> pd.DataFrame:
    chosen = rows[rows["model"] == who.model]
    return chosen if who.depth is None else chosen[chosen["depth"] == who.depth]


def _of(
    differences: Sequence[tuple[float, float]], average: Callable[[list[float]], float]
) -> float:
    return average([mean for mean, _ in differences]) if differences else math.nan
