"""GRPO steps by a plain loop: transformers writes the completions, PyTorch takes the loss, on the CPU.

Usage: grpo_loop.py MODEL PROMPTS.jsonl [--batch 2] [--completions 8] [--tokens 64] [--precision f32|bf16|autocast]
As people write it: `generate` with sampling at temperature 1 and its dynamic cache, advantages within the group, one
forward and backward pass with the log-probabilities of the completions only, no clipping (on fresh completions the ratio
is 1), no reference. Prints the seconds of every step but the first.
"""
import argparse, json
import torch
import peer, rewards

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("records"); p.add_argument("--batch", type=int, default=2)
p.add_argument("--completions", type=int, default=8); p.add_argument("--tokens", type=int, default=64)
p.add_argument("--precision", choices=peer.PRECISIONS, default="f32")
a = p.parse_args()

model = peer.adapted(a.model, a.precision)
tokenizer = peer.tokenizer(a.model)
tokenizer.padding_side = "left"
learner = peer.Learner(model)
prompts = [json.loads(line)["prompt"] for line in open(a.records)]
lengths = []


def written(batch):
    """Ids of prompts and completions `[rows, width]`, their mask, and which tokens were written and count."""
    given = tokenizer([text for text in batch for _ in range(a.completions)], return_tensors="pt", padding=True)
    model.eval()
    with torch.no_grad(), peer.arithmetic(a.precision):
        ids = model.generate(**given, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=a.tokens,
                             pad_token_id=tokenizer.pad_token_id)
    model.train()
    answers = ids[:, given["input_ids"].shape[1]:]
    ends = torch.isin(answers, torch.as_tensor(model.generation_config.eos_token_id)).long()
    counts = (ends.cumsum(1) - ends) == 0  # up to the end token and with it
    mask = torch.cat([given["attention_mask"], counts.long()], 1)
    lengths.append(counts.sum(1).float().mean().item())
    return ids, mask, counts


def advantages(texts):
    found = torch.tensor([rewards.of(text) for text in texts]).view(-1, a.completions)
    return ((found - found.mean(1, keepdim=True)) / (found.std(1, keepdim=True) + 1e-4)).view(-1, 1)


def step(batch):
    ids, mask, counts = written(batch)
    width = counts.shape[1]
    gains = advantages(tokenizer.batch_decode(ids[:, -width:], skip_special_tokens=True))
    with peer.arithmetic(a.precision):
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1).logits[:, :-1].float()
    logprobs = -torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -width:].flatten(), reduction="none").view_as(counts)
    ratio = (logprobs - logprobs.detach()).exp()
    learner.learn([-(ratio * gains * counts).sum() / counts.sum()])


batches = [prompts[at:at + a.batch] for at in range(0, len(prompts), a.batch)]
seconds = peer.timed(lambda batch=batch: step(batch) for batch in batches)
peer.say(seconds=seconds[1:], batch=a.batch, mean_length=sum(lengths) / len(lengths))
