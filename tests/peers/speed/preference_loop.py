"""DPO steps over pairs by a plain loop of PyTorch + PEFT, on the CPU.

Usage: preference_loop.py MODEL PAIRS.jsonl [--batch 4] [--rows 1] [--precision f32|bf16|autocast] [--compile]
As people write it: chosen and rejected rows padded together in one pass, the reference by the same pass with the adapter
disabled. A batch goes through in passes of `--rows` pairs: four long ones take more than 40 GiB with half a billion weights,
and one is less padding. All pairs once, in batches of alike lengths in shuffled order, after a step that warms up; with
`--compile` (torch.compile) after all of them. Prints the seconds of every step.
"""
import argparse, json
import torch
import peer
from conversations import IGNORED, batches, padded, row

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("records"); p.add_argument("--batch", type=int, default=4)
p.add_argument("--rows", type=int, default=1); p.add_argument("--precision", choices=peer.PRECISIONS, default="f32")
p.add_argument("--compile", action="store_true")
a = p.parse_args()
BETA = 0.1

tokenizer = peer.tokenizer(a.model)
records = [json.loads(line) for line in open(a.records)]
pairs = [tuple(row(tokenizer, record["prompt"], record[side]) for side in ("chosen", "rejected")) for record in records]
model = peer.adapted(a.model, a.precision)
learner = peer.Learner(model)
forward = peer.compiled(model) if a.compile else model


def logprobs(ids, mask, labels):
    """The answers' log-probabilities `[rows]`."""
    with peer.arithmetic(a.precision):
        logits = forward(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
    wanted = labels[:, 1:]
    costs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="none")
    return -costs.view_as(wanted).sum(1)


def losses(batch):
    """The batch's mean over pairs, pass by pass."""
    for at in range(0, len(batch), a.rows):
        part = batch[at:at + a.rows]
        given = padded([chosen for chosen, _ in part] + [rejected for _, rejected in part], tokenizer.pad_token_id)
        with torch.no_grad(), model.disable_adapter():
            reference = logprobs(*given)
        gains = logprobs(*given) - reference
        chosen, rejected = gains.chunk(2)
        yield -torch.nn.functional.logsigmoid(BETA * (chosen - rejected)).sum() / len(batch)


length = lambda pair: sum(len(ids) for ids, _ in pair)
steps = [lambda batch=batch: learner.learn(losses(batch)) for batch in batches(pairs, a.batch, length)]
peer.say(seconds=peer.timed_but_first(steps, a.compile), batch=a.batch)
