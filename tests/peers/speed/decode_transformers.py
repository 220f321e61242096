"""Greedy writing by transformers on the CPU.

Usage: decode_transformers.py MODEL --batch 1 --dtype f32|bf16 --cache dynamic|static [--prompt 32] [--tokens 128] [--passes 3]
Prompts are seeded random tokens, one of its own for every row. As many tokens are written as asked for, whatever they are. The clock starts
when the first new token is there. Prints tokens/s of the fastest pass, as `tunebox bench` does.
"""
import argparse, time
import torch, transformers
import peer

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("--batch", type=int, default=1); p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
p.add_argument("--cache", choices=["dynamic", "static"], default="dynamic"); p.add_argument("--prompt", type=int, default=32)
p.add_argument("--tokens", type=int, default=128); p.add_argument("--passes", type=int, default=3)
a = p.parse_args()

model = peer.base(a.model, a.dtype).eval()
ids = torch.randint(0, min(10_000, model.config.vocab_size), (a.batch, a.prompt), generator=torch.Generator().manual_seed(2))
ends = []


class Clock(transformers.StoppingCriteria):
    """Stamps every token and stops at none."""

    def __call__(self, ids, scores, **_):
        ends.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def write(tokens):
    ends.clear()
    model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, repetition_penalty=1.0, min_new_tokens=tokens,
                   max_new_tokens=tokens, cache_implementation="static" if a.cache == "static" else None, pad_token_id=0,
                   stopping_criteria=transformers.StoppingCriteriaList([Clock()]))
    return a.batch * (len(ends) - 1) / (ends[-1] - ends[0])


with torch.no_grad():
    write(4)
    peer.say(tokens_per_second=max(write(a.tokens) for _ in range(a.passes)), batch=a.batch, dtype=a.dtype, cache=a.cache)
