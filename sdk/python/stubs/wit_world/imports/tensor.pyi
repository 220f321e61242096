"""Tensors, and what a method may do to them.

The numbers stay on the host. A method holds a handle and pays one crossing an operation
(about half a microsecond) beside the operation itself, so it asks for whole steps.
Operands broadcast as in NumPy. Arithmetic is for floating-point numbers, of one element type on
both sides; `cast` integers and truth values first. An `axis` counts from 0, or from the end when
negative. A reduction runs over one axis, or over all when none is given; `keep` leaves the axis with
length 1. Every result is a new tensor; its bytes are charged to the run and given back when its
handle and the graph that needs it are gone. Shapes have at most 8 axes and 2³¹ − 1 elements;
every axis is at least 1.

Gradients flow through every operation on floating-point numbers unless its text says
"no gradient". A gradient of exactly 0 stays 0 on its way back, even where a slope is NaN or
infinite, so that masked entries cannot spoil the others. Common errors: `shape-mismatch`,
`dtype-mismatch`, `invalid-argument` (axis, range, non-finite scalar). Passing a byte, handle or
operation limit ends the method.
"""

# Generated from `wit/tensor.wit` of tunebox.

from typing import Self

from . import types


class Tensor:
    """An array of numbers on the run's device."""

    def shape(self) -> list[int]:
        """The length of each axis; empty for a scalar."""

    def dtype(self) -> types.Dtype:
        """The element type."""

    def item(self) -> float:
        """The only element, as `f32`. Waits for the device. Counts 4 bytes read back.
        Errors: `shape-mismatch` if there is more than one element; `out-of-budget`.

        Raises `tunebox.Refused`.
        """

    def copy_to_list(self) -> list[float]:
        """A copy of all elements in row-major order, as `f32`. Waits for the device. Errors:
        `out-of-budget` past the bytes that a step may read back (64 KiB unless granted more).

        Raises `tunebox.Refused`.
        """

    def copy_to_indices(self) -> list[int]:
        """A copy of all elements of a `u32` or `u8` tensor in row-major order: indices, counts, truth values. Waits for the
        device. Counts 4 bytes an element read back. Errors: `dtype-mismatch` for another element type; `out-of-budget`.

        Raises `tunebox.Refused`.
        """

    def negate(self) -> Tensor:
        """−x.

        Raises `tunebox.Refused`.
        """

    def abs(self) -> Tensor:
        """|x|; the gradient at 0 is 0.

        Raises `tunebox.Refused`.
        """

    def square(self) -> Tensor:
        """x².

        Raises `tunebox.Refused`.
        """

    def sqrt(self) -> Tensor:
        """√x; NaN below 0.

        Raises `tunebox.Refused`.
        """

    def exp(self) -> Tensor:
        """eˣ.

        Raises `tunebox.Refused`.
        """

    def log(self) -> Tensor:
        """The natural logarithm; NaN below 0.

        Raises `tunebox.Refused`.
        """

    def log1p(self) -> Tensor:
        """log(1 + x), exact near 0.

        Raises `tunebox.Refused`.
        """

    def expm1(self) -> Tensor:
        """eˣ − 1, exact near 0.

        Raises `tunebox.Refused`.
        """

    def reciprocal(self) -> Tensor:
        """1 / x.

        Raises `tunebox.Refused`.
        """

    def sigmoid(self) -> Tensor:
        """1 / (1 + e⁻ˣ).

        Raises `tunebox.Refused`.
        """

    def log_sigmoid(self) -> Tensor:
        """log σ(x), exact for large negative numbers.

        Raises `tunebox.Refused`.
        """

    def softplus(self) -> Tensor:
        """log(1 + eˣ), exact at both ends.

        Raises `tunebox.Refused`.
        """

    def relu(self) -> Tensor:
        """max(x, 0); the gradient at 0 is 0.

        Raises `tunebox.Refused`.
        """

    def tanh(self) -> Tensor:
        """The hyperbolic tangent.

        Raises `tunebox.Refused`.
        """

    def sin(self) -> Tensor:
        """The sine, in radians.

        Raises `tunebox.Refused`.
        """

    def cos(self) -> Tensor:
        """The cosine, in radians.

        Raises `tunebox.Refused`.
        """

    def sign(self) -> Tensor:
        """−1, 0 or 1 by the sign of x; 0 for NaN. No gradient.

        Raises `tunebox.Refused`.
        """

    def round(self) -> Tensor:
        """The nearest whole number; halves go to the even one, as 2.5 to 2. No gradient.

        Raises `tunebox.Refused`.
        """

    def add_scalar(self, value: float) -> Tensor:
        """x + `value`. The scalar is finite.

        Raises `tunebox.Refused`.
        """

    def scale(self, value: float) -> Tensor:
        """x · `value`. The scalar is finite.

        Raises `tunebox.Refused`.
        """

    def power(self, exponent: float) -> Tensor:
        """x to the power `exponent` (finite); NaN for a negative base with a fractional exponent.

        Raises `tunebox.Refused`.
        """

    def clamp(self, low: float | None = None, high: float | None = None) -> Tensor:
        """Limits x to `low` … `high`; the gradient is 0 outside, 1 inside and at the borders.

        Raises `tunebox.Refused`.
        """

    def replace_non_finite(self, value: float) -> Tensor:
        """Replaces NaN and both infinities by `value`; the gradient there is 0.

        Raises `tunebox.Refused`.
        """

    def is_finite(self) -> Tensor:
        """1 where x is neither NaN nor infinite, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def logical_not(self) -> Tensor:
        """1 where a `u8` is 0, and 0 elsewhere, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def detach(self) -> Tensor:
        """The same numbers, outside of the graph. No gradient.

        Raises `tunebox.Refused`.
        """

    def cast(self, dtype: types.Dtype) -> Tensor:
        """Converts to another element type: truncated towards 0 and limited to the range of an integer
        type, NaN becomes 0. Gradient between floating-point types only.

        Raises `tunebox.Refused`.
        """

    def sum(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The sum.

        Raises `tunebox.Refused`.
        """

    def mean(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The mean.

        Raises `tunebox.Refused`.
        """

    def max(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The largest, NaN if there is one; the first of equals takes the gradient.

        Raises `tunebox.Refused`.
        """

    def min(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The smallest, NaN if there is one; the first of equals takes the gradient.

        Raises `tunebox.Refused`.
        """

    def logsumexp(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """log Σ eˣ, without overflow.

        Raises `tunebox.Refused`.
        """

    def norm(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """√Σ x²; the gradient at 0 is 0.

        Raises `tunebox.Refused`.
        """

    def nansum(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The sum of the entries that are not NaN; 0 when there is none.

        Raises `tunebox.Refused`.
        """

    def nanmean(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The mean of the entries that are not NaN; NaN when there is none.

        Raises `tunebox.Refused`.
        """

    def var(self, axis: int | None = None, keep: bool = False, correction: int = 0) -> Tensor:
        """The variance with divisor n − `correction`; NaN when that is not positive.

        Raises `tunebox.Refused`.
        """

    def std(self, axis: int | None = None, keep: bool = False, correction: int = 0) -> Tensor:
        """The square root of `var`; the gradient at 0 is 0.

        Raises `tunebox.Refused`.
        """

    def nanstd(self, axis: int | None = None, keep: bool = False, correction: int = 0) -> Tensor:
        """`std` over the entries that are not NaN. No gradient.

        Raises `tunebox.Refused`.
        """

    def count(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """How many entries of a `u8` are not 0, as `f32`. No gradient.

        Raises `tunebox.Refused`.
        """

    def any(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """1 if any entry of a `u8` is not 0, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def all(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """1 if no entry of a `u8` is 0, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def argmax(self, axis: int | None = None, keep: bool = False) -> Tensor:
        """The index of the largest (of the first NaN if there is one), the first of equals, as `u32`. No gradient.

        Raises `tunebox.Refused`.
        """

    def masked_sum(self, mask: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
        """Σ x·m with a mask that is `u8` or of the type of x, broadcast, over one axis or all. A masked
        entry counts exactly 0 even if it is NaN. Gradient to the mask as well if it is floating-point.

        Raises `tunebox.Refused`.
        """

    def masked_mean(self, mask: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
        """`masked-sum` divided by max(Σ m, 1).

        Raises `tunebox.Refused`.
        """

    def cumsum(self, axis: int) -> Tensor:
        """Running sums along an axis.

        Raises `tunebox.Refused`.
        """

    def softmax(self, axis: int) -> Tensor:
        """Exponentials divided by their sum along an axis.

        Raises `tunebox.Refused`.
        """

    def log_softmax(self, axis: int) -> Tensor:
        """log of `softmax`, without overflow.

        Raises `tunebox.Refused`.
        """

    def sort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """The entries along an axis in order, equal ones in their old order. NaN comes last.

        Raises `tunebox.Refused`.
        """

    def argsort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """The indices that sort the entries along an axis, in the order of `sort`, as `u32`. No gradient.

        Raises `tunebox.Refused`.
        """

    def topk(self, axis: int, count: int) -> Tensor:
        """The `count` largest along an axis, largest first.

        Raises `tunebox.Refused`.
        """

    def quantile(self, q: float) -> Tensor:
        """The quantile `q` (0 to 1) of all entries, interpolated linearly; one element. NaN if an entry is NaN. No gradient.

        Raises `tunebox.Refused`.
        """

    def gather(self, axis: int, index: Tensor) -> Tensor:
        """Picks entries along `axis`: for axis 0, out[i][j] = x[index[i][j]][j]. `index` is `u32`, as long
        as x on every other axis. Errors: `invalid-argument` for an index out of range.

        Raises `tunebox.Refused`.
        """

    def index_select(self, axis: int, index: Tensor) -> Tensor:
        """The entries along an axis at the positions in `index` (`u32`, one axis).

        Raises `tunebox.Refused`.
        """

    def index_add(self, axis: int, index: Tensor, source: Tensor) -> Tensor:
        """x with `source` added along an axis at the positions in `index` (`u32`, one axis). Positions may repeat.

        Raises `tunebox.Refused`.
        """

    def segment_sum(self, segments: Tensor, count: int) -> Tensor:
        """Sums of the entries of axis 0 that share a segment: `segments` is `u32`, `[n]`; the result
        has `count` entries on axis 0, 0 for empty segments.

        Raises `tunebox.Refused`.
        """

    def slice(self, axis: int, start: int, length: int) -> Tensor:
        """`length` entries of an axis from `start` on.

        Raises `tunebox.Refused`.
        """

    def chunk(self, axis: int, count: int) -> list[Tensor]:
        """Splits the axis into `count` parts of equal length, at most 1,024. Errors: `shape-mismatch` if it does not divide.

        Raises `tunebox.Refused`.
        """

    def reshape(self, shape: list[int]) -> Tensor:
        """The same elements in another shape.

        Raises `tunebox.Refused`.
        """

    def transpose(self, first: int, second: int) -> Tensor:
        """Swaps two axes.

        Raises `tunebox.Refused`.
        """

    def unsqueeze(self, axis: int) -> Tensor:
        """Adds an axis of length 1.

        Raises `tunebox.Refused`.
        """

    def squeeze(self, axis: int) -> Tensor:
        """Removes an axis of length 1.

        Raises `tunebox.Refused`.
        """

    def expand(self, shape: list[int]) -> Tensor:
        """Repeats x to a larger shape by the rules of broadcasting.

        Raises `tunebox.Refused`.
        """

    def roll(self, axis: int, shift: int) -> Tensor:
        """Shifts the entries of an axis by `shift` positions; those past the end come back at the start.

        Raises `tunebox.Refused`.
        """

    def flip(self, axis: int) -> Tensor:
        """Reverses an axis.

        Raises `tunebox.Refused`.
        """

    def add(self, other: Tensor | float) -> Tensor:
        """a + b.

        Raises `tunebox.Refused`.
        """

    def subtract(self, other: Tensor | float) -> Tensor:
        """a − b.

        Raises `tunebox.Refused`.
        """

    def multiply(self, other: Tensor | float) -> Tensor:
        """a · b.

        Raises `tunebox.Refused`.
        """

    def divide(self, other: Tensor | float) -> Tensor:
        """a / b.

        Raises `tunebox.Refused`.
        """

    def minimum(self, other: Tensor | float) -> Tensor:
        """The smaller of both, NaN if either is; equal ones share the gradient.

        Raises `tunebox.Refused`.
        """

    def maximum(self, other: Tensor | float) -> Tensor:
        """The larger of both, NaN if either is; equal ones share the gradient.

        Raises `tunebox.Refused`.
        """

    def equal(self, other: Tensor | float) -> Tensor:
        """1 where a = b, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def not_equal(self, other: Tensor | float) -> Tensor:
        """1 where a ≠ b, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def less(self, other: Tensor | float) -> Tensor:
        """1 where a < b, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def less_equal(self, other: Tensor | float) -> Tensor:
        """1 where a ≤ b, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def greater(self, other: Tensor | float) -> Tensor:
        """1 where a > b, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def greater_equal(self, other: Tensor | float) -> Tensor:
        """1 where a ≥ b, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def logical_and(self, other: Tensor | float) -> Tensor:
        """1 where both `u8` are not 0, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def logical_or(self, other: Tensor | float) -> Tensor:
        """1 where either `u8` is not 0, as `u8`. No gradient.

        Raises `tunebox.Refused`.
        """

    def matmul(self, other: Tensor | float) -> Tensor:
        """The matrix product over the last two axes; the axes before them are equal or broadcast.

        Raises `tunebox.Refused`.
        """

    def outer(self, other: Tensor | float) -> Tensor:
        """The outer product of two vectors, `[n, m]`.

        Raises `tunebox.Refused`.
        """

    def dot(self, other: Tensor | float) -> Tensor:
        """The inner product of two vectors, one element.

        Raises `tunebox.Refused`.
        """

    def __add__(self, other: Tensor | float) -> Tensor: ...

    def __radd__(self, other: Tensor | float) -> Tensor: ...

    def __sub__(self, other: Tensor | float) -> Tensor: ...

    def __rsub__(self, other: Tensor | float) -> Tensor: ...

    def __mul__(self, other: Tensor | float) -> Tensor: ...

    def __rmul__(self, other: Tensor | float) -> Tensor: ...

    def __truediv__(self, other: Tensor | float) -> Tensor: ...

    def __rtruediv__(self, other: Tensor | float) -> Tensor: ...

    def __matmul__(self, other: Tensor) -> Tensor: ...

    def __lt__(self, other: Tensor | float) -> Tensor: ...

    def __le__(self, other: Tensor | float) -> Tensor: ...

    def __gt__(self, other: Tensor | float) -> Tensor: ...

    def __ge__(self, other: Tensor | float) -> Tensor: ...

    def __pow__(self, exponent: float) -> Tensor: ...

    def __neg__(self) -> Tensor: ...

    def __abs__(self) -> Tensor: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Scope:
    """Groups temporary tensors: when the scope is dropped, every tensor made since it was
    opened is freed at once, except those that were kept by `keep`. Using a freed handle traps.
    """

    def __init__(self) -> None: ...

    def keep(self, tensor: Tensor) -> None:
        """Lets a tensor outlive the scope."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b.

    Raises `tunebox.Refused`.
    """


def subtract(a: Tensor, b: Tensor) -> Tensor:
    """a − b.

    Raises `tunebox.Refused`.
    """


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """a · b.

    Raises `tunebox.Refused`.
    """


def divide(a: Tensor, b: Tensor) -> Tensor:
    """a / b.

    Raises `tunebox.Refused`.
    """


def minimum(a: Tensor, b: Tensor) -> Tensor:
    """The smaller of both, NaN if either is; equal ones share the gradient.

    Raises `tunebox.Refused`.
    """


def maximum(a: Tensor, b: Tensor) -> Tensor:
    """The larger of both, NaN if either is; equal ones share the gradient.

    Raises `tunebox.Refused`.
    """


def equal(a: Tensor, b: Tensor) -> Tensor:
    """1 where a = b, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def not_equal(a: Tensor, b: Tensor) -> Tensor:
    """1 where a ≠ b, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def less(a: Tensor, b: Tensor) -> Tensor:
    """1 where a < b, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def less_equal(a: Tensor, b: Tensor) -> Tensor:
    """1 where a ≤ b, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def greater(a: Tensor, b: Tensor) -> Tensor:
    """1 where a > b, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def greater_equal(a: Tensor, b: Tensor) -> Tensor:
    """1 where a ≥ b, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """1 where both `u8` are not 0, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """1 where either `u8` is not 0, as `u8`. No gradient.

    Raises `tunebox.Refused`.
    """


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where `condition` (`u8`) is not 0, b elsewhere; a value not taken has gradient 0 even if it is NaN.

    Raises `tunebox.Refused`.
    """


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product over the last two axes; the axes before them are equal or broadcast.

    Raises `tunebox.Refused`.
    """


def outer(a: Tensor, b: Tensor) -> Tensor:
    """The outer product of two vectors, `[n, m]`.

    Raises `tunebox.Refused`.
    """


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of two vectors, one element.

    Raises `tunebox.Refused`.
    """


def concat(tensors: list[Tensor], axis: int) -> Tensor:
    """Concatenates tensors along an axis that exists; at most 1,024.

    Raises `tunebox.Refused`.
    """


def stack(tensors: list[Tensor], axis: int) -> Tensor:
    """Stacks tensors of one shape along a new axis; at most 1,024.

    Raises `tunebox.Refused`.
    """


def zeros(shape: list[int], dtype: types.Dtype) -> Tensor:
    """All elements 0.

    Raises `tunebox.Refused`.
    """


def ones(shape: list[int], dtype: types.Dtype) -> Tensor:
    """All elements 1.

    Raises `tunebox.Refused`.
    """


def full(shape: list[int], value: float) -> Tensor:
    """All elements `value`, as `f32`.

    Raises `tunebox.Refused`.
    """


def arange(start: float, step: float, count: int) -> Tensor:
    """`start`, `start` + `step`, … , `count` numbers, as `f32`.

    Raises `tunebox.Refused`.
    """


def from_list(values: list[float], shape: list[int]) -> Tensor:
    """The numbers of a list, as `f32`. Errors: `shape-mismatch` if the shape holds another number of elements.

    Raises `tunebox.Refused`.
    """


def from_indices(values: list[int], shape: list[int]) -> Tensor:
    """Indices of a list, as `u32`.

    Raises `tunebox.Refused`.
    """


def randn(sequence: str, shape: list[int]) -> Tensor:
    """Independent standard normal numbers, as `f32`, from the run's seed and the name of a random sequence.
    Successive calls on one sequence give new numbers; a resumed run goes on where it was.

    Raises `tunebox.Refused`.
    """


def rand(sequence: str, shape: list[int]) -> Tensor:
    """Independent uniform numbers in [0, 1), as `f32`, from a random sequence as in `randn`.

    Raises `tunebox.Refused`.
    """


def randperm(sequence: str, count: int) -> Tensor:
    """A random permutation of 0 … `count` − 1, as `u32`, from a random sequence as in `randn`.

    Raises `tunebox.Refused`.
    """
