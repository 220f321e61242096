"""How long a supervised LoRA step of PyTorch + transformers + PEFT takes.

Usage: dense_loop.py MODEL [--batch 4] [--sequence 256] [--steps 3] [--device cpu] [--precision f32] [--checkpointing]
Rows of seeded random tokens, every token a label; adapters on all seven products of a block in f32, AdamW, gradients clipped
at 1, SDPA. Weights and arithmetic in f32, or with `--precision bf16` weights in bf16 and arithmetic under autocast. One step
warms up and is not timed. Where the device has no room, the line says `out_of_memory`.
"""
import argparse, statistics
import torch
import peer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("--batch", type=int, default=4); p.add_argument("--sequence", type=int, default=256)
p.add_argument("--steps", type=int, default=3); p.add_argument("--device", default="cpu")
p.add_argument("--precision", choices=["f32", "bf16"], default="f32"); p.add_argument("--checkpointing", action="store_true")
a = p.parse_args()

dtype = torch.bfloat16 if a.precision == "bf16" else torch.float32
model = peer.adapted(a.model, dtype=dtype, device=a.device, checkpointing=a.checkpointing)
learner = peer.Learner(model)
ids = torch.randint(0, model.config.vocab_size, (a.batch, a.sequence), generator=torch.Generator().manual_seed(1)).to(a.device)


def step():
    with peer.arithmetic(a.precision, a.device):
        loss = model(input_ids=ids, labels=ids).loss
    learner.learn([loss])


try:
    seconds = peer.timed([step] * (a.steps + 1))
    middle = statistics.median(seconds[1:])
    peer.say(step_seconds=middle, tokens_per_second=a.batch * a.sequence / middle, **peer.gpu_memory())
except torch.OutOfMemoryError:
    peer.say(out_of_memory=True, **peer.gpu_memory())
