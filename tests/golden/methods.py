"""Losses of the preference methods in f64, with their gradients: writes methods/{dpo,orpo,cpo,kto}.jsonl beside this file.

Needs torch 2.15.0. Each line is one batch: for every side the target tokens of its rows and the log-probability of each row
under policy and reference (spread evenly over its tokens), the settings, and what must come out: the loss, the loss of
each record alone where records do not depend on each other, dL/d(log-probability) of every token, some metrics.
The numbers under PUBLISHED are those that were checked against TRL 1.16.0; the script stops where a formula leaves them.
"""
import json, math, os
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))
PAIRS = {
    "chosen": {"lengths": [5, 8], "policy": [-10.0, -20.5], "reference": [-11.0, -20.0], "log-sum-square": [-1.5, -2.0]},
    "rejected": {"lengths": [6, 7], "policy": [-12.0, -18.25], "reference": [-11.5, -19.0], "log-sum-square": [-1.25, -2.25]},
}
LABELED = {
    "example": {"lengths": [5, 6, 8, 7], "policy": [-10.0, -12.0, -20.5, -18.25], "reference": [-11.0, -11.5, -20.0, -19.0]},
    "mismatched": {"lengths": [6, 8, 7, 5], "policy": [-30.0, -28.0, -33.0, -25.0], "reference": [-30.5, -28.25, -32.5, -26.0]},
}
LABELS = [1.0, 0.0, 1.0, 0.0]
# name: per pair, mean, d/d log pi(chosen), d/d log pi(rejected)
PUBLISHED = {
    "sigmoid": ([.620957048, .757599035], .689278042, [-.0231285077, -.0265604687], [.0231285077, .0265604687]),
    "cdpo": ([.635957048, .745099035], .690528042, [-.0181285077, -.0215604687], [.0181285077, .0215604687]),
    "robust": ([.602207048, .773224035], .687715542, [-.0293785077, -.0328104687], [.0293785077, .0328104687]),
    "hinge": ([.85, 1.125], .9875, [-.05, -.05], [.05, .05]),
    "ipo": ([22.2469444, 26.7252073], 24.4860759, [-.943333333, -.646205357], [.786111111, .738520408]),
    "sigmoid-norm": ([.679080858, .701665296], .690373077, [-.0049291714, -.00315150606], [.00410764284, .00360172121]),
    "exo-pair": ([2.50551656, 2.97873551], 2.74212604, [-.0839861263, -.0875544795], [.0839861263, .0875544795]),
    "nca-pair": ([1.35082481, 1.41836454], 1.38459468, [-.0106265609, -.0134373047], [.0121875651, .0129685304]),
    "bco-pair": ([1.31285631, 1.44980979], 1.38133305, [-.0237510406, -.0256248698], [.0243751302, .0259370608]),
    "sppo-hard": ([36.25, 63.3125], 49.78125, [-4, -5.5], [4.5, 5.75]),
    "apo-zero": ([.962523416, 1.03123861], .996881014, [-.012468802, -.0124921908], [.0124921908, .0124824383]),
    "apo-down": ([.987549342, 1.01871198], 1.00313066, [3.88516758e-5, 4.08920034e-5], [.0124299503, .0124512988]),
    "aot": (None, .689278042, [-.0231285077, -.0265604687], [.0231285077, .0265604687]),
    "aot-unpaired": (None, .686936242, [-.0246875163, -.025], [.025, .0246875163]),
    "discopop": ([.849337579, .786087531], .817712555, [-.031260151, -.00251615889], [.031260151, .00251615889]),
    "cpo sigmoid": ([.598138869, .811962002], .705050436, [-.0225083001, -.0278006945], [.0225083001, .0278006945]),
    "cpo hinge": ([.8, 1.225], 1.0125, [-.05, -.05], [.05, .05]),
    "simpo": ([1.60041265, 1.51235483], 1.55638374, [-.199546694, -.121814003], [.166288912, .139216003]),
    "cpo ipo": ([25, 24.5555644], 24.7777822, [-1, -.619419643], [.833333333, .707908163]),
    "orpo odds": ([.0693147181, .0669296421], .0681221801, [-.00578258821, -.00330437659], [.00481882351, .00376270371]),
}
PUBLISHED_KTO = {
    "kto": ([.482819267, .637999227, .520301333, .679544555], .580166095, [-.00624262056, .00829879621, -.0062396964, .00830852361]),
    "apo-zero-unpaired": ([.475020813, .487502604, .512497396, .518741216], .49844050710,
                          [-.006234401, .00624609538, -.00624609538, .00624121917]),
}


