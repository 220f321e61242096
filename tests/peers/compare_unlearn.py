"""Compares the example method RMU with the same losses on hidden states by transformers, PEFT and torch, step by step.

Usage: compare_unlearn.py TUNEBOX METHOD MODEL ADAPTER        METHOD is the built examples/20-unlearn, ADAPTER a LoRA adapter
A direction of length 1e-20 is 0 beside activations, so both sides pull the rejected texts of pairs.jsonl to 0 and hold the chosen
ones to the base model. Fails where a loss differs by more than 3e-4 of itself, or a gradient norm by more than 1e-3.
"""
import json, os, sys, tempfile
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
import shared

program, method, model_folder, adapter = [sys.argv[1]] + [os.path.abspath(path) for path in sys.argv[2:5]]
HERE = os.path.dirname(os.path.abspath(__file__))
LAYER, KEEP, STEPS, BATCH, RATE = 8, 3.0, 3, 4, 1e-3
pairs = [json.loads(line) for line in open(os.path.join(HERE, "pairs.jsonl"))][: STEPS * BATCH]
texts = {side: [pair["prompt"] + pair[name] for pair in pairs] for side, name in [("positive", "chosen"), ("negative", "rejected")]}

with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "data.jsonl")
    with open(data, "w") as file:
        for keep, forget in zip(texts["positive"], texts["negative"]):
            file.write(json.dumps({"positive": keep, "negative": forget}) + "\n")
    settings = [f"method.layer={LAYER}", "method.length=1e-20", f"method.keep={KEEP}", f"model.adapter={adapter}",
                "model.reference=base", "train.compute=f32", f"train.steps={STEPS}", f"train.batch={BATCH}",
                f"train.rate={RATE}", "train.schedule=constant", "train.warmup=0", "train.clip=0", f"method.use={method}"]
    rows = shared.train(program, model_folder, data, folder, "r", settings)
    rows = [row for row in rows if "redirected" in row]

tokenizer = AutoTokenizer.from_pretrained(model_folder)
base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
model = PeftModel.from_pretrained(base, adapter, is_trainable=True).eval()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)


def hidden(text):
    """What block LAYER gives for every token but the first, [tokens, width]."""
    ids = torch.tensor([tokenizer.encode(text)])
    return model(ids, output_hidden_states=True).hidden_states[LAYER + 1][0, 1:]


worst = {}
for step, row in enumerate(rows):
    batch = {side: own[step * BATCH : (step + 1) * BATCH] for side, own in texts.items()}
    forget = [hidden(text).square().mean(-1) for text in batch["negative"]]
    keep = []
    for text in batch["positive"]:
        with torch.no_grad(), model.disable_adapter():
            before = hidden(text)
        keep.append((hidden(text) - before).square().mean(-1))
    redirected, kept = torch.cat(forget).mean(), torch.cat(keep).mean()
    optimizer.zero_grad()
    (redirected + KEEP * kept).backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in trained if parameter.grad is not None])
    optimizer.step()
    for key, wanted in [("redirected", redirected), ("kept", kept), ("gradient-norm", norm)]:
        off = abs(row[key] - wanted.item()) / abs(wanted.item())
        worst[key] = max(worst.get(key, 0), off)
        print(f"step {step + 1}: {key} {row[key]:.6g}, by torch {wanted.item():.6g}, off by {off:.1e}", flush=True)
assert worst["redirected"] <= 3e-4 and worst["kept"] <= 3e-4 and worst["gradient-norm"] <= 1e-3, worst
