"""Losses of the policy-gradient methods in f64, with their gradients: writes methods/grpo.jsonl beside this file.

Plain Python 3, no packages: the gradient is a central difference of the loss in double precision, the
stop-gradients held fixed. The numbers under PUBLISHED are those that were checked against TRL 1.16.0;
the script stops where a formula leaves them.
"""
import json, math, os

HERE = os.path.dirname(os.path.abspath(__file__))
L = [[-1, -.5, -2], [-.7, -1.5, -.3], [-2.2, -.9, -1.1], [-.4, -1.8, -.6]]
OLD = [[-1.3, -.4, -2.1], [-.7, -1.1, -.3], [-1.9, -1.2, -1.1], [-.4, -1.8, -1]]
REF = [[-1.1, -.6, -1.7], [-.9, -1.4, -.3], [-2, -1, -1.4], [-.6, -1.6, -.6]]
LENGTHS = [3, 2, 3, 1]
REWARDS = [1, 0, .5, 2]
# A group whose rewards are alike: three tokens more in the window, and nothing to learn.
# Entropies of the next-token distributions, and which completions ended by themselves, for the rows that use them.
ENTROPY = [[.9, .1, 1.4], [.35, 1.1, 0], [.2, .6, 2.0], [1.7, 0, 0]]
WHOLE = [True, True, False, True]
MORE = {"logprob": [[-1, -.5, 0], [-.7, 0, 0]], "lengths": [2, 1], "rewards": [1, 1]}


def advantages(rewards, scale="group"):
    deviation = lambda r: math.sqrt(sum((x - sum(r) / len(r)) ** 2 for x in r) / (len(r) - 1))
    out = []
    for start in range(0, len(rewards), 2):
        group = rewards[start:start + 2]
        mean = sum(group) / 2
        divisor = {"group": deviation(group) + 1e-4, "batch": deviation(rewards) + 1e-4, "none": 1}[scale]
        out += [(r - mean) / divisor for r in group]
    return out


def loss(l, s, frozen, old=OLD, ref=REF, lengths=LENGTHS, rewards=REWARDS):
    """The loss at l; `frozen` is l where gradients are stopped."""
    A = advantages(rewards, s.get("scale-rewards", "group"))
    eps, high = s.get("epsilon", .2), s.get("epsilon-high", .28)
    kind, beta = s.get("loss", "dapo"), s.get("beta", 0)
    rows, tokens, total = len(l), sum(lengths), 0.0
    for r, n in enumerate(lengths):
        d = [l[r][t] - old[r][t] for t in range(n)]
        fixed = [frozen[r][t] - old[r][t] for t in range(n)]
        if s.get("importance") == "sequence":
            d, fixed = [sum(d) / n] * n, [sum(fixed) / n] * n
        row = 0.0
        for t in range(n):
            w, a = math.exp(d[t]), A[r]
            if kind == "cispo":
                cost = -min(math.exp(fixed[t]), high) * a * l[r][t]
            elif kind == "sapo":
                tau = 1.0 if a > 0 else 1.05
                cost = -(4 / tau) / (1 + math.exp(-tau * (w - 1))) * a
            elif kind == "vespo":
                k, lam = (2, 3) if a >= 0 else (3, 2)
                whole = min(max(sum(frozen[r][u] - old[r][u] for u in range(n)), math.log(1e-8)), 20)
                cost = -math.exp(lam + k * whole - lam * math.exp(whole)) * a * l[r][t]
            else:
                capped = min(w, s["delta"]) if "delta" in s else w
                cost = -min(capped * a, min(max(w, 1 - eps), 1 + high) * a)
            if beta:
                x = ref[r][t] - l[r][t]
                k3 = math.exp(x) - x - 1
                cost += beta * k3 * (w if s.get("kl-bias-correction", True) else 1)
            row += cost * counts(s, r, t)
        if kind in ("grpo", "sapo"):
            total += row / n / rows
        elif kind == "dr-grpo":
            total += row / (rows * s["max-tokens"])
        elif kind == "luspo":
            total += row / rows
        else:
            total += row / tokens
    return total


def counts(s, r, t):
    """1 for the tokens with the highest entropy, 0 for the others."""
    if "top-entropy" not in s:
        return 1
    sorted_ones = sorted(e for row, n in zip(ENTROPY, LENGTHS) for e in row[:n])
    place = (1 - s["top-entropy"]) * (len(sorted_ones) - 1)
    low = int(place)
    least = sorted_ones[low] + (place - low) * (sorted_ones[min(low + 1, len(sorted_ones) - 1)] - sorted_ones[low])
    return 1 if ENTROPY[r][t] >= least else 0


def gradient(s, l=L, **more):
    out, h = [], 1e-6
    for r in range(len(l)):
        row = []
        for t in range(3):
            def at(x):
                moved = [list(values) for values in l]
                moved[r][t] += x
                return loss(moved, s, l, **more)
            row.append((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h))
        out.append(row)
    return out


