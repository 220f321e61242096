"""Supervised steps over chat records by a plain loop of PyTorch + PEFT, in f32 on the CPU.

Usage: records_loop.py MODEL RECORDS.jsonl [--batch 4]
As people write it: shuffled, padded to the longest of the batch, labels on answers only. One pass over the records.
Prints the seconds of every step but the first.
"""
import argparse, json
import peer
from conversations import batches, padded, row

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("records"); p.add_argument("--batch", type=int, default=4)
a = p.parse_args()

tokenizer = peer.tokenizer(a.model)
records = [json.loads(line) for line in open(a.records)]
rows = [row(tokenizer, record["prompt"], record["completion"]) for record in records]
model = peer.adapted(a.model)
learner = peer.Learner(model)


def step(batch):
    ids, mask, labels = padded(batch, tokenizer.pad_token_id)
    learner.learn(model(input_ids=ids, attention_mask=mask, labels=labels).loss)


seconds = peer.timed(lambda batch=batch: step(batch) for batch in batches(rows, a.batch))
peer.say(seconds=seconds[1:], batch=a.batch)