class Row:
    """The answers of one side: per-token log-probabilities that gradients reach, and what follows from them."""

    def __init__(self, side, rows):
        self.lengths = [side["lengths"][i] for i in rows]
        spread = lambda name: [torch.full((n,), side[name][i] / n) for i, n in zip(rows, self.lengths)]
        self.tokens = [t.requires_grad_() for t in spread("policy")]
        self.reference_tokens = spread("reference")
        self.n = torch.tensor(self.lengths, dtype=torch.float64)
        self.squares = torch.tensor([side.get("log-sum-square", side["policy"])[i] for i in rows])

    def sums(self, tokens, cut=None, alpha=1.0):
        cut = cut or self.lengths
        return torch.stack([t[:c].sum() + alpha * t[c:].sum() for t, c in zip(tokens, cut)])


def smoothed(margin, epsilon):
    return -(1 - epsilon) * F.logsigmoid(margin) - epsilon * F.logsigmoid(-margin)


def bend(kind, alpha):
    return {
        "reverse-kl": lambda r: r,
        "forward-kl": lambda r: 1 - torch.exp(-r),
        "js": lambda r: math.log(2) + F.logsigmoid(r),
        "alpha": lambda r: (torch.exp((alpha - 1) * r) - 1) / (alpha - 1),
    }[kind]


def dpo(c, r, s):
    beta, e = s.get("beta", .1), s.get("label-smoothing", 0.0)
    cut = [min(a, b) for a, b in zip(c.lengths, r.lengths)]
    alpha = s.get("ld-alpha", 1.0)
    pc, pr = c.sums(c.tokens, cut, alpha), r.sums(r.tokens, cut, alpha)
    fc, fr = c.sums(c.reference_tokens, cut, alpha), r.sums(r.reference_tokens, cut, alpha)
    rc, rr = pc - fc, pr - fr
    f = bend(s.get("f-divergence", "reverse-kl"), s.get("f-alpha", .5))
    bc, br = f(rc), f(rr)
    u, norm = beta * (bc - br), bc / c.n - br / r.n
    q, k = torch.sigmoid(u), torch.sigmoid(u / s.get("discopop-tau", .05))
    order = lambda x: torch.sort(x)[0]
    weight = 1.0
    if s.get("use-weighting"):
        own = lambda side: torch.exp(side.sums(side.tokens).detach() / side.n - side.squares)
        weight = own(c) * own(r)
    def cost(name):
        if name == "exo-pair":
            return q * torch.log(q / (1 - e)) + (1 - q) * torch.log((1 - q) / e)
        return {
            "sigmoid": lambda: -F.logsigmoid(u), "cdpo": lambda: smoothed(u, e),
            "robust": lambda: (-(1 - e) * F.logsigmoid(u) + e * F.logsigmoid(-u)) / (1 - 2 * e),
            "hinge": lambda: torch.relu(1 - u), "ipo": lambda: (norm - 1 / (2 * beta)) ** 2,
            "sigmoid-norm": lambda: -F.logsigmoid(beta * norm),
            "nca-pair": lambda: -F.logsigmoid(beta * rc) - .5 * F.logsigmoid(-beta * rc) - .5 * F.logsigmoid(-beta * rr),
            "bco-pair": lambda: -F.logsigmoid(beta * rc) - F.logsigmoid(-beta * rr),
            "sppo-hard": lambda: (rc - 1 / (2 * beta)) ** 2 + (rr + 1 / (2 * beta)) ** 2,
            "aot": lambda: smoothed(beta * (order(pc - pr) - order(fc - fr)), e),
            "aot-unpaired": lambda: smoothed(beta * (order(rc) - order(rr)), e),
            "apo-zero": lambda: 1 - torch.sigmoid(beta * rc) + torch.sigmoid(beta * rr),
            "apo-down": lambda: torch.sigmoid(beta * rc) + 1 - torch.sigmoid(beta * (rc - rr)),
            "discopop": lambda: (1 - k) * -F.logsigmoid(u) + k * torch.exp(-u),
        }[name]()
    total = 0.0
    for entry in s.get("loss", "sigmoid").split(","):
        name, *given = entry.split()
        share = float(given[0]) if given else 1.0
        total = total + share * (-torch.cat(c.tokens).mean() if name == "sft" else (weight * cost(name)).mean())
    margins = (beta * (rc - rr)).mean()
    return total, {"rewards-chosen": (beta * rc).mean(), "rewards-rejected": (beta * rr).mean(), "rewards-margins": margins,
                   "rewards-accuracies": (rc > rr).double().mean(), "logps-chosen": pc.mean(), "logps-rejected": pr.mean()}


