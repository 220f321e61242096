"""The question how time and memory grow: with the length of a row beside PEFT, with the number of rows for tunebox."""
import processes, sides

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8)


def ours(a, model, batch, sequence):
    sizes = ["--model", model.folder, "--batch", batch, "--sequence", sequence, "--steps", a.steps, "--rank", sides.RANK]
    ran = sides.bench(a.program, "training", *sizes)
    return sides.measured(ran, step_seconds=ran.last["step_seconds"], rate=ran.last["tokens_per_second"])


def theirs(a, model, batch, sequence):
    """A step of PEFT, or that it needs more memory than is free."""
    try:
        ran = sides.peer("dense_loop.py", model.folder, "--batch", batch, "--sequence", sequence, "--steps", a.steps, confined=True)
    except processes.OutOfMemory:
        return {"out_of_memory": True}
    return sides.measured(ran, step_seconds=ran.last["step_seconds"], rate=ran.last["tokens_per_second"])


def growth(a, report):
    """Rows of growing length, and growing numbers of rows."""
    model = a.models[0]
    for sequence in (length for length in LENGTHS if length <= a.longest):
        row = report.row(model.name, f"1 × {sequence}", "tokens/s")
        for _ in range(a.pairs):
            row.add("tunebox", ours(a, model, 1, sequence))
            row.add("PEFT loop", theirs(a, model, 1, sequence))
    for batch in BATCHES[1:]:
        row = report.row(model.name, f"{batch} × 256", "tokens/s")
        for _ in range(a.pairs):
            row.add("tunebox", ours(a, model, batch, 256))
