"""Records as ids, labels and padded batches, as a plain loop makes them."""
import random
import torch

IGNORED = -100


def row(tokenizer, prompt, answer):
    """Ids of a conversation, and its labels: those of the answer."""
    ids = tokenizer.apply_chat_template(prompt + answer, return_dict=True)["input_ids"]
    asked = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
    return ids, [IGNORED] * len(asked) + ids[len(asked):]


def padded(rows, filler):
    """Ids, mask and labels `[rows, longest]`."""
    width = max(len(ids) for ids, _ in rows)
    fill = lambda part, value: torch.tensor([list(one) + [value] * (width - len(one)) for one in part])
    ids = fill([ids for ids, _ in rows], filler)
    mask = fill([[1] * len(ids) for ids, _ in rows], 0)
    return ids, mask, fill([labels for _, labels in rows], IGNORED)


def batches(records, size, length):
    """All of them once, in batches of alike lengths, whose order is drawn from a seed."""
    by_length = sorted(records, key=length)
    made = [by_length[at:at + size] for at in range(0, len(by_length), size)]
    return random.Random(0).sample(made, len(made))