def cpo(c, r, s):
    beta, e, loss = s.get("beta", .1), s.get("label-smoothing", 0.0), s.get("loss", "sigmoid")
    means = loss in ("ipo", "simpo", "alphapo")
    lc, lr = (x.sums(x.tokens) / (x.n if means else 1) for x in (c, r))
    a = s.get("alpha", .25)
    if loss == "alphapo" and a:
        rc, rr = ((1 - torch.exp(x) ** (-a)) / a for x in (lc, lr))
    else:
        rc, rr = lc, lr
    d = rc - rr
    cost = {"sigmoid": lambda: smoothed(beta * d, e), "hinge": lambda: torch.relu(1 - beta * d),
            "ipo": lambda: (d - 1 / (2 * beta)) ** 2}.get(loss, lambda: smoothed(beta * d - s.get("gamma", .5), e))()
    nll = -torch.cat(c.tokens).mean()
    total = cost.mean() + (0 if loss == "alphapo" else s.get("nll-weight", 1.0)) * nll
    return total, {"nll-loss": nll, "rewards-chosen": (beta * rc).mean(), "rewards-margins": (beta * d).mean(), "logps-rejected": lr.mean()}


def orpo(c, r, s):
    beta = s.get("beta", .1)
    lc, lr = (x.sums(x.tokens) / x.n for x in (c, r))
    z = (lc - lr) - (torch.log(-torch.expm1(lc)) - torch.log(-torch.expm1(lr)))
    nll = -torch.cat(c.tokens).mean()
    ratio = F.logsigmoid(z)
    return nll - beta * ratio.mean(), {"nll-loss": nll, "log-odds-ratio": ratio.mean(), "log-odds-chosen": z.mean(),
                                       "rewards-rejected": (beta * lr).mean()}


def kto(x, m, s, labels, baseline=None):
    beta, good = s.get("beta", .1), torch.tensor(labels) == 1
    ratio = x.sums(x.tokens) - x.sums(x.reference_tokens)
    z = (m.sums(m.tokens) - m.sums(m.reference_tokens)).mean().clamp(min=0).detach()
    if s.get("loss") == "apo-zero-unpaired":
        z = torch.tensor(0.0)
    costs = torch.where(good, s.get("desirable-weight", 1.0) * (1 - torch.sigmoid(beta * (ratio - z))),
                        s.get("undesirable-weight", 1.0) * (1 - torch.sigmoid(beta * (z - ratio))))
    rewards = beta * ratio
    return costs, {"kl": z, "rewards-chosen": rewards[good].mean(), "rewards-rejected": rewards[~good].mean(),
                   "rewards-margins": rewards[good].mean() - rewards[~good].mean(), "logps-chosen": x.sums(x.tokens)[good].mean()}


def near(found, wanted, what):
    for a, b in zip(found, wanted, strict=True):
        assert abs(a - b) <= 1e-8 * max(1.0, abs(b)), (what, a, b)


def gradients(loss, sides):
    loss.backward()
    return {name: [([0.0] * n if t.grad is None else t.grad.tolist()) for t, n in zip(side.tokens, side.lengths)] for name, side in sides.items()}


def row(method, settings, formula, published=None, coupled=False, pairs=PAIRS):
    made = lambda rows: (Row(pairs["chosen"], rows), Row(pairs["rejected"], rows))
    c, r = made([0, 1])
    loss, metrics = formula(c, r, settings)
    found = gradients(loss, {"chosen": c, "rejected": r})
    each = None if coupled else [formula(*made([i]), settings)[0].item() for i in range(2)]
    if published:
        if published[0]: near(each, published[0], settings)
        near([loss.item()], [published[1]], settings)
        for side, wanted in zip(("chosen", "rejected"), published[2:]):
            near([g[0] for g in found[side]], wanted, settings)
    return {"method": method, "settings": settings, "sides": pairs, "columns": {}, "loss": loss.item(), "each": each, "gradients": found,
            "metrics": {k: v.item() for k, v in metrics.items()}}


