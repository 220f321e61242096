"""Writes ops.jsonl: for each operation of wit/tensor.wit what goes in, what comes out, what comes back as gradient.

The numbers come from PyTorch (f64 unless a row says otherwise), which knows nothing of this project. Where the
contract says more than PyTorch does (ties, masks over NaN) the row gives its numbers by hand, with the reason.
The gradient is that of the sum of w_i * y_i, w_i = ((7 i) mod 5 - 2) / 2 + 1/4 = -0.75, 0.25, 1.25, -0.25,
0.75, -0.75, …, so that no two neighbors weigh the same. Run: python tests/golden/ops.py
"""

import json
import math
import pathlib

import torch

NAN, INF = math.nan, math.inf
ROWS = []
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
         "u32": torch.int64, "s64": torch.int64, "u8": torch.uint8}


class T:
    """An operand: nested numbers and an element type; `grad` says whether a gradient is asked for."""

    def __init__(self, numbers, dtype="f64", grad=None):
        self.dtype = dtype
        self.tensor = torch.tensor(numbers, dtype=TYPES[dtype])
        self.grad = dtype in ("f64", "f32", "bf16", "f16") if grad is None else grad


def number(x):
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else ("inf" if x > 0 else "-inf")
    return x


def written(tensor, dtype):
    flat = tensor.detach().double().flatten().tolist() if tensor.is_floating_point() else tensor.flatten().tolist()
    if len(flat) > 100:  # only operands that are one number all over are that long
        assert len(set(flat)) == 1
        return {"dtype": dtype, "shape": list(tensor.shape), "fill": flat[0]}
    return {"dtype": dtype, "shape": list(tensor.shape), "values": [number(x) for x in flat]}


def weights(tensor):
    flat = [((7 * i) % 5 - 2) / 2 + 0.25 for i in range(tensor.numel())]
    return torch.tensor(flat, dtype=torch.float64).reshape(tensor.shape)


def row(op, operands, function, arguments=None, gradients="torch", differences=True, dtype=None, note=None):
    """`gradients`: "torch", None for none, or the numbers for each operand."""
    inputs = [o.tensor.clone().requires_grad_(o.grad and gradients == "torch") for o in operands]
    result = function(*inputs)
    parts = list(result) if isinstance(result, (list, tuple)) else [result]
    entry = {"op": op, "operands": [written(o.tensor, o.dtype) for o in operands], "arguments": arguments or {}}
    if note:
        entry["note"] = note
    out = dtype or operands[0].dtype
    entry["results"] = [written(part, out) for part in parts]
    if gradients == "torch":
        wide = torch.cat([part.double().flatten() for part in parts])
        (wide * weights(wide)).sum().backward()
        entry["gradients"] = [None if not o.grad else [number(x) for x in i.grad.double().flatten().tolist()]
                              for o, i in zip(operands, inputs)]
        entry["differences"] = differences
    elif gradients is not None:
        entry["gradients"] = [None if g is None else [number(float(x)) for x in g] for g in gradients]
        entry["differences"] = False
    ROWS.append(entry)


def refused(op, operands, arguments, refusal, note=None):
    entry = {"op": op, "operands": [written(o.tensor, o.dtype) for o in operands], "arguments": arguments,
             "refusal": refusal}
    if note:
        entry["note"] = note
    ROWS.append(entry)


SMOOTH = T([[0.3, -1.7, 2.2], [-0.4, 0.9, -3.1]])
POSITIVE = T([[0.3, 1.7, 2.2], [0.04, 0.9, 31.0]])
A = T([[0.5, -1.25, 3.0], [2.0, 0.75, -0.5]])
B = T([[1.5, 2.0, -0.75]])
COLUMN = T([[2.0], [-3.0]])
CUBE = T([[[0.1, -0.7], [1.9, 0.4], [-2.2, 0.6]], [[3.1, -1.4], [0.8, -0.9], [0.2, 1.3]]])


