"""Questions about training: dense steps, records of natural lengths, pairs, and completions that are judged."""
import tempfile

import rewards, sides

PROMPTS, COMPLETIONS, WRITTEN = 2, 8, 64


# Number formats of a dense step: the suffix of a side's name, with the arguments of tunebox and those of the PEFT loop.
FORMATS = {"": (["--set", "train.compute=f32"], []), " bf16": (["--set", "train.compute=bf16"], ["--precision", "bf16"])}


def dense(a, report):
    """Supervised steps over full rows, every token a label, beside PEFT, in f32 and in bf16."""
    for model in a.models:
        for shape in a.shapes:
            batch, sequence = shape
            sizes = ["--model", model.folder, "--batch", batch, "--sequence", sequence, "--steps", a.steps]
            row = report.row(model.name, f"{batch} × {sequence}", "tokens/s")
            for _ in range(a.pairs):
                for name, (our_format, their_format) in FORMATS.items():
                    ours = sides.bench(a.program, "training", "--rank", sides.RANK, *sizes, *our_format)
                    figures = ("step_seconds", "utilisation", "product_gflops")
                    row.add("tunebox" + name, sides.measured(ours, rate=ours.last["tokens_per_second"], **{key: ours.last[key] for key in figures}))
                    theirs = sides.peer("dense_loop.py", model.folder, *sizes[2:], *their_format)
                    row.add("PEFT loop" + name, sides.measured(theirs, rate=theirs.last["tokens_per_second"], step_seconds=theirs.last["step_seconds"]))


# How the peers of a run are started, by the names of tables. TRL's default is bf16 by autocast.
PEERS = {
    "PEFT loop": lambda loop, trainer: [loop],
    "PEFT loop bf16": lambda loop, trainer: [loop, "--precision", "bf16"],
    "TRL": lambda loop, trainer: ["trl_trainers.py", trainer],
    "TRL f32": lambda loop, trainer: ["trl_trainers.py", trainer, "--precision", "f32"],
}
USUAL = ["PEFT loop", "PEFT loop bf16", "TRL"]


def beside(a, row, scripts, model, part, things, *sizes):
    """Every peer that is asked for over one part of the records."""
    for name in a.peers or USUAL:
        ran = sides.peer(*PEERS[name](*scripts), model.folder, part, *sizes)
        lengths = {key: ran.last[key] for key in ("mean_length",) if key in ran.last}
        row.add(name, sides.measured(ran, **sides.rate(ran.last["seconds"], things), **lengths))


def whole_file(a, report, kind, method, unit, scripts):
    """tunebox and the peers over the same part of the records, part by part."""
    model = a.models[0]
    row = report.row(model.name, f"batch of {a.batch}", unit)
    with tempfile.TemporaryDirectory() as folder:
        for part in sides.parts(kind, a.records, a.pairs, a.batch, folder)[:a.parts]:
            ran, seconds, _ = sides.trained(a.program, model.folder, part, method, a.batch)
            row.add("tunebox", sides.measured(ran, **sides.rate(seconds, a.batch)))
            beside(a, row, scripts, model, part, a.batch, "--batch", a.batch)


def records(a, report):
    """Supervised fine-tuning on chat records, labels on answers only, beside a plain loop and TRL."""
    whole_file(a, report, "answers", "lora", "records/s", ("records_loop.py", "sft"))


def preference(a, report):
    """DPO on pairs, beside a plain loop and TRL."""
    whole_file(a, report, "pairs", "dpo", "pairs/s", ("preference_loop.py", "dpo"))


def grpo(a, report):
    """A GRPO step, beside a plain loop with transformers' generation and TRL."""
    model, things = a.models[0], PROMPTS * COMPLETIONS
    row = report.row(model.name, f"{PROMPTS} × {COMPLETIONS} of {WRITTEN} tokens", "completions/s")
    sizes = ["--batch", PROMPTS, "--completions", COMPLETIONS, "--tokens", WRITTEN]
    settings = [f"method.completions={COMPLETIONS}", f"method.max-tokens={WRITTEN}", "verifier.0.use=overlong",
                f"verifier.0.length={rewards.WORDS}", f"verifier.0.buffer={rewards.WORDS}"]
    with tempfile.TemporaryDirectory() as folder:
        for part in sides.parts("prompts", PROMPTS * (a.steps + 1) * a.pairs, a.pairs, PROMPTS, folder):
            ran, seconds, events = sides.trained(a.program, model.folder, part, "grpo", PROMPTS, settings)
            lengths = [event["metrics"]["completions-mean-length"] for event in events]
            row.add("tunebox", sides.measured(ran, **sides.rate(seconds, things), mean_length=sum(lengths) / len(lengths)))
            beside(a, row, ("grpo_loop.py", "grpo"), model, part, things, *sizes)
