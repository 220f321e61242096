"""Questions about training: dense steps, records of natural lengths, pairs, and completions that are judged."""
import tempfile

import rewards, sides

PROMPTS, COMPLETIONS, WRITTEN = 2, 8, 64


# How the peers of a run are started, by the names of tables; TRL's default is bf16 by autocast.
PEERS = {
    "PEFT loop": lambda loop, trainer: [loop],
    "PEFT loop bf16": lambda loop, trainer: [loop, "--precision", "bf16"],
    "PEFT loop autocast": lambda loop, trainer: [loop, "--precision", "autocast"],
    "PEFT loop compiled": lambda loop, trainer: [loop, "--compile"],
    "PEFT loop bf16 compiled": lambda loop, trainer: [loop, "--precision", "bf16", "--compile"],
    "TRL": lambda loop, trainer: ["trl_trainers.py", trainer],
    "TRL f32": lambda loop, trainer: ["trl_trainers.py", trainer, "--precision", "f32"],
}
FORMATS = ["PEFT loop", "PEFT loop bf16", "PEFT loop autocast"]
DENSE, USUAL = [*FORMATS, "PEFT loop compiled", "PEFT loop bf16 compiled"], [*FORMATS, "TRL"]
# Pairs take longer compiled: 0.23 pairs/s instead of 0.35 on AMD.
RECORDS = [*USUAL, "PEFT loop bf16 compiled"]


def dense(a, report):
    """Supervised steps over full rows, every token a label, beside PEFT."""
    for model in a.models:
        for shape in a.shapes:
            batch, sequence = shape
            sizes = ["--batch", batch, "--sequence", sequence, "--steps", a.steps]
            row = report.row(model.name, f"{batch} × {sequence}", "tokens/s")
            for _ in range(a.pairs):
                ours = sides.bench(a.program, "training", "--rank", sides.RANK, "--model", model.folder, *sizes)
                figures = ("step_seconds", "utilization", "product_gflops", "product_type")
                row.add("tunebox", sides.measured(ours, rate=ours.last["tokens_per_second"], **{key: ours.last[key] for key in figures}))
                for name in row.contenders(a.peers or DENSE):
                    theirs = sides.peer(*PEERS[name]("dense_loop.py", None), model.folder, *sizes)
                    row.add(name, sides.measured(theirs, rate=theirs.last["tokens_per_second"], step_seconds=theirs.last["step_seconds"]))


def beside(a, row, scripts, model, part, things, *sizes):
    """The peers that are asked for over one part of the records."""
    for name in row.contenders(a.peers or (RECORDS if a.question == "records" else USUAL)):
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
