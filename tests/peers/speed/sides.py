"""The two sides of a measurement, each a process of its own: tunebox, and the peers beside this file."""
import json, os, subprocess, sys, tempfile

import machine, processes, texts

HERE = os.path.dirname(os.path.abspath(__file__))
RANK, RATE = 16, 1e-4


def measured(ran, **figures):
    """One measurement: what is compared, and the memory, the threads and the products of the process that made it."""
    return {**figures, **{key: ran.last[key] for key in ("threads", "blas") if key in ran.last}, "peak_bytes": ran.peak_bytes}


def peer(script, *arguments, confined=False):
    """Runs a peer. Its line of JSON is the last one."""
    return processes.run([sys.executable, os.path.join(HERE, script), *map(str, arguments)], confined=confined)


def bench(program, only, *arguments):
    """`tunebox bench` of one part."""
    return processes.run([program, "bench", "--json", "--offline", "--only", only, *map(str, arguments)])


def rate(seconds, things):
    """Things a second: `seconds` has one entry for every counted step, each with so many things."""
    return {"rate": things * len(seconds) / sum(seconds), "step_seconds": sum(seconds) / len(seconds)}


def trained(program, model, records, method, batch, settings=()):
    """A run of `tunebox train`: the process, the seconds of all steps but the first, and their events.

    A step ends when its line comes out, so that all that lies between two steps is counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"train.batch={batch}", f"train.adapter.rank={RANK}", f"train.rate={RATE}", "train.epochs=1",
                     f"run.folder={json.dumps(folder)}", "run.name=measured", *settings]
        sets = [word for override in overrides for word in ("--set", override)]
        ran = processes.run([program, "train", "--json", "--offline", "--model", model, "--data", records, "--method", method, *sets])
    steps = [(when, event) for when, event in ran.lines if event.get("event") == "step"]
    if len(steps) < 2:
        raise processes.Failed(f"`{method}` made {len(steps)} steps of these records; the first is not counted")
    ends = [when for when, _ in steps]
    return ran, [after - before for before, after in zip(ends, ends[1:])], [event for _, event in steps]


def parts(kind, count, pairs, batch, folder):
    """The records in as many parts as there are pairs, each in a file, each but the last with the same number of full batches."""
    made = texts.records(kind, count)
    batches = [made[at:at + batch] for at in range(0, len(made) - len(made) % batch, batch)]
    size = -(-len(batches) // pairs)
    cut = [batches[at:at + size] for at in range(0, len(batches), size)]
    return [texts.write(os.path.join(folder, f"{number}.jsonl"), sum(part, [])) for number, part in enumerate(cut)]


def versions(program):
    """The versions of both sides."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split()
    return {"tunebox": said[-1] if said else "unknown"} | machine.versions()
