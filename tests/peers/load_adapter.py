"""Loads an adapter that tunebox wrote into PEFT and compares log-probabilities.

Usage: load_adapter.py MODEL ADAPTER_DIR SCORES.json    SCORES.json: lines of `tunebox score --adapter … --json`
Fails on a missing or unexpected key, and where a log-probability differs by more than 1e-3.
"""
import json, os, sys
import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM
import shared

path, adapter, scores = sys.argv[1:4]
base = AutoModelForCausalLM.from_pretrained(**shared.source(path), dtype=torch.float32)
model = PeftModel.from_pretrained(base, adapter).eval()
wanted = {n.replace(".default", "") for n, _ in model.named_parameters() if "lora_" in n}
with safe_open(os.path.join(adapter, "adapter_model.safetensors"), "pt") as file:
    found = set(file.keys())
assert wanted == found, f"missing {sorted(wanted - found)[:3]}, unexpected {sorted(found - wanted)[:3]}"
worst, total, count = 0.0, 0.0, 0
for line in open(scores):
    row = json.loads(line)
    if "logprobs" not in row: continue
    logprobs = shared.logprobs(model, row["ids"])
    difference = (logprobs - torch.tensor(row["logprobs"], dtype=torch.float64)[-len(logprobs):]).abs()
    worst, total, count = max(worst, difference.max().item()), total + difference.sum().item(), count + len(difference)
print(json.dumps({"tensors": len(found), "worst": worst, "mean": total / max(count, 1), "tokens": count}))
assert count and worst < 1e-3
