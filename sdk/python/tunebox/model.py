"""Scores of token rows under the model (`wit/model.wit`), with the usual taps and temperature left out."""

from enum import Flag, auto

from wit_world.imports import model as contract
from wit_world.imports.data import Rows
from wit_world.imports.model import Scores, View, divergence, next_token, policy, reference, snapshot

import tunebox.tensor  # noqa: F401  what a tap gives has operators

__all__ = [
    "Scores", "Taps", "View", "divergence", "next_token", "policy", "reference", "score", "score_for_learning",
    "score_for_learning_against", "snapshot",
]  # fmt: skip



class Taps(Flag):
    """The taps to compute beside the log-probabilities; each costs a few percent of the head. Joined by `|`."""

    #: The entropy of the next-token distribution. Differentiable.
    ENTROPY = auto()
    #: log Σ p², the log of the collision probability. No gradient: a loss takes it detached.
    LOG_SUM_SQUARE = auto()
    #: The mean logit over the vocabulary. No gradient: a loss takes it detached.
    MEAN_LOGIT = auto()
    #: The mean log-probability over the vocabulary. Differentiable.
    MEAN_LOGPROB = auto()
    #: 1 where the token is the model's first choice, else 0.
    TOP_ONE = auto()


NOTHING = Taps(0)


def _asked(taps: Taps) -> contract.Taps | None:
    """The set of taps on the host; none for the log-probabilities alone."""
    if not taps:
        return None
    asked = contract.Taps()
    for tap in Taps:
        if tap in taps:
            getattr(asked, str(tap.name).lower())()
    return asked


def score(view: View, rows: Rows, taps: Taps = NOTHING, temperature: float = 1.0) -> Scores:
    """Scores rows without keeping anything for a gradient. Costs one forward pass."""
    return contract.score(view, rows, _asked(taps), temperature)


def score_for_learning(rows: Rows, taps: Taps = NOTHING, temperature: float = 1.0) -> Scores:
    """Scores rows through the policy, so that a loss built on the taps can be back-propagated. One forward pass."""
    return contract.score_for_learning(rows, _asked(taps), temperature)


def score_for_learning_against(
    other: View, beta: float, rows: Rows, taps: Taps = NOTHING, temperature: float = 1.0
) -> Scores:
    """Scores rows for learning with the divergence of each next-token distribution to that of another view.

    0 is the forward divergence KL(other‖policy), 1 the reverse one, and beta between them the generalized Jensen–Shannon
    divergence. `scores.divergence()` reads it. Two forward passes.
    """
    asked = _asked(taps) or contract.Taps()
    asked.divergence(other, beta)
    return contract.score_for_learning(rows, asked, temperature)