def elementwise():
    unary = {
        "negate": torch.neg, "abs": torch.abs, "square": torch.square, "exp": torch.exp,
        "expm1": torch.expm1, "reciprocal": torch.reciprocal, "sigmoid": torch.sigmoid,
        "log-sigmoid": torch.nn.functional.logsigmoid, "softplus": torch.nn.functional.softplus,
        "relu": torch.relu, "tanh": torch.tanh, "sin": torch.sin, "cos": torch.cos,
    }
    for op, function in unary.items():
        row(op, [SMOOTH], function)
        row(op, [T([0.3, -1.7, 2.2], "f32")], function)
        row(op, [T([0.5, -1.75, 2.25], "bf16")], function, gradients=None)
        refused(op, [T([1, 2], "u32")], {}, "dtype", "numbers that are not floating-point are cast first")
    for op, function in {"sqrt": torch.sqrt, "log": torch.log, "log1p": torch.log1p}.items():
        row(op, [POSITIVE], function)
        row(op, [T([-2.0, 4.0])], function, gradients=None, note="NaN below 0")
        refused(op, [T([1, 0], "u8")], {}, "dtype")
    for op, function in {"sign": torch.sign, "round": torch.round}.items():
        row(op, [SMOOTH], function, gradients=[None])
        row(op, [T([0.5, -1.75, 2.25], "bf16")], function, gradients=None)
        refused(op, [T([1, 2], "u32")], {}, "dtype")
    row("sign", [T([0.0, -0.0, INF, -INF, NAN])], lambda x: torch.tensor([0.0, 0.0, 1.0, -1.0, 0.0]).double(),
        gradients=[None], note="by hand: 0 for NaN")
    row("round", [T([0.5, 1.5, 2.5, -0.5, -1.5, 8388609.0, INF, NAN], "f32")], torch.round, gradients=None,
        note="halves go to the even number")
    row("abs", [T([0.0, -1.0])], torch.abs, gradients=[[0, -0.25]], note="by hand: the gradient at 0 is 0")
    row("relu", [T([0.0, 1.0, NAN])], torch.relu, gradients=[[0, 0.25, 0]],
        note="by hand: the gradient at 0 is 0")
    row("log-sigmoid", [T([-800.0, 800.0])], lambda x: torch.tensor([-800.0, 0.0]).double(), gradients=[[-0.75, 0]],
        note="by hand: log s(x) = x far below 0, 0 far above")
    row("softplus", [T([-800.0, 800.0])], lambda x: torch.tensor([0.0, 800.0]).double(), gradients=[[0, 0.25]],
        note="by hand: 0 far below 0, x far above")
    row("softplus", [T([30.0], "f32")], lambda x: torch.tensor([30.0]), gradients=None)
    row("sigmoid", [T([-800.0, 800.0])], torch.sigmoid)
    tiny = [1e-8, -3e-7, 2e-4]
    row("log1p", [T(tiny, "f32")], torch.log1p, gradients=None, note="exact near 0")
    row("expm1", [T(tiny, "f32")], torch.expm1, gradients=None, note="exact near 0")
    row("expm1", [T([INF, -INF, 0.0, NAN])], torch.expm1, gradients=None)
    row("log1p", [T([INF, -1.0, 0.0, NAN])], torch.log1p, gradients=None)


def scalars():
    for value in (0.7, -2.5, 0.0):
        row("add-scalar", [SMOOTH], lambda x: x + value, {"value": value})
        row("scale", [SMOOTH], lambda x: x * value, {"value": value})
    for exponent in (2.0, 3.0, -1.0, 0.0, 1.0):
        row("power", [SMOOTH], lambda x: x ** exponent, {"exponent": exponent})
    row("power", [POSITIVE], lambda x: x ** 1.5, {"exponent": 1.5})
    row("power", [T([-2.0, 4.0])], lambda x: x ** 0.5, {"exponent": 0.5}, note="NaN for a negative base",
        differences=False)
    row("clamp", [SMOOTH], lambda x: x.clamp(-1, 1), {"low": -1.0, "high": 1.0})
    row("clamp", [SMOOTH], lambda x: x.clamp(min=0.5), {"low": 0.5})
    row("clamp", [SMOOTH], lambda x: x.clamp(max=0.5), {"high": 0.5})
    row("clamp", [SMOOTH], lambda x: x * 1, {})
    row("clamp", [T([-1.0, 1.0, 1.5, NAN])], lambda x: x.clamp(-1, 1), {"low": -1.0, "high": 1.0},
        gradients=[[-0.75, 0.25, 0, 0]], note="by hand: 1 at the borders, 0 outside and at NaN")
    row("clamp", [T([0.8, 0.81], "bf16")], lambda x: x.clamp(max=0.8), {"high": 0.8}, gradients=[[-0.75, 0]],
        note="by hand: the border is rounded as x is, so 0.8 lies on it")
    for op, name in (("add-scalar", "value"), ("scale", "value"), ("power", "exponent"),
                     ("replace-non-finite", "value"), ("clamp", "low"), ("clamp", "high")):
        refused(op, [SMOOTH], {name: "nan"}, "argument", "scalars are finite")
        refused(op, [SMOOTH], {name: "inf"}, "argument")
        refused(op, [T([1], "u32")], {name: 1.0}, "dtype")
    refused("clamp", [SMOOTH], {"low": 1.0, "high": -1.0}, "argument")
    row("replace-non-finite", [T([1.0, NAN, INF, -INF])], lambda x: x.nan_to_num(7.0, 7.0, 7.0), {"value": 7.0},
        gradients=[[-0.75, 0, 0, 0]], note="by hand: 0 where a number was replaced")
    finite = T([1.0, NAN, INF, -INF, 0.0])
    row("is-finite", [finite], lambda x: x.isfinite().to(torch.uint8), gradients=None, dtype="u8")
    row("is-finite", [T([1, 2], "u32")], lambda x: torch.ones(2, dtype=torch.uint8), gradients=None, dtype="u8")
    row("logical-not", [T([0, 1, 5], "u8")], lambda x: (x == 0).to(torch.uint8), gradients=None)
    refused("logical-not", [SMOOTH], {}, "dtype")
    row("detach", [SMOOTH], lambda x: x, gradients=[None])
    row("cast", [SMOOTH], lambda x: x.float(), {"dtype": "f32"}, dtype="f32", differences=False)
    row("cast", [T([0.1, 2.5], "f32")], lambda x: x.double(), {"dtype": "f64"}, dtype="f64", differences=False)
    row("cast", [T([2.7, -1.0, 300.0, NAN])], lambda x: torch.tensor([2, 0, 255, 0], dtype=torch.uint8),
        {"dtype": "u8"}, gradients=[None], dtype="u8", note="by hand: towards 0, limited to the range")
    row("cast", [T([0, 3], "u8")], lambda x: x.float(), {"dtype": "f32"}, gradients=None, dtype="f32")
    row("cast", [T([1, 2], "u32")], lambda x: x, {"dtype": "s64"}, gradients=None, dtype="s64")


