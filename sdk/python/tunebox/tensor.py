"""Tensors with Python's operators: each is one function of `wit/tensor.wit`.

`+ - * / **` work element by element and broadcast, `@` is the matrix product, `< <= > >=` give `u8`.
A number may stand on either side. A function of two tensors is a method of the first as well, as in
`x.minimum(0.0)`. The contract's own class gets the operators and some defaults; nothing is wrapped, so a
tensor costs no second object.
"""

from math import prod

from wit_world.imports import tensor as contract
from wit_world.imports.tensor import (
    Scope,
    Tensor,
    add,
    arange,
    divide,
    dot,
    equal,
    from_indices,
    from_list,
    full,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    matmul,
    multiply,
    not_equal,
    ones,
    outer,
    rand,
    randn,
    randperm,
    subtract,
    zeros,
)
from wit_world.imports.types import Dtype

from tunebox.arguments import snake
from tunebox.contract import FUNCTIONS
from tunebox.errors import Refused

__all__ = [
    "Dtype", "Scope", "Tensor", "add", "arange", "concat", "divide", "dot", "equal", "from_indices", "from_list",
    "full", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "matmul", "maximum",
    "minimum", "multiply", "not_equal", "ones", "outer", "rand", "randn", "randperm", "stack", "subtract", "where",
    "zeros",
]  # fmt: skip

Number = int | float


def lifted(value: Tensor | Number) -> Tensor:
    """Returns a tensor unchanged, and a number as a scalar tensor."""
    return value if isinstance(value, Tensor) else full([], value)


def where(condition: Tensor, a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """`a` where `condition` (`u8`) is not 0, `b` elsewhere; a value not taken has gradient 0 even if it is NaN."""
    return contract.where(condition, lifted(a), lifted(b))


def minimum(a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """The element-wise minimum, NaN if either is NaN; equal elements share the gradient."""
    return contract.minimum(lifted(a), lifted(b))


def maximum(a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """The element-wise maximum, NaN if either is NaN; equal elements share the gradient."""
    return contract.maximum(lifted(a), lifted(b))


def concat(tensors: list[Tensor], axis: int = 0) -> Tensor:
    """Concatenates at most 1,024 tensors along an existing axis."""
    return contract.concat(tensors, axis)


def stack(tensors: list[Tensor], axis: int = 0) -> Tensor:
    """Stacks at most 1,024 tensors of one shape along a new axis."""
    return contract.stack(tensors, axis)


def _operator(between, with_number=None, swapped: bool = False):
    """Makes an operator: `between` takes two tensors, in reverse if `swapped`; `with_number` a tensor, a number."""

    def operator(self: Tensor, other: Tensor | Number) -> Tensor:
        if not isinstance(other, Tensor):
            if not isinstance(other, Number):
                return NotImplemented
            if with_number is not None:
                return with_number(self, other)
            other = full([], other)
        return between(other, self) if swapped else between(self, other)

    return operator


def _power(self: Tensor, exponent: Number) -> Tensor:
    return self.power(exponent) if isinstance(exponent, Number) else NotImplemented


def _truth(self: Tensor) -> bool:
    raise TypeError("a tensor has no truth value; `where` chooses element by element, `.item()` reads one element")


#: The most numbers of a tensor that are all shown, and how many of a larger one.
_MOST, _FIRST = 64, 6


def _shown(self: Tensor) -> str:
    """A tensor in `print`: its shape, element type and first numbers, which count as read back from the device."""
    few, shape = self, self.shape()
    try:
        if prod(shape) > _MOST:
            # Views only, as an expanded tensor may be too large to copy.
            for axis, length in enumerate(shape):
                few = few.slice(axis, 0, min(length, _FIRST) if axis + 1 == len(shape) else 1)
        numbers = few.copy_to_list()
    except Refused:
        numbers = []
    shown = [f"{number:.6g}" for number in numbers] + ["…"] * (len(numbers) < prod(shape))
    return f"Tensor({shape}, {self.dtype().name.lower()}, [{', '.join(shown)}])"


_OPERATORS = {
    "__add__": _operator(contract.add, lambda x, number: x.add_scalar(number)),
    "__radd__": _operator(contract.add, lambda x, number: x.add_scalar(number)),
    "__sub__": _operator(contract.subtract, lambda x, number: x.add_scalar(-number)),
    "__rsub__": _operator(contract.subtract, swapped=True),
    "__mul__": _operator(contract.multiply, lambda x, number: x.scale(number)),
    "__rmul__": _operator(contract.multiply, lambda x, number: x.scale(number)),
    "__truediv__": _operator(contract.divide),
    "__rtruediv__": _operator(contract.divide, swapped=True),
    "__matmul__": _operator(contract.matmul),
    "__lt__": _operator(contract.less),
    "__le__": _operator(contract.less_equal),
    "__gt__": _operator(contract.greater),
    "__ge__": _operator(contract.greater_equal),
    "__pow__": _power,
    "__neg__": lambda x: x.negate(),
    "__abs__": lambda x: x.abs(),
    "__bool__": _truth,
    "__repr__": _shown,
}

#: Functions by the values that their last arguments have when they are left out. The contract knows no defaults.
_DEFAULTS = {
    # Over one axis, or over all elements: `x.sum()`, `x.sum(1)`, `x.sum(1, keep=True)`.
    (None, False): (
        "sum", "mean", "max", "min", "logsumexp", "norm", "nansum", "nanmean", "count", "any", "all",
        "argmax", "masked_sum", "masked_mean",
    ),
    # The last argument is the correction: the divisor is n − `correction`.
    (None, False, 0): ("var", "std", "nanstd"),
    (-1, False): ("sort", "argsort"),
    (None, None): ("clamp",),
}  # fmt: skip


def _method(function):
    """Makes a method of a function of two tensors; the other may be a number."""
    return lambda self, other: function(self, lifted(other))


def _extend_tensor() -> None:
    """Adds operators, functions of two tensors and default arguments to the tensor class of the generated bindings."""
    for name, operator in _OPERATORS.items():
        setattr(Tensor, name, operator)
    for name, parameters, _ in FUNCTIONS["tensor"]:
        if [kind for _, kind in parameters] == [("handle", "tensor", "tensor")] * 2 and "." not in name:
            setattr(Tensor, snake(name), _method(getattr(contract, snake(name))))
    for values, names in _DEFAULTS.items():
        for name in names:
            getattr(Tensor, name).__defaults__ = values


_extend_tensor()
