"""Gradients and weight updates.

Gradients accumulate until the accumulation window is full; then the host clips the gradient, updates the
weights and clears the gradient.
A method that wants several updates within one step calls `update` itself. A method whose manifest says
`"update": "method"` updates the parameters through `optimizer` instead.
"""

# Generated from `wit/learn.wit` of tunebox.

from . import model, tensor


def backward(loss: tensor.Tensor) -> None:
    """Back-propagates a loss (one `f32` element) built from the taps of `score-for-learning`, from the activations of
    `capture-for-learning`, and from the values of extra parameters (`optimizer.extra`); adds to the gradients of the
    model and of the extra parameters.
    The loss must carry its whole denominator already (`batch.window-targets` or `window-size`).
    Errors: `invalid-argument` if it is not one element, not finite, depends on none of these, on a tap without
    gradient that was not detached, on scores or activations that a gradient went through before, or on rows that have
    a gradient since the last update or `optimizer.clear-gradients` (see `allow-repeats`).
    Cost: two forward passes a scored or captured batch.

    Raises `tunebox.Refused`.
    """


def backward_from(scores: model.Scores, logprob: tensor.Tensor, entropy: tensor.Tensor | None) -> None:
    """Back-propagates gradients that the method computed itself: `logprob` is dL/d(log-probability),
    `entropy` dL/d(entropy), both `[rows, width]`, `f32`, ignored where the mask is 0.
    Exact whenever the loss depends on the weights through these taps alone.
    Errors: `shape-mismatch`; `invalid-argument` for scores of another view than the policy,
    scored before the last update, or that a gradient went through before; for rows that have a gradient since
    the last update or `optimizer.clear-gradients` (see `allow-repeats`).
    Cost: two forward passes, three where the scores kept nothing.

    Raises `tunebox.Refused`.
    """


def allow_repeats() -> None:
    """From now on, rows may get several gradients for one update, which add up: for a method that divides its losses
    accordingly. Without this, a second gradient through rows of the batch is an error, since it would count twice
    in a denominator such as `batch.window-targets`.
    """


def update() -> float:
    """Updates the weights now with the accumulated gradient, by the run's optimizer, clipping and
    schedule, and clears the gradient. Returns the gradient norm before clipping.
    Errors: `invalid-argument` when nothing has accumulated, or for a batch that does not end its accumulation
    window; `unsupported` where the method updates the parameters itself.

    Raises `tunebox.Refused`.
    """


def rate() -> float:
    """The learning rate of the coming update."""