def each_axis(x):
    yield None, False
    yield None, True
    for axis in range(x.tensor.dim()):
        yield axis, False
        yield axis - x.tensor.dim(), True


def over(x, axis, keep, function):
    """A PyTorch reduction with `dim` and `keepdim`, over one axis or all."""
    if axis is not None:
        return function(x, axis, keep)
    result = function(x.flatten(), 0, False)
    return result.reshape([1] * x.dim()) if keep else result


def reductions():
    table = {
        "sum": lambda x, d, k: x.sum(d, keepdim=k), "mean": lambda x, d, k: x.mean(d, keepdim=k),
        "max": lambda x, d, k: x.max(d, keepdim=k).values, "min": lambda x, d, k: x.min(d, keepdim=k).values,
        "logsumexp": lambda x, d, k: x.logsumexp(d, keepdim=k),
        "norm": lambda x, d, k: torch.linalg.vector_norm(x, dim=d, keepdim=k),
        "nansum": lambda x, d, k: x.nansum(d, keepdim=k),
        "nanmean": lambda x, d, k: x.nanmean(d, keepdim=k),
    }
    for op, function in table.items():
        for axis, keep in each_axis(CUBE):
            row(op, [CUBE], lambda x: over(x, axis, keep, function), {"axis": axis, "keep": keep})
        row(op, [T([[1.5, -2.0], [0.25, 3.0]], "bf16")], lambda x: over(x.float(), 1, False, function).bfloat16(),
            {"axis": 1, "keep": False}, gradients=None)
        refused(op, [CUBE], {"axis": 3, "keep": False}, "argument")
        refused(op, [CUBE], {"axis": -4, "keep": False}, "argument")
    for op in ("var", "std"):
        for correction in (0, 1):
            function = lambda x, d, k: (x.var if op == "var" else x.std)(d, correction=correction, keepdim=k)
            for axis, keep in each_axis(CUBE):
                row(op, [CUBE], lambda x: over(x, axis, keep, function),
                    {"axis": axis, "keep": keep, "correction": correction})
        row(op, [T([4.0])], lambda x: x[0] * NAN, {"axis": None, "keep": False, "correction": 1}, gradients=None)
        row(op, [T([4.0, 5.0])], lambda x: x[0] * NAN, {"axis": 0, "keep": False, "correction": 9}, gradients=None)
    row("std", [T([2.0, 2.0])], lambda x: x.std(), {"axis": 0, "keep": False, "correction": 1},
        gradients=[[0, 0]], note="by hand: the gradient at 0 is 0")
    row("norm", [T([0.0, 0.0])], torch.linalg.vector_norm, {"axis": None, "keep": False}, gradients=[[0, 0]])
    row("norm", [T([3e30, 4e30], "f32")], lambda x: torch.tensor(5e30), {"axis": None, "keep": False}, gradients=None,
        note="by hand: without overflow")
    row("max", [T([[2.0, 5.0, 5.0], [NAN, 1.0, NAN]])], lambda x: x.max(1).values, {"axis": 1, "keep": False},
        gradients=[[0, -0.75, 0, 0.25, 0, 0]], note="by hand: the first of equals, the first NaN")
    row("min", [T([3.0, 3.0, 7.0])], torch.min, {"axis": None, "keep": False}, gradients=[[-0.75, 0, 0]],
        note="by hand: the first of equals takes the gradient")
    row("max", [T([[1, 7], [9, 2]], "u32")], lambda x: x.max(1).values, {"axis": 1, "keep": False}, gradients=None)
    row("logsumexp", [T([[1e3, 1e3], [-INF, -INF], [-1e3, 0.0]])], lambda x: x.logsumexp(1),
        {"axis": 1, "keep": False}, gradients=[[-0.375, -0.375, 0, 0, 0, 1.25]], note="by hand: nothing in an empty sum")
    holes = T([[1.0, NAN, 4.0], [NAN, NAN, NAN]])
    arguments = {"axis": 1, "keep": False}
    row("nansum", [holes], lambda x: x.nansum(1), arguments, gradients=[[-0.75, 0, -0.75, 0, 0, 0]])
    row("nanmean", [holes], lambda x: x.nanmean(1), arguments, gradients=[[-0.375, 0, -0.375, 0, 0, 0]])
    row("nanstd", [holes], lambda x: torch.tensor([math.sqrt(4.5), NAN], dtype=torch.float64),
        {**arguments, "correction": 1}, gradients=[None], note="by hand: the numbers 1 and 4")
    row("nanstd", [CUBE], lambda x: x.std(1), {"axis": 1, "keep": False, "correction": 1},
        gradients=[None])
    refused("nanstd", [CUBE], {"axis": 5, "keep": False, "correction": 1}, "argument")
    bits = T([[0, 1, 3], [0, 0, 0], [1, 1, 1]], "u8")
    for op, function, dtype in (("count", lambda x, d, k: (x != 0).sum(d, keepdim=k).float(), "f32"),
                                ("any", lambda x, d, k: (x != 0).any(d, keepdim=k).to(torch.uint8), "u8"),
                                ("all", lambda x, d, k: (x != 0).all(d, keepdim=k).to(torch.uint8), "u8")):
        for axis, keep in each_axis(bits):
            row(op, [bits], lambda x: over(x, axis, keep, function), {"axis": axis, "keep": keep}, gradients=None,
                dtype=dtype)
        refused(op, [CUBE], {"axis": 0, "keep": False}, "dtype")
    for axis, keep in each_axis(CUBE):
        row("argmax", [CUBE], lambda x: over(x, axis, keep, lambda x, d, k: x.argmax(d, keepdim=k)),
            {"axis": axis, "keep": keep}, gradients=[None], dtype="u32")
    row("argmax", [T([[5.0, 7.0, 7.0], [1.0, NAN, 9.0]])], lambda x: torch.tensor([1, 1]), {"axis": 1, "keep": False},
        gradients=[None], dtype="u32", note="by hand: the first of equals, and NaN before all")


