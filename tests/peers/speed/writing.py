"""The question how fast a GGUF file writes: beside transformers in its better precision, and llama.cpp where it is there."""
import os, sys

import machine, sides

BATCHES = (1, 16)
CHOICES = [(dtype, cache) for dtype in ("bf16", "f32") for cache in ("dynamic", "static")]
# Tokens that decide which of the choices is measured.
TRIED = 24


def transformers(a, model, batch, choice, tokens, passes=3):
    dtype, cache = choice
    return sides.peer("decode_transformers.py", model.folder, "--batch", batch, "--dtype", dtype, "--cache", cache,
                      "--prompt", a.prompt, "--tokens", tokens, "--passes", passes)


def best_choice(a, model, batch):
    """The precision and cache with which transformers writes fastest here, and what each reached in a short trial."""
    reached = {choice: transformers(a, model, batch, choice, min(TRIED, a.tokens), passes=1).last["tokens_per_second"] for choice in CHOICES}
    tried = {" ".join(choice): speed for choice, speed in reached.items()}
    return max(reached, key=reached.get), tried


def has_llama():
    """Whether llama.cpp can be measured; says why not."""
    (name, version), = machine.pinned(machine.LLAMA).items()
    found = machine.versions(machine.LLAMA)[name]
    if found != version:
        print(f"llama.cpp is left out: {name} is {found or 'not there'}; tests/peers/speed/llama.txt says how {version} is built", file=sys.stderr)
    return found == version


def decode(a, report):
    """Greedy writing from the first new token on, every row after a prompt of its own."""
    model, with_llama = a.models[0], has_llama()
    for batch in BATCHES:
        row = report.row(model.name, f"{batch} side by side" if batch > 1 else "one at a time", "tokens/s")
        choice, row.data["transformers_tried"] = best_choice(a, model, batch)
        for _ in range(a.pairs):
            sizes = ["--prompts", batch, "--prompt-tokens", a.prompt, "--new-tokens", a.tokens]
            ran = sides.bench(a.program, "generation", "--model", a.gguf, *sizes)
            row.add("tunebox", sides.measured(ran, rate=ran.last["written"][0]["tokens_per_second"]))
            ran = transformers(a, model, batch, choice, a.tokens)
            row.add("transformers", sides.measured(ran, rate=ran.last["tokens_per_second"], choice=" ".join(choice)))
            if with_llama:
                ran = sides.peer("decode_llama.py", os.path.abspath(a.gguf), "--batch", batch, "--prompt", a.prompt, "--tokens", a.tokens)
                row.add("llama.cpp", sides.measured(ran, rate=ran.last["tokens_per_second"]))
    if with_llama:
        report.versions |= machine.versions(machine.LLAMA)