def kto_row(settings, published=None):
    x, m = (Row(LABELED[side], range(4)) for side in ("example", "mismatched"))
    costs, metrics = kto(x, m, settings, LABELS)
    loss = costs.mean()
    found = gradients(loss, {"example": x})
    if published:
        near(costs.tolist(), published[0], settings); near([loss.item()], [published[1]], settings)
        near([g[0] for g in found["example"]], published[2], settings)
    return {"method": "kto", "settings": settings, "sides": LABELED, "columns": {"label": LABELS}, "loss": loss.item(), "each": None,
            "gradients": found, "metrics": {k: v.item() for k, v in metrics.items()}}


def write(name, rows):
    with open(os.path.join(HERE, "methods", name + ".jsonl"), "w") as out:
        for entry in rows: out.write(json.dumps(entry) + "\n")


plain = [("sigmoid", {}), ("cdpo", {"label-smoothing": .1}), ("robust", {"label-smoothing": .1}), ("hinge", {}), ("ipo", {}),
         ("sigmoid-norm", {}), ("exo-pair", {"label-smoothing": 1e-3}), ("nca-pair", {}), ("bco-pair", {}), ("sppo-hard", {}),
         ("apo-zero", {}), ("apo-down", {}), ("aot", {}), ("aot-unpaired", {}), ("discopop", {})]
rows = [row("dpo", {"loss": name, **more}, dpo, PUBLISHED[name], coupled=name.startswith("aot")) for name, more in plain]
bent = ["sigmoid", "hinge", "ipo", "robust", "discopop", "sigmoid-norm", "exo-pair"]
for kind in ["forward-kl", "js", "alpha"]:
    rows += [row("dpo", {"loss": n, "f-divergence": kind, **({"label-smoothing": .1} if n in ("robust", "exo-pair") else {})}, dpo) for n in bent]
rows += [row("dpo", {"loss": "sigmoid", "f-divergence": "alpha", "f-alpha": 1.0}, lambda c, r, s: dpo(c, r, {"loss": "sigmoid"}))]
rows += [row("dpo", {"loss": n, "ld-alpha": .5}, dpo) for n in ("sigmoid", "ipo", "nca-pair")]
rows += [row("dpo", {"loss": n, "use-weighting": True}, dpo) for n in ("sigmoid", "bco-pair")]
rows += [row("dpo", {"loss": "aot", "label-smoothing": .1}, dpo, coupled=True), row("dpo", {"loss": "sft"}, dpo),
         row("dpo", {"loss": "sigmoid 0.8, bco-pair 0.2, sft 1.0", "beta": .3}, dpo), row("dpo", {"loss": "sigmoid", "beta": 2.5}, dpo)]
write("dpo", rows)
write("cpo", [
    row("cpo", {"loss": "sigmoid", "nll-weight": 0.0}, cpo, PUBLISHED["cpo sigmoid"]),
    row("cpo", {"loss": "hinge", "nll-weight": 0.0}, cpo, PUBLISHED["cpo hinge"]),
    row("cpo", {"loss": "simpo", "beta": 2.5, "gamma": 1.375, "nll-weight": 0.0}, cpo, PUBLISHED["simpo"]),
    row("cpo", {"loss": "ipo", "nll-weight": 0.0}, cpo, PUBLISHED["cpo ipo"]),
    row("cpo", {"loss": "sigmoid"}, cpo), row("cpo", {"loss": "sigmoid", "label-smoothing": .1}, cpo),
    row("cpo", {"loss": "simpo", "nll-weight": 0.5, "label-smoothing": .2}, cpo),
    row("cpo", {"loss": "alphapo", "beta": 2.5, "alpha": .25}, cpo), row("cpo", {"loss": "alphapo", "alpha": 0.0}, cpo)])
odds = lambda c, r, s: ((lambda l, m: l - m["nll-loss"])(*orpo(c, r, s)), {})
row("orpo", {}, odds, PUBLISHED["orpo odds"])
write("orpo", [row("orpo", {"nll": "answer", "beta": b}, orpo) for b in (.1, .5)])
write("kto", [kto_row({"undesirable-weight": 1.33}, PUBLISHED_KTO["kto"]), kto_row({"loss": "apo-zero-unpaired"}, PUBLISHED_KTO["apo-zero-unpaired"]),
              kto_row({"beta": .5, "desirable-weight": 1.2})])