def masks():
    # No sum of masks is 1: there the mean has a kink.
    mask = T([[1.5, 0.0, 1.0], [0.0, 0.0, 0.5]])
    bits = T([[1, 0, 1], [0, 0, 7]], "u8")
    for axis, keep in each_axis(A):
        arguments = {"axis": axis, "keep": keep}
        total = lambda x, m: over(x * m, axis, keep, lambda x, d, k: x.sum(d, keepdim=k))
        mean = lambda x, m: total(x, m) / over(m.expand(2, 3), axis, keep,
                                               lambda m, d, k: m.sum(d, keepdim=k)).clamp(min=1)
        truth = lambda m: (m != 0).double()
        row("masked-sum", [A, mask], total, arguments)
        row("masked-sum", [A, bits], lambda x, m: total(x, truth(m)), arguments)
        row("masked-mean", [A, mask], mean, arguments)
        row("masked-mean", [A, bits], lambda x, m: mean(x, truth(m)), arguments)
    row("masked-mean", [A, T([1.0, 0.25, 3.0])], lambda x, m: (x * m).sum(1) / m.sum().clamp(min=1),
        {"axis": 1, "keep": False}, note="the mask is broadcast")
    poisoned = T([NAN, 2.0, INF])
    for op, value, gradient in (("masked-sum", 2.0, [0, -0.75, 0]), ("masked-mean", 2.0, [0, -0.75, 0])):
        row(op, [poisoned, T([0, 1, 0], "u8")], lambda x, m: torch.tensor(value).double(),
            {"axis": None, "keep": False}, gradients=[gradient, None], note="by hand: what is masked counts 0")
    row("masked-mean", [poisoned, T([0, 0, 0], "u8")], lambda x, m: torch.tensor(0.0).double(),
        {"axis": None, "keep": False}, gradients=[[0, 0, 0], None], note="by hand: an empty mask")
    for op in ("masked-sum", "masked-mean"):
        refused(op, [A, T([[1.0, 0.0]])], {"axis": None, "keep": False}, "shape")
        refused(op, [A, T([1, 0, 1], "u32")], {"axis": None, "keep": False}, "dtype")
        refused(op, [A, mask], {"axis": 2, "keep": False}, "argument")


def scans():
    long = T([math.sin(3.7 * i) for i in range(37)])
    for op, function in (("cumsum", torch.cumsum), ("softmax", torch.softmax),
                         ("log-softmax", torch.log_softmax)):
        for axis in (0, 1, -1):
            row(op, [CUBE], lambda x: function(x, axis), {"axis": axis})
        row(op, [long], lambda x: function(x, 0), {"axis": 0})
        row(op, [T([2.5])], lambda x: function(x, 0), {"axis": 0})
        refused(op, [CUBE], {"axis": 3}, "argument")
        refused(op, [T(1.0)], {"axis": 0}, "argument", "a scalar has no axis")
        refused(op, [T([1], "u32")], {"axis": 0}, "dtype")
    row("softmax", [T([1e4, 0.0, -INF])], lambda x: torch.softmax(x, 0), {"axis": 0}, differences=False)
    row("log-softmax", [T([1e4, 0.0, -1e4])], lambda x: torch.log_softmax(x, 0), {"axis": 0}, differences=False)


