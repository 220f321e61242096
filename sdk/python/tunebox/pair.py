"""Pairs of answers: both sides scored, and the metrics that methods of preference share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wit_world.imports.data import Batch

from tunebox.loss import row_mean
from tunebox.model import NOTHING, Taps, View, score, score_for_learning
from tunebox.run import add_metric


@dataclass
class Pair:
    """A value for the better answer and one for the worse answer of each record: rows, scores or tensors."""

    chosen: Any
    rejected: Any

    @staticmethod
    def of(batch: Batch) -> Pair:
        """The rows `chosen` and `rejected` of a batch."""
        return Pair(batch.rows("chosen"), batch.rows("rejected"))

    def map(self, make: Callable[[Any], Any]) -> Pair:
        """Applies `make` to both values and returns the results as a pair."""
        return Pair(make(self.chosen), make(self.rejected))

    def beside(self, other: Pair, make: Callable[[Any, Any], Any]) -> Pair:
        """Applies `make` to both values, each with its counterpart in `other`."""
        return Pair(make(self.chosen, other.chosen), make(self.rejected, other.rejected))

    def score_for_learning(self, taps: Taps = NOTHING) -> Pair:
        """Scores both rows through the policy, so that a loss built on the taps can be back-propagated."""
        return self.map(lambda rows: score_for_learning(rows, taps))

    def score(self, view: View, taps: Taps = NOTHING) -> Pair:
        """Scores both rows through a view, without a gradient."""
        return self.map(lambda rows: score(view, rows, taps))

    def difference(self) -> Any:
        """`chosen` minus `rejected`."""
        return self.chosen - self.rejected

    def report_rewards(self, batch: Batch) -> None:
        """Reports these `[rows]` as rewards: `rewards-chosen`, `rewards-rejected`, `rewards-margins`, and the share
        of pairs whose better answer has the higher one, `rewards-accuracies`."""
        pairs = batch.window_size()
        won = self.chosen > self.rejected
        add_metric("rewards-chosen", row_mean(self.chosen.detach(), pairs))
        add_metric("rewards-rejected", row_mean(self.rejected.detach(), pairs))
        add_metric("rewards-margins", row_mean(self.difference().detach(), pairs))
        add_metric("rewards-accuracies", won.count() / pairs)
