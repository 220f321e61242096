"""The question what the sandbox costs: the share of a DPO step's time that the method computes inside it, and its start."""
import sides

KEYS = ("compile_seconds", "cached_seconds", "instantiate_seconds")


def overhead(a, report):
    """Steps and starts of the component on the model and on the tiny model."""
    subjects = [(a.models[0].name, ["--model", a.models[0].folder]), ("the tiny model", [])]
    for name, chosen in subjects:
        row = report.row(name, "dpo, 1 × 64", "share")
        for _ in range(a.pairs):
            sizes = ["--method", "dpo", "--batch", 1, "--sequence", 64, "--steps", a.steps, *chosen]
            ran = sides.bench(a.program, "overhead,start-up", *sizes)
            said = ran.last
            row.add("tunebox", {"rate": said["guest_share"], "host_calls": said["host_calls"]} | {key: said[key] for key in KEYS})
