"""How long a supervised LoRA step of PyTorch + transformers + PEFT takes on the CPU.

Usage: dense_loop.py MODEL [--batch 4] [--sequence 256] [--steps 3]
Rows of seeded random tokens, every token a label; adapters on all seven products of a block, weights and arithmetic in
f32, AdamW, gradients clipped at 1. One step warms up and is not timed.
"""
import argparse, statistics
import torch
import peer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("--batch", type=int, default=4); p.add_argument("--sequence", type=int, default=256)
p.add_argument("--steps", type=int, default=3)
a = p.parse_args()

model = peer.adapted(a.model)
learner = peer.Learner(model)
ids = torch.randint(0, model.config.vocab_size, (a.batch, a.sequence), generator=torch.Generator().manual_seed(1))
seconds = peer.timed([lambda: learner.learn([model(input_ids=ids, labels=ids).loss])] * (a.steps + 1))
middle = statistics.median(seconds[1:])
peer.say(step_seconds=middle, tokens_per_second=a.batch * a.sequence / middle)
