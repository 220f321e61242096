"""The parameters after each step of the optimizers, in f64: writes optimizers.jsonl beside this file.

Needs PyTorch (2.8 wrote the file), against whose `AdamW` and `SGD` in f64 the formulas of both are checked, to 1e-12. The formulas
are written from the papers and from the documentation of torch
(`torch.optim.AdamW`, `SGD`, `Muon`) and bitsandbytes (`create_dynamic_map`, blocks of 256): Lion is arXiv:2302.06675,
Muon is kellerjordan.github.io/posts/muon, the moments of 8 bits are arXiv:2110.02861, LoRA+ is arXiv:2402.12354.
Values and gradients come from a congruential generator that the test has too.
"""
import json, math, os

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = [["a.lora_A.weight", [2, 3]], ["a.lora_B.weight", [3, 2]], ["norm.weight", [5]]]
MATRICES = [["wide.weight", [3, 7]], ["tall.lora_B.weight", [6, 2]], ["square.weight", [4, 4]],
            ["model.embed_tokens.weight", [3, 2]], ["norm.weight", [5]]]
BLOCKS = [["large.weight", [64, 66]], ["small.weight", [10]]]
STEPS = 4


def numbers(seed, count):
    """Numbers in [-1, 1) of 20 bits; those at odd places are divided by powers of two."""
    out = []
    for at in range(count):
        seed = (1664525 * seed + 1013904223) % 2**32
        out.append(((seed >> 12) / 2**19 - 1) / 2 ** (at % 2 * (at % 7)))
    return out


def adamw(s, state, w, g, rate, step):
    m, v = state.setdefault("m", [0.0] * len(w)), state.setdefault("v", [0.0] * len(w))
    beta1, beta2 = s.get("beta1", .9), s.get("beta2", .999)
    for i in range(len(w)):
        m[i] = beta1 * m[i] + (1 - beta1) * g[i]
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] ** 2
        mean, square = m[i] / (1 - beta1**step), v[i] / (1 - beta2**step)
        w[i] -= rate * s["weight-decay"] * w[i] + rate * mean / (math.sqrt(square) + s.get("epsilon", 1e-8))


def lion(s, state, w, g, rate, step):
    m = state.setdefault("m", [0.0] * len(w))
    beta1, beta2 = s.get("beta1", .9), s.get("beta2", .99)
    for i in range(len(w)):
        c = beta1 * m[i] + (1 - beta1) * g[i]
        w[i] -= rate * ((c > 0) - (c < 0) + s["weight-decay"] * w[i])
        m[i] = beta2 * m[i] + (1 - beta2) * g[i]


def sgd(s, state, w, g, rate, step):
    momentum = s.get("momentum", 0)
    for i in range(len(w)):
        d = g[i] + s["weight-decay"] * w[i]
        if momentum:
            m = state.setdefault("m", [0.0] * len(w))
            m[i] = momentum * m[i] + d
            d = d + momentum * m[i] if s.get("nesterov") else m[i]
        w[i] -= rate * d


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def muon(s, state, w, g, rate, step, shape):
    m = state.setdefault("m", [0.0] * len(w))
    mu = s.get("momentum", .95)
    for i in range(len(w)):
        m[i] += (1 - mu) * (g[i] - m[i])
    d = [x + mu * (y - x) for x, y in zip(g, m)] if s.get("nesterov", True) else list(m)
    rows, columns = shape
    x = [d[row * columns:(row + 1) * columns] for row in range(rows)]
    x = transposed(x) if rows > columns else x
    norm = max(math.sqrt(sum(y * y for y in d)), 1e-7)
    x = [[y / norm for y in row] for row in x]
    for _ in range(5):
        gram = product(x, transposed(x))
        square = product(gram, gram)
        both = [[-4.7750 * p + 2.0315 * q for p, q in zip(*rows)] for rows in zip(gram, square)]
        x = [[3.4445 * p + q for p, q in zip(*rows)] for rows in zip(x, product(both, x))]
    x = transposed(x) if rows > columns else x
    for i, o in enumerate(y for row in x for y in row):
        w[i] -= rate * s["weight-decay"] * w[i] + rate * math.sqrt(max(1, rows / columns)) * o


def dynamic(signed):
    """bitsandbytes' map: means of the boundaries that divide 0.1 ... 1 of each power of ten."""
    values = [0.0, 1.0]
    for exponent in range(7):
        count = 2 ** (exponent + (0 if signed else 1))
        for i in range(count):
            value = 10.0 ** (exponent - 6) * (0.1 + 0.9 * (i + 0.5) / count)
            values += [value, -value] if signed else [value]
    assert len(values) == 256
    return sorted(values)


