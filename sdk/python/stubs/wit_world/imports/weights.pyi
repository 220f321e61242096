"""The weights of the model by role and layer: for methods that edit a model instead of training it. Those of the
verifiers in a reward are `reward.weights`. Granted only when the run asks for it by name.
"""

# Generated from `wit/weights.wit` of tunebox.

from enum import Enum

from . import tensor


class Role(Enum):
    """The role of a matrix in the model."""

    EMBEDDING = 0
    QUERY = 1
    KEY = 2
    VALUE = 3
    ATTENTION_OUTPUT = 4
    GATE = 5
    UP = 6
    DOWN = 7
    HEAD = 8


class Form(Enum):
    """How edits are kept: in the weights themselves, or beside them as an adapter with one rank an edit."""

    EDITED = 0
    ADAPTER = 1


def keep_as(form: Form) -> None:
    """Selects how later edits are kept; `edited` by default. The policy computes the same either way.
    Errors: `invalid-argument` once an edit was made the other way; `unsupported` for `adapter`
    when all weights are trained.

    Raises `tunebox.Refused`.
    """


def shape(role: Role, layer: int) -> tuple[int, int]:
    """The shape of a matrix: its rows and columns, (out, in). `layer` is ignored for `embedding` and `head`.
    Errors: `invalid-argument` for a layer that the model does not have.

    Raises `tunebox.Refused`.
    """


def read_rows(role: Role, layer: int, first: int, count: int) -> tensor.Tensor:
    """Rows `first .. first + count` of a matrix `[out, in]`, as `f32`. `layer` is ignored for
    `embedding` and `head`. Counts against the bytes that a method may read.

    Raises `tunebox.Refused`.
    """


def add_outer(role: Role, layer: int, left: tensor.Tensor, right: tensor.Tensor, scale: float) -> None:
    """W ← W + `scale` · `left` `right`ᵀ, with `left` `[out]` and `right` `[in]`: summed in `f32`, stored
    like the weight. The policy uses it at once, the reference never.
    Errors: `shape-mismatch`; `invalid-argument` for numbers that are not finite; `unsupported` for
    the embedding and the head where edits are kept as an adapter.

    Raises `tunebox.Refused`.
    """


def project_out(role: Role, layer: int, direction: tensor.Tensor, strength: float, keep_norms: bool) -> None:
    """W ← W − `strength` · r rᵀ W with r = `direction` / ‖`direction`‖: nothing that the matrix
    writes lies along the direction any more. For `embedding` each row is projected.
    A bias of the same map loses its component too, unless edits are kept as an adapter.
    `keep-norms` restores the length of each row afterwards; `unsupported` with an adapter.
    Where head and embedding are one matrix, an edit of one is an edit of both.

    Raises `tunebox.Refused`.
    """
