"""Scores of token rows under the model (`wit/model.wit`), with the usual taps and temperature left out."""

from wit_world.imports import model as contract
from wit_world.imports.data import Rows
from wit_world.imports.model import Scores, Taps, View, divergence, next_token, policy, reference, snapshot

import tunebox.tensor  # noqa: F401  what a tap gives has operators

__all__ = [
    "Scores", "Taps", "View", "divergence", "next_token", "policy", "reference", "score", "score_for_learning",
    "snapshot",
]  # fmt: skip

NOTHING = Taps(0)


def score(view: View, rows: Rows, taps: Taps = NOTHING, temperature: float = 1.0) -> Scores:
    """Scores rows without keeping anything for a gradient. Costs one forward pass."""
    if callable(view):
        # Handed on, it would stop the component without a line.
        raise TypeError("score() takes a view, and this is a function: `reference()` makes one, `reference` does not")
    return contract.score(view, rows, taps, temperature)


def score_for_learning(rows: Rows, taps: Taps = NOTHING, temperature: float = 1.0) -> Scores:
    """Scores rows through the policy, so that a loss built on the taps can be minimised. One forward pass."""
    return contract.score_for_learning(rows, taps, temperature)
