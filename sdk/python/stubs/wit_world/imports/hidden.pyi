"""The residual stream, captured at a layer and a site."""

# Generated from `wit/hidden.wit` of tunebox.

from dataclasses import dataclass
from enum import Enum

from . import data, model, tensor


class Site(Enum):
    """A named place in a block. `residual-before` is the block's input, `residual-after` its
    output, both before the next norm; the other two are the outputs of attention and feed-forward,
    before a norm of their own (Gemma) and before they are added to the stream.
    """

    RESIDUAL_BEFORE = 0
    ATTENTION_OUTPUT = 1
    MLP_OUTPUT = 2
    RESIDUAL_AFTER = 3


@dataclass
class Token_FromEnd:
    """Counted from the end of the row: 0 is the last token."""

    value: int


@dataclass
class Token_TargetMean:
    """The mean over the row's target tokens."""


@dataclass
class Token_Targets:
    """Each target token of the row."""


Token = Token_FromEnd | Token_TargetMean | Token_Targets
"""Which token of a row to read."""


def layers() -> int:
    """The number of blocks."""


def dimension() -> int:
    """The width of the residual stream."""


def capture(view: model.View, rows: data.Rows, layers: list[int], site: Site, token: Token) -> tensor.Tensor:
    """Captures one vector per row and layer: `[layers, rows, dimension]`, `f32`, without gradient, in the
    order of `layers`; with the policy's patches active. For the token `targets`, one vector per target token:
    `[layers, rows, width, dimension]`, 0 where the mask is 0.
    Errors: `invalid-argument` for no rows, a layer or token that is not there (such as the mean over the targets of a row
    without any), a layer named twice, or more than 2³¹ − 1 numbers.
    Cost: one forward pass, up to the last of the layers.

    Raises `tunebox.Refused`.
    """


def capture_for_learning(rows: data.Rows, layers: list[int], site: Site, token: Token) -> tensor.Tensor:
    """Captures as `capture` does, through the policy, and keeps what the backward pass needs, so that a loss built on
    the result can go to `learn.backward`, in the same step and before the next update. Adapter dropout and noise on
    embeddings are on, as in `model.score-for-learning`. Errors: those of `capture`; `unsupported` if the run trains
    nothing up to the last of the layers.
    Cost: one forward pass, up to the last of the layers, and its memory.

    Raises `tunebox.Refused`.
    """


def publish(layer: int, site: Site, token: Token, vector: tensor.Tensor, coefficient: float) -> None:
    """Adds a direction of the stream (`[dimension]`) to the run's artifact, for a layer;
    publishing a layer again replaces its direction. `site` and `token` are where it was captured, the same
    for all layers; `coefficient` is the advised factor.
    Errors: `invalid-argument` for a layer that is not there, numbers that are not finite, or
    another site or token than before.

    Raises `tunebox.Refused`.
    """