def order():
    mixed = T([[3.0, -1.0, 2.0, 0.5], [0.1, 4.0, -2.0, 1.0]])
    for axis in (0, 1, -1):
        for descending in (False, True):
            arguments = {"axis": axis, "descending": descending}
            row("sort", [mixed], lambda x: x.sort(dim=axis, descending=descending, stable=True).values, arguments)
            row("argsort", [mixed], lambda x: x.sort(dim=axis, descending=descending, stable=True).indices, arguments,
                gradients=[None], dtype="u32")
    ties = T([2.0, NAN, 1.0, 2.0, 1.0])
    row("argsort", [ties], lambda x: torch.tensor([2, 4, 0, 3, 1]), {"axis": 0, "descending": False},
        gradients=[None], dtype="u32", note="by hand: equal ones in their old order, NaN last")
    row("argsort", [ties], lambda x: torch.tensor([0, 3, 2, 4, 1]), {"axis": 0, "descending": True},
        gradients=[None], dtype="u32", note="by hand: NaN is last both ways")
    row("sort", [ties], lambda x: torch.tensor([2.0, 2.0, 1.0, 1.0, NAN]).double(), {"axis": 0, "descending": True},
        gradients=[[-0.75, 0.75, 1.25, 0.25, -0.25]], note="by hand: each weight goes where its number came from")
    row("sort", [T([[3, 1], [2, 9]], "u32")], lambda x: x.sort(1).values, {"axis": 1, "descending": False},
        gradients=None)
    for axis, count in ((1, 2), (0, 1), (-1, 4)):
        row("topk", [mixed], lambda x: x.topk(count, axis).values, {"axis": axis, "count": count})
    refused("topk", [mixed], {"axis": 1, "count": 0}, "argument")
    refused("topk", [mixed], {"axis": 1, "count": 5}, "argument")
    refused("topk", [mixed], {"axis": 1, "count": 4294967295}, "argument")
    refused("sort", [mixed], {"axis": 2, "descending": True}, "argument")
    refused("argsort", [mixed], {"axis": -3, "descending": True}, "argument")
    for q in (0.0, 0.25, 0.9, 1.0):
        row("quantile", [mixed], lambda x: torch.quantile(x.flatten(), q), {"q": q}, gradients=[None])
    row("quantile", [T([1.0, NAN])], lambda x: torch.quantile(x, 0.5), {"q": 0.5}, gradients=[None])
    row("quantile", [T([-INF, 2.0, INF])], lambda x: torch.tensor(2.0).double(), {"q": 0.5}, gradients=[None])
    for q in (-0.1, 1.5, "nan"):
        refused("quantile", [mixed], {"q": q}, "argument")


