"""Supervised steps over chat records by a plain loop of PyTorch + PEFT, on the CPU.

Usage: records_loop.py MODEL RECORDS.jsonl [--batch 4] [--rows 2] [--precision f32|bf16|autocast] [--compile]
As people write it: batches of alike lengths in shuffled order, padded to the longest of a forward pass, labels on answers
only. A batch goes through in passes of `--rows` records: four long ones take more than 20 GiB with half a billion weights,
and two are less padding. All records once, after a step that warms up; with `--compile` (torch.compile) after all of them.
Prints the seconds of every step.
"""
import argparse, json
import peer
from conversations import IGNORED, batches, padded, row

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("records"); p.add_argument("--batch", type=int, default=4)
p.add_argument("--rows", type=int, default=2); p.add_argument("--precision", choices=peer.PRECISIONS, default="f32")
p.add_argument("--compile", action="store_true")
a = p.parse_args()

tokenizer = peer.tokenizer(a.model)
records = [json.loads(line) for line in open(a.records)]
rows = [row(tokenizer, record["prompt"], record["completion"]) for record in records]
model = peer.adapted(a.model, a.precision)
learner = peer.Learner(model)
forward = peer.compiled(model) if a.compile else model


def losses(batch):
    """The batch's mean over answer tokens, pass by pass."""
    targets = sum(label != IGNORED for _, labels in batch for label in labels)
    for at in range(0, len(batch), a.rows):
        ids, mask, labels = padded(batch[at:at + a.rows], tokenizer.pad_token_id)
        with peer.arithmetic(a.precision):
            loss = forward(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=targets).loss
        yield loss  # goes backward outside of autocast


steps = [lambda batch=batch: learner.learn(losses(batch)) for batch in batches(rows, a.batch, lambda row: len(row[0]))]
peer.say(seconds=peer.timed_but_first(steps, a.compile), batch=a.batch)
