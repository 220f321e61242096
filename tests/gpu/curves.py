"""Loss curves of one run on the CPU and on the GPU: the same package, the same data, the same seed."""
import json, os, tempfile, tomllib

import carried, processes, texts

# Name, device, `train.compute`, and how far a loss may be from the CPU's.
PLACES = [("f32 on the CPU", "cpu", "f32", None), ("f32 on CUDA", "cuda", "f32", 1e-3), ("bf16 on CUDA", "cuda", "bf16", 1e-2)]


def run(folder, name, device, compute, *arguments):
    """The losses and gradient norms of a run, and what its lock says."""
    sets = [f"train.compute={compute}", f"train.device={device}", f"run.folder={json.dumps(folder)}", f"run.name={json.dumps(name)}"]
    words = [word for setting in sets for word in ("--set", setting)]
    ran = processes.run([carried.PROGRAM, "train", "--json", "--offline", *arguments, *words])
    steps = [event for _, event in ran.lines if event.get("event") == "step"]
    with open(os.path.join(folder, name, "run.lock"), "rb") as file:
        lock = tomllib.load(file)
    return {"losses": [step["metrics"]["loss"] for step in steps], "norms": [step["gradient_norm"] for step in steps], "lock": lock,
            "seconds": [step["seconds"] for step in steps], "peak_bytes": steps[-1]["peak_bytes"]}


def apart(found, wanted):
    """The largest relative difference of two lists of numbers."""
    if len(found) != len(wanted):
        return float("inf")
    return max(abs(one / other - 1) for one, other in zip(found, wanted))


def compare(table, part, places, *arguments):
    """Runs each place in turn; the first is the yardstick."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(folder, f"run-{number}", device, compute, *arguments) for number, (_, device, compute, _) in enumerate(places)]
    first = runs[0]
    for (name, _, _, most), made in zip(places, runs):
        losses = f"loss {made['losses'][0]:.4f} to {made['losses'][-1]:.4f} in {len(made['losses'])} steps"
        if most is None:
            table.add(part, name, losses, losses=made["losses"])
            continue
        loss, norm = apart(made["losses"], first["losses"]), apart(made["norms"], first["norms"])
        table.add(part, name, f"{losses}; losses {loss:.2%} apart, norms {norm:.2%}", f"losses within {most:.1%}", loss <= most,
                  losses=made["losses"], norms=made["norms"], peak_bytes=made["peak_bytes"])
    digests = {made["lock"]["method"]["sha256"] for made in runs}
    chips = [made["lock"].get("accelerator", {}).get("chip", "cpu") for made in runs]
    table.add(part, "component", f"digest {min(digests)[:16]} on {', '.join(dict.fromkeys(chips))}", "one digest in all locks", len(digests) == 1)


def sample(table):
    """The tiny model that comes with tunebox: 20 steps."""
    compare(table, "curve", PLACES, "--sample", "--set", "train.steps=20")


def nested(table, model):
    """A base that is quantized to NF4 when it is read, of 1B weights: three steps of one record."""
    with tempfile.TemporaryDirectory() as folder:
        data = texts.write(os.path.join(folder, "data.jsonl"), texts.records("answers", 8))
        compare(table, "qlora", PLACES, "--model", model, "--precision", "nf4", "--data", data, "--method", "lora",
                "--set", "train.steps=3", "--set", "train.batch=1", "--set", "data.max-length=4096")
