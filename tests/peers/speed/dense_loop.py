"""How long a supervised LoRA step of PyTorch + transformers + PEFT takes.

Usage: dense_loop.py MODEL [--batch 4] [--sequence 256] [--steps 3] [--device cpu] [--precision f32|bf16|autocast]
       [--compile] [--checkpointing]
Rows of seeded random tokens, every token a label; adapters on all seven products of a block in f32, AdamW, gradients clipped
at 1, SDPA. `bf16` is weights in bf16 and arithmetic under autocast, `autocast` the latter alone; `--compile` is torch.compile
with its defaults. One step warms up and is not timed. Where the device has no room, the line says `out_of_memory`.
"""
import argparse, statistics
import torch
import peer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("--batch", type=int, default=4); p.add_argument("--sequence", type=int, default=256)
p.add_argument("--steps", type=int, default=3); p.add_argument("--device", default="cpu")
p.add_argument("--precision", choices=peer.PRECISIONS, default="f32"); p.add_argument("--checkpointing", action="store_true")
p.add_argument("--compile", action="store_true")
a = p.parse_args()

model = peer.adapted(a.model, a.precision, device=a.device, checkpointing=a.checkpointing)
learner = peer.Learner(model)
ids = torch.randint(0, model.config.vocab_size, (a.batch, a.sequence), generator=torch.Generator().manual_seed(1)).to(a.device)
forward = torch.compile(model) if a.compile else model


def step():
    with peer.arithmetic(a.precision, a.device):
        loss = forward(input_ids=ids, labels=ids).loss
    learner.learn([loss])


try:
    seconds = peer.timed([step] * (a.steps + 1))
    middle = statistics.median(seconds[1:])
    peer.say(step_seconds=middle, tokens_per_second=a.batch * a.sequence / middle, **peer.gpu_memory())
except torch.OutOfMemoryError:
    peer.say(out_of_memory=True, **peer.gpu_memory())
