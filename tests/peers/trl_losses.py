"""Puts the batches of golden/methods/{dpo,cpo,orpo,kto}.jsonl through the loss functions of TRL 1.16.0 itself, in f32.

Usage: trl_losses.py        Fails where a loss differs from the golden file by more than 1e-5 of itself.
`cdpo`, which TRL has not, is left out and counted. The model is a stub that returns given scores; the NLL of CPO and ORPO comes from the row.
"""
import contextlib, json, os
from collections import defaultdict
from types import SimpleNamespace
import torch
import trl.trainer.dpo_trainer as dpo_module
import trl.trainer.kto_trainer as kto_module
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/methods")
ACCELERATOR = SimpleNamespace(device=torch.device("cpu"), gather=lambda x: x, gather_for_metrics=lambda x: x, unwrap_model=lambda m: m)
for module in (dpo_module, kto_module):
    module.disable_gradient_checkpointing = lambda *_: contextlib.nullcontext()
    module.is_peft_model = lambda _: False


def scores(sides, which):
    """Per-token scores of all rows and the mask of their targets; one prompt token comes first."""
    lengths = [n for side in sides for n in side["lengths"]]
    mask = torch.tensor([[0] + [1] * n + [0] * (max(lengths) - n) for n in lengths])
    spread = lambda values: torch.tensor([[v] * max(lengths) for v in values]) * mask[:, 1:]
    logps = spread([v / n for side in sides for v, n in zip(side[which], side["lengths"])])
    squares = spread([v for side in sides for v in side.get("log-sum-square", side["policy"])])
    ones = torch.ones_like(logps)
    return mask, SimpleNamespace(log_probs=logps, log_sum_sq_probs=squares, entropy=ones, mean_logits=ones, is_top1=ones.bool())


class Model:
    training = True

    def __init__(self, outputs): self.outputs = outputs
    def __call__(self, **_): return self.outputs


def trainer(cls, policy, reference, **own):
    made = cls.__new__(cls)
    made.__dict__.update(model=Model(policy), ref_model=Model(reference), accelerator=ACCELERATOR, aux_loss_enabled=False, precompute_ref_logps=False,
        _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0, _tp_size=1,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=own.pop("tau", 0.05)), **own)
    return made


def dpo(row):
    s = row["settings"]
    entries = [entry.split() for entry in s.get("loss", "sigmoid").split(",")]
    if any(entry[0] == "cdpo" for entry in entries): return None
    sides = [row["sides"]["chosen"], row["sides"]["rejected"]]
    (mask, policy), (_, reference) = scores(sides, "policy"), scores(sides, "reference")
    kinds = {"reverse-kl": "reverse_kl", "forward-kl": "forward_kl", "js": "js_divergence", "alpha": "alpha_divergence"}
    made = trainer(dpo_module.DPOTrainer, policy, reference, beta=s.get("beta", .1), label_smoothing=s.get("label-smoothing", 0.0),
        ld_alpha=s.get("ld-alpha"), f_divergence_type=kinds[s.get("f-divergence", "reverse-kl")], f_alpha_divergence_coef=s.get("f-alpha", .5),
        use_weighting=s.get("use-weighting", False), loss_types=[e[0].replace("-", "_") for e in entries],
        loss_weights=[float(e[1]) if len(e) > 1 else 1.0 for e in entries])
    inputs = {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask}
    return made._compute_loss(made.model, inputs, False).item()


def kto(row):
    s = row["settings"]
    sides = [row["sides"]["example"]]
    (mask, policy), (_, reference) = scores(sides, "policy"), scores(sides, "reference")
    made = trainer(kto_module.KTOTrainer, policy, reference, beta=s.get("beta", .1), calculate_KL=s.get("loss") != "apo-zero-unpaired",
        loss_type=s.get("loss", "kto").replace("-", "_"), desirable_weight=s.get("desirable-weight", 1.0), undesirable_weight=s.get("undesirable-weight", 1.0))
    other = row["sides"]["mismatched"]
    made._compute_kl_logps = lambda model, _: torch.tensor(other["policy" if model is made.model else "reference"])
    inputs = {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask, "label": torch.tensor(row["columns"]["label"]).bool()}
    return made._compute_loss(made.model, inputs, False).item()


def sums(row, means):
    side = lambda name: torch.tensor([v / (n if means else 1) for v, n in zip(row["sides"][name]["policy"], row["sides"][name]["lengths"])])
    return side("chosen"), side("rejected")


def cpo(row):
    s = row["settings"]
    loss = s["loss"]
    made = trainer(CPOTrainer, None, None, beta=s.get("beta", .1), label_smoothing=s.get("label-smoothing", 0.0), simpo_gamma=s.get("gamma", .5),
        alpha=s.get("alpha", .25) if loss == "alphapo" else 0.0, loss_type="simpo" if loss == "alphapo" else loss)
    weight = 0.0 if loss == "alphapo" else s.get("nll-weight", 1.0)
    return (made.cpo_loss(*sums(row, loss in ("ipo", "simpo", "alphapo")))[0].mean() + weight * row["metrics"]["nll-loss"]).item()


def orpo(row):
    made = trainer(ORPOTrainer, None, None, beta=row["settings"].get("beta", .1))
    return (row["metrics"]["nll-loss"] - made.odds_ratio_loss(*sums(row, True))[0].mean()).item()


worst, compared, left_out = 0.0, 0, 0
for method in (dpo, cpo, orpo, kto):
    for line in open(os.path.join(GOLDEN, method.__name__ + ".jsonl")):
        row = json.loads(line)
        found = method(row)
        if found is None:
            left_out += 1
            continue
        off = abs(found - row["loss"]) / abs(row["loss"])
        assert off <= 1e-5, (method.__name__, row["settings"], found, row["loss"])
        worst, compared = max(worst, off), compared + 1
print(json.dumps({"compared": compared, "left out": left_out, "worst": worst}))
