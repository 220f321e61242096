"""Trains the head of a reward model from preferences, and writes `judge/head.safetensors`.

Usage: python head.py  in a folder with `runs/.sample` (`tunebox train --sample --dry-run` unpacks it)
Needs: torch, transformers (CPU is enough, seconds)

The reward of a conversation is w · h, where h is the last hidden state of the tiny model, which stays as it is. w has
one number for each of the 128 hidden dimensions. The loss is that of Bradley and Terry, −log σ(r(chosen) − r(rejected)).
"""
import json, pathlib
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer

SAMPLE = pathlib.Path("runs/.sample")
SIDES = ("chosen", "rejected")
DECAY = 0.02

tokenizer = AutoTokenizer.from_pretrained(SAMPLE / "model")
model = AutoModel.from_pretrained(SAMPLE / "model", dtype=torch.float32)


@torch.no_grad()
def hidden(messages):
    ids = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True)["input_ids"]
    return model(ids).last_hidden_state[0, -1].double()


def pairs(name):
    records = [json.loads(line) for line in (SAMPLE / name).read_text().splitlines()]
    return [torch.stack([hidden(record["prompt"] + record[side]) for record in records]) for side in SIDES]


chosen, rejected = pairs("dpo.jsonl")
head = torch.zeros(chosen.shape[1], dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.LBFGS([head], max_iter=500)


def loss():
    optimizer.zero_grad()
    total = -torch.nn.functional.logsigmoid((chosen - rejected) @ head).mean() + DECAY * head.square().sum()
    total.backward()
    return total


optimizer.step(loss)
head = head.detach()
for name in ("dpo.jsonl", "dpo-held-out.jsonl"):
    chosen, rejected = pairs(name)
    print(f"{name}: {(chosen @ head > rejected @ head).sum()} of {len(chosen)} pairs are in order, "
          f"mean rewards {(chosen @ head).mean():.2f} and {(rejected @ head).mean():.2f}")
save_file({"score.weight": head.float()[None]}, "judge/head.safetensors")