def places():
    x = T([[0.1, 0.2, 0.3], [1.1, 1.2, 1.3]])
    rows_of = T([[1, 0, 1], [0, 0, 1], [1, 1, 1]], "u32")
    columns = T([[2, 2], [0, 1]], "u32")
    row("gather", [x, rows_of], lambda x, i: x.gather(0, i), {"axis": 0})
    row("gather", [x, columns], lambda x, i: x.gather(1, i), {"axis": -1})
    refused("gather", [x, T([[3], [0]], "u32")], {"axis": 1}, "argument", "index out of range")
    refused("gather", [x, T([[4294967295], [0]], "u32")], {"axis": 1}, "argument", "index out of range")
    refused("gather", [x, T([[0]], "u32")], {"axis": 1}, "shape", "as long as x on every other axis")
    refused("gather", [x, T([0, 1], "u32")], {"axis": 1}, "shape")
    refused("gather", [x, T([[0.0], [0.0]])], {"axis": 1}, "dtype")
    pick = T([2, 0, 2, 1], "u32")
    row("index-select", [x, pick], lambda x, i: x.index_select(1, i), {"axis": 1})
    row("index-select", [x, T([1], "u32")], lambda x, i: x.index_select(0, i), {"axis": 0})
    refused("index-select", [x, T([0, 2], "u32")], {"axis": 0}, "argument", "index out of range")
    refused("index-select", [x, columns], {"axis": 0}, "shape", "one axis")
    refused("index-select", [x, T([0, 1], "s64")], {"axis": 0}, "dtype")
    source = T([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    row("index-add", [x, pick, source], lambda x, i, s: x.index_add(1, i, s), {"axis": 1})
    refused("index-add", [x, T([0, 1, 2, 3], "u32"), source], {"axis": 1}, "argument", "index out of range")
    refused("index-add", [x, T([0, 1], "u32"), source], {"axis": 1}, "shape", "two places for four entries")
    refused("index-add", [x, pick, T([[1.0, 2.0, 3.0, 4.0]])], {"axis": 1}, "shape")
    refused("index-add", [x, pick, T([[1.0] * 4] * 2, "f32")], {"axis": 1}, "dtype")
    segments = T([2, 0, 2, 0, 2], "u32")
    for values in (T([1.0, 2.0, 3.0, 4.0, 5.0]), T([[1.0, -1.0]] * 5)):
        row("segment-sum", [values, segments],
            lambda x, s: torch.zeros(4, *x.shape[1:]).double().index_add(0, s, x), {"count": 4})
    refused("segment-sum", [T([1.0] * 5), segments], {"count": 2}, "argument", "segment 2 of 2")
    refused("segment-sum", [T([1.0] * 5), segments], {"count": 0}, "argument")
    refused("segment-sum", [T([1.0] * 4), segments], {"count": 4}, "shape")
    refused("segment-sum", [T(1.0), segments], {"count": 4}, "shape")
    refused("segment-sum", [T([[1.0] * 4096] * 5), segments], {"count": 4294967295}, "shape", "too many elements")


def shapes():
    x = CUBE
    row("slice", [x], lambda x: x[:, 1:3], {"axis": 1, "start": 1, "length": 2})
    row("slice", [x], lambda x: x[..., :1], {"axis": -1, "start": 0, "length": 1})
    refused("slice", [x], {"axis": 1, "start": 2, "length": 2}, "argument")
    refused("slice", [x], {"axis": 1, "start": 0, "length": 0}, "argument")
    refused("slice", [x], {"axis": 1, "start": 4294967295, "length": 4294967295}, "argument")
    row("chunk", [x], lambda x: x.chunk(2, 0), {"axis": 0, "count": 2})
    row("chunk", [x], lambda x: x.chunk(3, 1), {"axis": -2, "count": 3})
    refused("chunk", [x], {"axis": 1, "count": 2}, "shape", "3 is not twice anything")
    refused("chunk", [x], {"axis": 1, "count": 0}, "argument")
    refused("chunk", [x], {"axis": 1, "count": 4294967295}, "argument")
    row("reshape", [x], lambda x: x.reshape(4, 3), {"shape": [4, 3]})
    row("reshape", [T([7.5])], lambda x: x.reshape(()), {"shape": []})
    four = T([1.0, 2.0, 3.0, 4.0])
    refused("reshape", [four], {"shape": [4, 2147418113, 2147549185]}, "shape", "the product is 2^64 + 4")
    refused("reshape", [four], {"shape": [0]}, "shape")
    refused("reshape", [four], {"shape": [5]}, "shape")
    refused("reshape", [four], {"shape": [1, 1, 1, 1, 1, 1, 1, 1, 4]}, "shape", "nine axes")
    row("transpose", [x], lambda x: x.transpose(0, 2), {"first": 0, "second": -1})
    refused("transpose", [x], {"first": 0, "second": 3}, "argument")
    row("unsqueeze", [x], lambda x: x.unsqueeze(1), {"axis": 1})
    row("unsqueeze", [x], lambda x: x.unsqueeze(-1), {"axis": -1})
    refused("unsqueeze", [x], {"axis": 4}, "argument")
    refused("unsqueeze", [T([[[[[[[[1.0]]]]]]]])], {"axis": 0}, "shape", "nine axes")
    row("squeeze", [T([[1.0, 2.0]])], lambda x: x.squeeze(0), {"axis": 0})
    refused("squeeze", [x], {"axis": 0}, "shape")
    refused("squeeze", [x], {"axis": 9}, "argument")
    row("expand", [B], lambda x: x.expand(2, 4, 3), {"shape": [2, 4, 3]})
    refused("expand", [B], {"shape": [2, 4]}, "shape")
    refused("expand", [B], {"shape": [3]}, "shape")
    refused("expand", [B], {"shape": [65536, 65536, 3]}, "shape")
    for shift in (1, -1, 2147483647, -2147483648, 0):
        row("roll", [x], lambda x: x.roll(shift, 1), {"axis": 1, "shift": shift})
    refused("roll", [x], {"axis": 3, "shift": 1}, "argument")
    for axis in (0, 1, -1):
        row("flip", [x], lambda x: x.flip(axis), {"axis": axis})
    refused("flip", [x], {"axis": -4}, "argument")


def two():
    arithmetic = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
                  "minimum": torch.minimum, "maximum": torch.maximum}
    for op, function in arithmetic.items():
        for other in (B, COLUMN, T(2.5), A if op not in ("minimum", "maximum") else T([[0.0] * 3] * 2)):
            row(op, [A, other], function)
        row(op, [T([1.5, -2.0], "bf16"), T([0.3, 0.7], "bf16")], function, gradients=None)
        refused(op, [A, T([[1.0, 2.0]])], {}, "shape")
        refused(op, [A, T([1.0], "f32")], {}, "dtype")
        refused(op, [T([1, 2], "u32"), T([1, 2], "u32")], {}, "dtype", "integers could overflow")
    for op, function in (("minimum", torch.minimum), ("maximum", torch.maximum)):
        row(op, [T([1.0, 2.0]), T([1.0, 5.0])], function, differences=False, note="equal ones share the gradient")
        row(op, [T([NAN, 2.0]), T([1.0, NAN])], function, gradients=None)
    row("divide", [T([1.0]), T([0.0])], torch.div, gradients=None)
    row("divide", [T([1e-25], "f32"), T([1e-25], "f32")], torch.div, note="the square of the divisor is 0 in f32",
        differences=False)
    relations = {"equal": torch.eq, "not-equal": torch.ne, "less": torch.lt, "less-equal": torch.le,
                 "greater": torch.gt, "greater-equal": torch.ge}
    for op, function in relations.items():
        truth = lambda a, b: function(a, b).to(torch.uint8)
        row(op, [T([1.0, 2.0, NAN, 3.0]), T([1.0, 3.0, NAN, 2.0])], truth, gradients=[None, None], dtype="u8")
        row(op, [T([[1], [2]], "u32"), T([1, 2, 3], "u32")], truth, gradients=None, dtype="u8")
        refused(op, [A, T([1.0], "f32")], {}, "dtype")
        refused(op, [A, T([1.0, 2.0])], {}, "shape")
    left, right = T([0, 0, 1, 9], "u8"), T([0, 1, 0, 2], "u8")
    row("logical-and", [left, right], lambda a, b: ((a != 0) & (b != 0)).to(torch.uint8), gradients=None)
    row("logical-or", [left, right], lambda a, b: ((a != 0) | (b != 0)).to(torch.uint8), gradients=None)
    for op in ("logical-and", "logical-or"):
        refused(op, [A, A], {}, "dtype")
        refused(op, [left, T([1, 1], "u8")], {}, "shape")
    condition = T([[1, 0, 2], [0, 0, 1]], "u8")
    row("where", [condition, A, B], lambda c, a, b: torch.where(c != 0, a, b), dtype="f64")
    row("where", [T([[1], [0]], "u8"), T(1.0), T([1.5, 2.5])], lambda c, a, b: torch.where(c != 0, a, b), dtype="f64")
    row("where", [T([0, 1], "u8"), T([NAN, 1.0]), T([2.0, NAN])], lambda c, a, b: torch.where(c != 0, a, b),
        gradients=[None, [0, 0.25], [-0.75, 0]], dtype="f64", note="by hand: a value not taken has gradient 0")
    refused("where", [A, A, B], {}, "dtype")
    refused("where", [condition, A, T([1.0], "f32")], {}, "dtype")
    refused("where", [condition, A, T([1.0, 2.0])], {}, "shape")


def products():
    a, b = T([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]]), T([[2.0, 1.0], [0.5, -3.0], [4.0, 0.75]])
    batch = T([[[1.0, 2.0, 3.0]], [[-1.0, 0.5, 2.0]]])
    row("matmul", [a, b], torch.matmul)
    row("matmul", [batch, b], torch.matmul, note="the matrix is broadcast over the batch")
    row("matmul", [CUBE, T([[[1.0, 0.5, -1.0], [2.0, 0.0, 3.0]]])], torch.matmul)
    row("matmul", [T([[1.5, -0.25]], "bf16"), T([[0.3], [7.0]], "bf16")], torch.matmul, gradients=None)
    refused("matmul", [a, a], {}, "shape", "the inner axes differ")
    refused("matmul", [a, T([1.0, 2.0, 3.0])], {}, "shape")
    refused("matmul", [a, T([[1.0], [1.0], [1.0]], "f32")], {}, "dtype")
    refused("matmul", [T([[1.0]] * 65536, "f32"), T([[1.0] * 65536], "f32")], {}, "shape", "2^32 elements")
    u, v = T([1.0, -2.0, 0.5]), T([3.0, 0.25])
    row("outer", [u, v], torch.outer)
    row("dot", [u, T([0.7, 0.1, -4.0])], torch.dot)
    for op in ("outer", "dot"):
        refused(op, [a, v], {}, "shape")
        refused(op, [u, T([1, 2, 3], "u32")], {}, "dtype")
    refused("dot", [u, v], {}, "shape")
    row("concat", [A, B, A], lambda *t: torch.cat(t, 0), {"axis": 0})
    row("concat", [A, COLUMN], lambda *t: torch.cat(t, 1), {"axis": -1})
    row("stack", [A, T([[1.0] * 3] * 2)], lambda *t: torch.stack(t, 1), {"axis": 1})
    row("stack", [u, u], lambda *t: torch.stack(t, -1), {"axis": -1})
    for op in ("concat", "stack"):
        refused(op, [], {"axis": 0}, "argument", "nothing to put together")
        refused(op, [A, T([[1.0] * 3], "f32")], {"axis": 0}, "dtype")
        refused(op, [A, T([1.0, 2.0])], {"axis": 0}, "shape")
        refused(op, [A, A], {"axis": 3}, "argument")
        refused(op, [T(1.0) if op == "stack" else T([1.0])] * 1025, {"axis": 0}, "argument", "1,025 tensors")


