"""Optimizer steps of completion-only fine-tuning by PEFT, from a given adapter, on the CPU.

Usage: peft_steps.py MODEL RECORDS.jsonl ADAPTER_DIR OUT.json [--make] [--steps 6] [--batch 2] [--rank 8] [--rate 1e-3] [--after DIR]
                     [--dtype f32|f64|bf16] [--threads N] [--save-modules embed_tokens,lm_head] [--tie]
`--dtype bf16` keeps the model in bf16 and computes under autocast, with an adapter in f32. `--dtype f64` and `--threads 1` tell how far PEFT's own f32 lies from the truth and from itself.
`--save-modules` trains these modules whole beside the factors, `--tie` a tied embedding and head as one matrix.
`--make` first writes a fresh adapter with random A *and* B to ADAPTER_DIR, so that no gradient is zero.
Records are {"prompt": text, "completion": text}; the batches are taken in the file's order.
Prints loss, gradient norm before clipping (at 1.0) and, at the end, the norm of the whole update. `--after` saves the adapter.
"""
import argparse, json
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
import random_adapter, shared

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("records"); p.add_argument("adapter"); p.add_argument("out")
p.add_argument("--make", action="store_true"); p.add_argument("--steps", type=int, default=6); p.add_argument("--batch", type=int, default=2)
p.add_argument("--rank", type=int, default=8); p.add_argument("--rate", type=float, default=1e-3); p.add_argument("--after")
p.add_argument("--dtype", default="f32"); p.add_argument("--threads", type=int, default=0)
p.add_argument("--save-modules"); p.add_argument("--tie", action="store_true")
a = p.parse_args()
if a.threads: torch.set_num_threads(a.threads)
dtype = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}[a.dtype]
arguments = shared.source(a.model)
tokenizer = AutoTokenizer.from_pretrained(**arguments)
load = lambda: AutoModelForCausalLM.from_pretrained(**arguments, dtype=dtype)
if a.make:
    whole = a.save_modules.split(",") if a.save_modules else None
    random_adapter.make(load, a.adapter, a.rank, modules_to_save=whole, ensure_weight_tying=a.tie)
model = PeftModel.from_pretrained(load(), a.adapter, is_trainable=True).train()
if a.dtype == "f64": model = model.to(dtype)
arithmetic = lambda: torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bf16")
trained = [q for q in model.parameters() if q.requires_grad]
start = [q.detach().clone() for q in trained]
optimizer = torch.optim.AdamW(trained, lr=a.rate, weight_decay=0.0)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (a.steps - step) / a.steps))

rows = []
for line in open(a.records):
    record = json.loads(line)
    prompt = tokenizer(record["prompt"])["input_ids"]
    ids = tokenizer(record["prompt"] + record["completion"])["input_ids"] + [tokenizer.eos_token_id]
    rows.append((ids, [-100] * len(prompt) + ids[len(prompt):]))
history = []
for step in range(a.steps):
    batch = rows[step * a.batch:(step + 1) * a.batch]
    width = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([i + [0] * (width - len(i)) for i, _ in batch])
    labels = torch.tensor([l + [-100] * (width - len(l)) for _, l in batch])
    mask = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in batch])
    with arithmetic(): logits = model(input_ids=ids, attention_mask=mask).logits
    if a.dtype == "bf16": logits = logits.float()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")
    loss = loss / (labels[:, 1:] != -100).sum()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(trained, 1.0).item()
    optimizer.step(); schedule.step(); optimizer.zero_grad()
    history.append({"loss": loss.item(), "gradient_norm": norm})
update = sum(((q.detach() - s).double() ** 2).sum().item() for q, s in zip(trained, start)) ** 0.5
if a.after: model.save_pretrained(a.after)
json.dump({"steps": history, "update_norm": update}, open(a.out, "w"), indent=1)
print(json.dumps({"steps": history, "update_norm": update}))