CASES = [
    ({"loss": "grpo"}, -.0259319761), ({"loss": "bnpo"}, .0518433791), ({"loss": "dapo"}, .0518433791),
    ({"loss": "dr-grpo", "max-tokens": 4}, .0291619008),
    ({"loss": "grpo", "beta": .04}, -.0252029739), ({"loss": "grpo", "beta": .04, "kl-bias-correction": False}, -.0252031868),
    ({"loss": "dapo", "importance": "sequence"}, .0252985118), ({"loss": "grpo", "importance": "sequence"}, -.0506287858),
    ({"loss": "grpo", "importance": "sequence", "epsilon": 3e-4, "epsilon-high": 4e-4}, -.000123726189),
    ({"loss": "cispo", "epsilon-high": 5.0}, -.0972292093), ({"loss": "cispo", "epsilon-high": 1.2}, -.0984059454),
    ({"loss": "sapo"}, -.0783017001), ({"loss": "vespo"}, -.223788144),
    ({"loss": "luspo", "importance": "sequence"}, .0569216516), ({"loss": "dapo", "delta": 1.3}, .0479264706),
    # TRL has no loss without a clip; a cap that nothing reaches has its gradient, and another value.
    ({"loss": "cispo", "epsilon-high": 1000.0}, None),
    ({"loss": "dapo", "scale-rewards": "batch"}, None), ({"loss": "dapo", "scale-rewards": "none"}, None),
]
# The gradients that were published, where they are not what a formula above gives by being differentiated.
PUBLISHED = {
    "grpo": [0, -.0533105169, -.0651136124, .0883758494, 0, 0, 0, .0795336945, .0589200101, -.17676003, 0, 0],
    "cispo": [-.106039928, -.0710806892, -.0868181499, .0785563106, .0526578697, 0, .0581986894, .106044926, .0785600134, -.0785600134, 0, 0],
    "vespo": [-.0501109365] * 3 + [.0457492596] * 2 + [0] + [.0785600134] * 3 + [-.0785600134, 0, 0],
}


def near(found, wanted, what):
    assert abs(found - wanted) <= 2e-9 + 2e-8 * abs(wanted), (what, found, wanted)


def main():
    lines = []
    for settings, published in CASES:
        full = {"epsilon-high": .28, **settings}
        value, slope = loss(L, full, L), gradient(full)
        if published is not None:
            near(value, published, settings)
        if settings == {"loss": "grpo"} or settings.get("epsilon-high") == 5.0 or settings["loss"] == "vespo":
            for found, wanted in zip(sum(slope, []), PUBLISHED[settings["loss"]]):
                near(found, wanted, settings)
        lines.append({"settings": full, "logprob": L, "old": OLD, "reference": REF, "lengths": LENGTHS, "rewards": REWARDS,
                      "loss": value, "gradient": slope, "metrics": {}})
    clip = {"clip-ratio-low-mean": 2 / 9, "clip-ratio-high-mean": 1 / 9, "clip-ratio-region-mean": 1 / 3,
            "clip-ratio-low-min": 0, "clip-ratio-high-max": 1 / 3, "reward": .875, "frac-reward-zero-std": 0}
    lines[2]["metrics"] = clip
    l, lengths, rewards = L + MORE["logprob"], LENGTHS + MORE["lengths"], REWARDS + MORE["rewards"]
    old, ref = OLD + MORE["logprob"], REF + MORE["logprob"]
    more = {"old": old, "ref": ref, "lengths": lengths, "rewards": rewards}
    wide = {"loss": "dapo", "epsilon-high": .28}
    value = loss(l, wide, l, **more)
    near(value, .0388825344, "N = 12")
    lines.append({"settings": wide, "logprob": l, "old": old, "reference": ref, "lengths": lengths, "rewards": rewards,
                  "loss": value, "gradient": gradient(wide, l, **more), "metrics": {"frac-reward-zero-std": 1 / 3}})
    skipped = {**wide, "skip-even-groups": True}
    lines.append({**lines[2], "settings": skipped, "logprob": l, "old": old, "reference": ref, "lengths": lengths, "rewards": rewards,
                  "gradient": lines[2]["gradient"] + [[0] * 3] * 2, "metrics": {}})
    cut = {**wide, "mask-truncated": True}
    whole = {"lengths": [n if ended else 0 for n, ended in zip(LENGTHS, WHOLE)]}
    lines.append({**lines[2], "settings": cut, "finished": WHOLE, "loss": loss(L, wide, L, **whole),
                  "gradient": gradient(wide, **whole), "metrics": {"completions-clipped-ratio": .25}})
    unsure = {**wide, "top-entropy": .4}
    lines.append({**lines[2], "settings": unsure, "entropy": ENTROPY, "loss": loss(L, unsure, L), "gradient": gradient(unsure), "metrics": {}})
    bonus = {**wide, "entropy-coefficient": .01}
    mean = sum(sum(row[:n]) for row, n in zip(ENTROPY, LENGTHS)) / sum(LENGTHS)
    lines.append({**lines[2], "settings": bonus, "entropy": ENTROPY, "loss": loss(L, wide, L) - .01 * mean,
                  "metrics": {"entropy": mean, "policy-loss": loss(L, wide, L)}})
    with open(os.path.join(HERE, "methods", "grpo.jsonl"), "w") as out:
        for line in lines:
            out.write(json.dumps(line) + "\n")


main()