def new():
    for op, value in (("zeros", 0), ("ones", 1)):
        for dtype in ("u8", "u32", "s64", "f16", "bf16", "f32", "f64"):
            row(op, [], lambda: torch.full((2, 3), value, dtype=TYPES[dtype]), {"shape": [2, 3], "dtype": dtype},
                gradients=None, dtype=dtype)
        refused(op, [], {"shape": [4, 2147418113, 2147549185], "dtype": "f32"}, "shape")
        refused(op, [], {"shape": [2147483647, 2], "dtype": "u8"}, "shape")
        refused(op, [], {"shape": [1] * 9, "dtype": "u8"}, "shape")
        refused(op, [], {"shape": [3, 0], "dtype": "f32"}, "shape")
        refused(op, [], {"shape": [2147483647], "dtype": "f32"}, "memory", "8 GiB of 64 MiB")
    row("full", [], lambda: torch.full((2, 2), -2.5), {"shape": [2, 2], "value": -2.5}, gradients=None, dtype="f32")
    row("full", [], lambda: torch.tensor(3.0), {"shape": [], "value": 3.0}, gradients=None, dtype="f32")
    refused("full", [], {"shape": [1], "value": "nan"}, "argument")
    refused("full", [], {"shape": [2147483647], "value": 1.0}, "memory")
    row("arange", [], lambda: torch.tensor([1.5, 1.25, 1.0, 0.75]), {"start": 1.5, "step": -0.25, "count": 4},
        gradients=None, dtype="f32")
    row("arange", [], lambda: torch.full((3,), 16777216.0), {"start": 16777216.0, "step": 0.25, "count": 3},
        gradients=None, dtype="f32", note="a step below one unit in the last place still ends")
    refused("arange", [], {"start": 16777216.0, "step": 1e-30, "count": 4294967295}, "shape", "it would not end")
    refused("arange", [], {"start": 0.0, "step": 1.0, "count": 0}, "shape")
    refused("arange", [], {"start": 0.0, "step": "inf", "count": 3}, "argument")
    refused("arange", [], {"start": 3e38, "step": 3e38, "count": 3}, "argument", "the last number is infinite")
    refused("arange", [], {"start": 0.0, "step": 1.0, "count": 2000000000}, "memory")
    row("from-list", [], lambda: torch.tensor([[1.0, NAN], [-INF, 4.0]]),
        {"values": [1.0, "nan", "-inf", 4.0], "shape": [2, 2]}, gradients=None, dtype="f32")
    row("from-indices", [], lambda: torch.tensor([3, 4294967295]), {"values": [3, 4294967295], "shape": [2]},
        gradients=None, dtype="u32")
    for op in ("from-list", "from-indices"):
        refused(op, [], {"values": [1, 2, 3], "shape": [2]}, "shape")
        refused(op, [], {"values": [1, 2, 3, 4], "shape": [4, 2147418113, 2147549185]}, "shape")
        refused(op, [], {"values": [], "shape": [0]}, "shape")
    for op in ("randn", "rand"):
        refused(op, [], {"shape": [65536, 65536]}, "shape")
        refused(op, [], {"shape": [2000000000]}, "memory")
    refused("randperm", [], {"count": 0}, "shape")
    refused("randperm", [], {"count": 4294967295}, "shape")
    refused("randperm", [], {"count": 2000000000}, "memory")


