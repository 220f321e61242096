"""The batch, as handles: ids, masks and lengths, never text.

Rows are padded on the right to the widest row. Position `t` of every per-token tensor
belongs to token `t` itself, so masks, log-probabilities and ids line up without shifts.
"""

# Generated from `wit/data.wit` of tunebox.

from typing import Self

from . import tensor


class Rows:
    """Token rows of one kind, such as the chosen answers of a batch."""

    def count(self) -> int:
        """How many rows there are."""

    def width(self) -> int:
        """The length of the longest row, prompt included."""

    def ids(self) -> tensor.Tensor:
        """Token ids, `[rows, width]`, `u32`; 0 in the padding.

        Raises `tunebox.Refused`.
        """

    def mask(self) -> tensor.Tensor:
        """1 where a token is a target (it belongs to an answer and has a predecessor), else 0:
        `[rows, width]`, `f32`. The host made it from the chat template.

        Raises `tunebox.Refused`.
        """

    def presence(self) -> tensor.Tensor:
        """1 where there is a token, 0 in the padding: `[rows, width]`, `f32`.

        Raises `tunebox.Refused`.
        """

    def lengths(self) -> tensor.Tensor:
        """Target tokens a row, `[rows]`, `f32`; may be 0.

        Raises `tunebox.Refused`.
        """

    def targets(self) -> int:
        """Target tokens of all these rows together."""

    def whole(self) -> Rows:
        """These rows with every token that has a predecessor as a target, prompts included: for
        losses that learn the prompt as well.

        Raises `tunebox.Refused`.
        """

    def prompts(self) -> Rows:
        """The tokens before each row's first target, as prompts to sample from; they have no targets.
        Errors: `invalid-argument` for a row without a target.

        Raises `tunebox.Refused`.
        """

    def select(self, numbers: list[int]) -> Rows:
        """Selects some of these rows, in the order given.
        Errors: `invalid-argument` for no number, more numbers than rows, or one past the last row.

        Raises `tunebox.Refused`.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Batch:
    """The records of one call of `step`."""

    def sides(self) -> list[str]:
        """The kinds of rows in the batch: `example` for supervised data; `chosen`, `rejected`
        for pairs; `example` and `mismatched` for single answers with a `label`, the second with each
        prompt before the answer of the record before it; `prompt` for prompts to sample from; `harmful`, `harmless` or `positive`,
        `negative` for contrasts.
        """

    def rows(self, side: str) -> Rows:
        """The rows of one side. Errors: `invalid-argument` for a side that the data shape lacks.

        Raises `tunebox.Refused`.
        """

    def size(self) -> int:
        """How many records the batch holds."""

    def column(self, name: str) -> tensor.Tensor:
        """A numeric column of the records, such as `label` or `weight`: `[size]`, `f32`, NaN where a record lacks it.
        Errors: `invalid-argument` for a name that no record of the data has.

        Raises `tunebox.Refused`.
        """

    def token_column(self, name: str) -> tensor.Tensor:
        """A column of the records that holds a list with one number for each target token, such as recorded
        log-probabilities or advantages: `[rows, width]` of the side `example`, `f32`, 0 where the mask is 0, NaN at the
        targets of a record without the list. Only supervised data has such columns.
        Errors: `invalid-argument` for a name that no record of the data has, and for a list of another length.

        Raises `tunebox.Refused`.
        """

    def record_indices(self) -> tensor.Tensor:
        """The index of each record in the data, counted from 0 over all files: `[size]`, `u32`. A record has the same index in
        every epoch, in a resumed run, and as often as its file's weight repeats it. Lines that are skipped as wrong do not
        count.

        Raises `tunebox.Refused`.
        """

    def window_targets(self, side: str) -> int:
        """Target tokens of the whole accumulation window on this side, over all micro-batches:
        the denominator that makes accumulation exact. At least 1.

        Raises `tunebox.Refused`.
        """

    def window_tokens(self, side: str) -> int:
        """Tokens with a predecessor of the whole accumulation window on this side: the denominator for `whole` rows.
        At least 1.

        Raises `tunebox.Refused`.
        """

    def window_size(self) -> int:
        """Records of the whole accumulation window. At least 1."""

    def ends_window(self) -> bool:
        """Whether this batch is the last of its accumulation window: after it the weights are updated, by the host or
        by a method that updates the parameters itself.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def make_rows(ids: tensor.Tensor, presence: tensor.Tensor, mask: tensor.Tensor) -> Rows:
    """Makes rows of the method's own tokens, such as a completion after another prompt: `ids` are `u32`, `presence` and
    `mask` `f32` as those of `rows`, all `[rows, width]`. Ids in the padding are ignored, and so is a mark at the first
    token of a row. Counts 8 bytes a row read back, since the rows tell their lengths and targets.
    Errors: `shape-mismatch`; `dtype-mismatch`; `invalid-argument` for an id that is not in the vocabulary, a mask of
    other numbers than 0 and 1, a row that does not begin with a token, a token or a target after the first padding, or
    a row longer than the model takes; `out-of-budget`.

    Raises `tunebox.Refused`.
    """
