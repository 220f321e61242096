"""Pieces that losses share. Every mean takes its denominator, so that accumulation cannot change a loss."""

from math import log

from tunebox.model import Scores
from tunebox.tensor import Tensor, where


def token_mean(per_token: Tensor, denominator: int) -> Tensor:
    """Σ of per-token values over `denominator`, usually `batch.window_targets(side)`: one element."""
    return per_token.sum() / max(denominator, 1)


def masked_token_mean(per_token: Tensor, mask: Tensor, denominator: int) -> Tensor:
    """Σ of per-token values where `mask` is 1 over `denominator`: one element. A masked NaN counts 0."""
    return per_token.masked_sum(mask) / max(denominator, 1)


def row_mean(per_row: Tensor, denominator: int) -> Tensor:
    """Σ of per-row values over `denominator`, usually `batch.window_size()`: one element."""
    return per_row.sum() / max(denominator, 1)


def sequence_logprob(scores: Scores) -> Tensor:
    """The summed log-probability of each row's targets: `[rows]`."""
    return scores.logprob().sum(1)


def mean_logprob(scores: Scores, lengths: Tensor) -> Tensor:
    """The mean log-probability of each row's targets: `[rows]`; `lengths` is `rows.lengths()`."""
    return sequence_logprob(scores) / lengths.clamp(low=1.0)


def smoothed_logistic(margin: Tensor, smoothing: float) -> Tensor:
    """−(1 − ε) log σ(x) − ε log σ(−x), the logistic loss of a margin with a share ε of flipped labels."""
    right = -margin.log_sigmoid()
    return right if smoothing == 0.0 else right * (1.0 - smoothing) - (-margin).log_sigmoid() * smoothing


def log_one_minus_exp(x: Tensor) -> Tensor:
    """log(1 − eˣ) for x < 0, element by element, accurate near 0 and for large −x."""
    near = x > -log(2.0)  # 1 − eˣ is small there
    return where(near, (-x.expm1()).log(), (-x.exp()).log1p())


def log_ratio(policy: Scores, reference: Scores) -> Tensor:
    """The log-probability of each row's targets under the policy minus that under the reference: `[rows]`."""
    return sequence_logprob(policy) - sequence_logprob(reference)