def rounded(numbers, values, watched):
    """The numbers in 8 bits. Stops if one at a watched place is so near to two values that f32 might take the other."""
    for start in range(0, len(numbers), 256):
        block = range(start, min(start + 256, len(numbers)))
        scale = max(abs(numbers[i]) for i in block)
        for i in block:
            near = sorted(values, key=lambda value: abs(value - numbers[i] / scale))
            gap = abs(near[1] - numbers[i] / scale) - abs(near[0] - numbers[i] / scale)
            assert i not in watched or gap > 1e-5 * abs(near[0]), "choose another seed"
            numbers[i] = near[0] * scale


def run(s):
    slots, ratio = s["slots"], s["b-rate-ratio"]
    count = sum(math.prod(shape) for _, shape in slots)
    values, states, out = numbers(1, count), [{} for _ in slots], []
    for step in range(1, STEPS + 1):
        gradients, at = numbers(1 + step, count), 0
        rate = s["rate"] / step
        for (name, shape), state in zip(slots, states):
            size = math.prod(shape)
            w, g = values[at:at + size], gradients[at:at + size]
            own = rate * (ratio if name.endswith("lora_B.weight") else 1)
            if s["optimizer"] == "muon" and len(shape) == 2 and "embed_tokens" not in name:
                muon(s, state, w, g, own, step, shape)
            else:
                {"adamw": adamw, "adamw-8bit": adamw, "muon": adamw, "lion": lion, "sgd": sgd}[s["optimizer"]](
                    s, state, w, g, own, step)
            if s["optimizer"] == "adamw-8bit" and size >= 4096:
                watched = {place - at for place in s["places"]}
                rounded(state["m"], dynamic(True), watched)
                rounded(state["v"], dynamic(False), watched)
            values[at:at + size] = w
            at += size
        out.append([values[place] for place in s.get("places", range(count))])
    return out


def check_beside_torch(s, values):
    """Stops if the values after each step of AdamW or SGD are not those of PyTorch."""
    sizes = [math.prod(shape) for _, shape in s["slots"]]
    wide = lambda seed: torch.tensor(numbers(seed, sum(sizes)), dtype=torch.float64)
    parameters = [torch.nn.Parameter(part.clone()) for part in wide(1).split(sizes)]
    ratio = lambda name: s["b-rate-ratio"] if name.endswith("lora_B.weight") else 1
    groups = [{"params": [parameter], "ratio": ratio(name)} for parameter, (name, _) in zip(parameters, s["slots"])]
    common = {"lr": s["rate"], "weight_decay": s["weight-decay"]}
    if s["optimizer"] == "adamw":
        betas = s.get("beta1", .9), s.get("beta2", .999)
        optimizer = torch.optim.AdamW(groups, betas=betas, eps=s.get("epsilon", 1e-8), **common)
    else:
        optimizer = torch.optim.SGD(groups, momentum=s.get("momentum", 0), nesterov=s.get("nesterov", False), **common)
    for step, found in enumerate(values, 1):
        for parameter, gradient in zip(parameters, wide(1 + step).split(sizes)):
            parameter.grad = gradient.clone()
        for group in optimizer.param_groups:
            group["lr"] = s["rate"] / step * group["ratio"]
        optimizer.step()
        wanted = torch.cat([parameter.detach() for parameter in parameters])
        assert torch.allclose(torch.tensor(found, dtype=torch.float64), wanted, rtol=0, atol=1e-12), s


CASES = [
    {"optimizer": "adamw", "slots": SMALL, "rate": .02},
    {"optimizer": "adamw", "slots": SMALL, "rate": .02, "beta1": .8, "beta2": .95, "epsilon": 1e-6, "b-rate-ratio": 16},
    {"optimizer": "lion", "slots": SMALL, "rate": .01},
    {"optimizer": "lion", "slots": SMALL, "rate": .01, "beta1": .95, "beta2": .98, "b-rate-ratio": 4},
    {"optimizer": "sgd", "slots": SMALL, "rate": .1},
    {"optimizer": "sgd", "slots": SMALL, "rate": .1, "momentum": .9, "b-rate-ratio": .5},
    {"optimizer": "sgd", "slots": SMALL, "rate": .1, "momentum": .8, "nesterov": True},
    {"optimizer": "muon", "slots": MATRICES, "rate": .02},
    {"optimizer": "muon", "slots": MATRICES, "rate": .02, "momentum": .9, "nesterov": False, "b-rate-ratio": 2},
    {"optimizer": "adamw-8bit", "slots": BLOCKS, "rate": .02, "places": list(range(0, 4234, 113))},
]
with open(os.path.join(HERE, "optimizers.jsonl"), "w") as file:
    for case in CASES:
        case = {"weight-decay": .1, "b-rate-ratio": 1, **case}
        values = run(case)
        if case["optimizer"] in ("adamw", "sgd"):
            check_beside_torch(case, values)
        short = [[float(f"{value:.10g}") for value in step] for step in values]
        file.write(json.dumps({**case, "values": short}) + "\n")
