"""Questions about training: dense steps, records of natural lengths, pairs, and completions that are judged."""
import tempfile

import rewards, sides

PROMPTS, COMPLETIONS, WRITTEN = 2, 8, 64


def dense(a, report):
    """Supervised steps over full rows, every token a label, beside PEFT."""
    for model in a.models:
        for shape in a.shapes:
            batch, sequence = shape
            sizes = ["--model", model.folder, "--batch", batch, "--sequence", sequence, "--steps", a.steps]
            row = report.row(model.name, f"{batch} × {sequence}", "tokens/s")
            for _ in range(a.pairs):
                ours = sides.bench(a.program, "training", "--rank", sides.RANK, *sizes)
                said = ours.last
                row.add("tunebox", sides.measured(ours, rate=said["tokens_per_second"], step_seconds=said["step_seconds"],
                                                  utilisation=said["utilisation"], product_gflops=said["product_gflops"]))
                theirs = sides.peer("dense_loop.py", model.folder, *sizes[2:])
                row.add("PEFT loop", sides.measured(theirs, rate=theirs.last["tokens_per_second"], step_seconds=theirs.last["step_seconds"]))


def whole_file(a, report, kind, method, unit, loop, trainer):
    """Both peers and tunebox over the same part of the records, part by part."""
    model = a.models[0]
    row = report.row(model.name, f"batch of {a.batch}", unit)
    with tempfile.TemporaryDirectory() as folder:
        for part in sides.parts(kind, a.records, a.pairs, a.batch, folder)[:a.parts]:
            ran, seconds, _ = sides.trained(a.program, model.folder, part, method, a.batch)
            row.add("tunebox", sides.measured(ran, **sides.rate(seconds, a.batch)))
            commands = [("PEFT loop", (loop, model.folder, part)), ("TRL", ("trl_trainers.py", trainer, model.folder, part))]
            for name, command in commands:
                if a.peers and name not in a.peers:
                    continue
                ran = sides.peer(*command, "--batch", a.batch)
                row.add(name, sides.measured(ran, **sides.rate(ran.last["seconds"], a.batch)))


def records(a, report):
    """Supervised fine-tuning on chat records, labels on answers only, beside a plain loop and TRL."""
    whole_file(a, report, "answers", "lora", "records/s", "records_loop.py", "sft")


def preference(a, report):
    """DPO on pairs, beside a plain loop and TRL."""
    whole_file(a, report, "pairs", "dpo", "pairs/s", "preference_loop.py", "dpo")


def grpo(a, report):
    """A GRPO step, beside a plain loop with transformers' generation and TRL."""
    model = a.models[0]
    row = report.row(model.name, f"{PROMPTS} × {COMPLETIONS} of {WRITTEN} tokens", "completions/s")
    sizes = ["--batch", PROMPTS, "--completions", COMPLETIONS, "--tokens", WRITTEN]
    settings = [f"method.completions={COMPLETIONS}", f"method.max-tokens={WRITTEN}", "verifier.0.use=overlong",
                f"verifier.0.length={rewards.WORDS}", f"verifier.0.buffer={rewards.WORDS}"]
    with tempfile.TemporaryDirectory() as folder:
        for part in sides.parts("prompts", PROMPTS * (a.steps + 1) * a.pairs, a.pairs, PROMPTS, folder):
            ran, seconds, events = sides.trained(a.program, model.folder, part, "grpo", PROMPTS, settings)
            lengths = [event["metrics"]["completions-mean-length"] for event in events]
            row.add("tunebox", sides.measured(ran, **sides.rate(seconds, PROMPTS * COMPLETIONS), mean_length=sum(lengths) / len(lengths)))
            commands = [("PEFT loop", ("grpo_loop.py", model.folder, part)), ("TRL", ("trl_trainers.py", "grpo", model.folder, part))]
            for name, command in commands:
                if a.peers and name not in a.peers:
                    continue
                ran = sides.peer(*command, *sizes)
                row.add(name, sides.measured(ran, **sides.rate(ran.last["seconds"], PROMPTS * COMPLETIONS), mean_length=ran.last["mean_length"]))
