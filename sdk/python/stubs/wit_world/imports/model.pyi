"""Scores of token rows under the model."""

# Generated from `wit/model.wit` of tunebox.

from typing import Self

from . import data, tensor


class View:
    """A set of weights to score with: the policy under training, the reference, a snapshot, or a teacher."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Taps:
    """Which taps to compute beside the log-probabilities. Each costs a few percent of the head; adding one
    twice is the same as once.
    """

    def __init__(self) -> None:
        """The log-probabilities alone."""

    def entropy(self) -> None:
        """Adds the entropy of the next-token distribution. Differentiable."""

    def log_sum_square(self) -> None:
        """Adds log Σ p², the log of the collision probability. No gradient: a loss takes it detached."""

    def mean_logit(self) -> None:
        """Adds the mean logit over the vocabulary. No gradient: a loss takes it detached."""

    def mean_logprob(self) -> None:
        """Adds the mean log-probability over the vocabulary. Differentiable."""

    def top_one(self) -> None:
        """Adds 1 where the token is the model's first choice, else 0."""

    def divergence(self, view: View, beta: float) -> None:
        """Adds the divergence of the next-token distribution q to that of another view, p, over the whole vocabulary: with
        m = β·p + (1 − β)·q it is β·KL(p‖m) + (1 − β)·KL(q‖m), for β 0 KL(p‖q) (forward) and for β 1 KL(q‖p) (reverse).
        Differentiable. A second call replaces the first. Errors: `invalid-argument` for a `beta` outside 0 to 1.
        Cost: another forward pass, through `view`, and the logits of both.

        Raises `tunebox.Refused`.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Scores:
    """The scores of rows: per-token tensors `[rows, width]`, `f32`, exactly 0 where the rows' mask is 0.
    Logits are never stored; each tap is made tile by tile.
    """

    def logprob(self) -> tensor.Tensor:
        """log p(token t | tokens before t). Differentiable when scored for learning."""

    def entropy(self) -> tensor.Tensor:
        """The entropy of the next-token distribution, in nats. Differentiable when scored for learning.
        Errors: `invalid-argument` if the tap was not requested.

        Raises `tunebox.Refused`.
        """

    def log_sum_square(self) -> tensor.Tensor:
        """log Σ p², the log of the collision probability. No gradient: a loss takes it detached.
        Errors: `invalid-argument` if the tap was not requested.

        Raises `tunebox.Refused`.
        """

    def mean_logit(self) -> tensor.Tensor:
        """The mean logit over the vocabulary. No gradient: a loss takes it detached. Errors: `invalid-argument` if the tap was not requested.

        Raises `tunebox.Refused`.
        """

    def mean_logprob(self) -> tensor.Tensor:
        """The mean log-probability over the vocabulary. Differentiable when scored for learning.
        Errors: `invalid-argument` if the tap was not requested.

        Raises `tunebox.Refused`.
        """

    def top_one(self) -> tensor.Tensor:
        """1 where the token is the model's first choice, else 0. Errors: `invalid-argument` if the tap was not requested.

        Raises `tunebox.Refused`.
        """

    def divergence(self) -> tensor.Tensor:
        """The divergence to the other view, in nats. Differentiable when scored for learning.
        Errors: `invalid-argument` if the tap was not requested.

        Raises `tunebox.Refused`.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def policy() -> View:
    """The model with the adapter, as it is now."""


def reference() -> View:
    """The model before training: the base with adapters off, bit for bit, or a frozen copy of
    the adapter that the run continues. With full fine-tuning the base stays in memory beside
    the trained weights. Errors: `unsupported` where the run keeps no base.

    Raises `tunebox.Refused`.
    """


def snapshot(name: str) -> View:
    """Makes a frozen copy of the trained weights under a name; an earlier snapshot of that name is replaced.
    Cost: the bytes of the adapter. Errors: `unsupported` with full fine-tuning; `out-of-budget`.

    Raises `tunebox.Refused`.
    """


def score(view: View, rows: data.Rows, taps: Taps | None, temperature: float) -> Scores:
    """Scores rows without keeping anything for a gradient. `backward-from` still works on the
    result; it runs the forward pass again. Logits are divided by `temperature` (> 0, finite).
    Without `taps`, the log-probabilities alone. Cost: one forward pass.

    Raises `tunebox.Refused`.
    """


def score_for_learning(rows: data.Rows, taps: Taps | None, temperature: float) -> Scores:
    """Scores rows through the policy and keeps what the backward pass needs, so that a loss
    built on the taps can go to `learn.backward`. Cost: one forward pass and its memory.

    Raises `tunebox.Refused`.
    """


def next_token(view: View, rows: data.Rows, ids: list[int]) -> tensor.Tensor:
    """The log-probability of each of some tokens as the next one after the end of each row:
    `[rows, ids]`, `f32`, without gradient. For prompts, whose answer has not begun.
    Errors: `invalid-argument` for an empty row, no ids, more than 4,096, or one that is not in
    the vocabulary. Cost: one forward pass.

    Raises `tunebox.Refused`.
    """


def divergence(view: View, other: View, rows: data.Rows) -> tensor.Tensor:
    """The Kullback-Leibler divergence of the next-token distributions after the end of each row:
    Σ p (log p − log q) over the vocabulary, p of `view` and q of `other`, in nats: `[rows]`, `f32`, without gradient.
    Errors: `invalid-argument` for an empty row. Cost: two forward passes.

    Raises `tunebox.Refused`.
    """