def handles():
    row("shape", [CUBE], lambda x: torch.tensor([2, 3, 2]), gradients=None, dtype="u32")
    row("dtype", [T([1.5], "bf16")], lambda x: x, gradients=None)
    row("item", [T([[2.5]])], lambda x: torch.tensor(2.5), gradients=None, dtype="f32")
    refused("item", [CUBE], {}, "shape")
    row("copy-to-list", [T([[1, 2], [3, 4]], "u32")], lambda x: x.flatten().float(), gradients=None, dtype="f32")
    row("copy-to-list", [T([0.1, NAN, INF])], lambda x: x.float(), gradients=None, dtype="f32")
    row("copy-to-indices", [T([[1, 4294967295], [3, 4]], "u32")], torch.flatten, gradients=None)
    row("copy-to-indices", [T([0, 255], "u8")], lambda x: x, gradients=None, dtype="u32")
    refused("copy-to-indices", [T([1.0, 2.0])], {}, "dtype")
    refused("copy-to-indices", [T([1], "s64")], {}, "dtype")


for section in (handles, elementwise, scalars, reductions, masks, scans, order, places, shapes, two, products, new):
    section()
path = pathlib.Path(__file__).with_name("ops.jsonl")
path.write_text("".join(json.dumps(entry, allow_nan=False) + "\n" for entry in ROWS))
print(len(ROWS), "rows")
