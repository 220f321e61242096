"""Measures how far the costs that tunebox estimates lie from those of the runs.

Usage: measure.py PROGRAM OUT.json [NAME=MODEL ...]     PROGRAM: the built `tunebox`; MODEL: a folder or a GGUF file
Of the bundled model and of each MODEL, estimates and executes a run of every case below, and writes a row for each into OUT.json,
in place of the row of the same model and method. A case in which other programs took more than 5 % of the processor's time is
measured again, at most twice more, and the row with the least of it counts. `tests/drift` makes the table of the README from it.
"""
import json, os, subprocess, sys, tempfile

program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
models = dict(argument.split("=", 1) for argument in sys.argv[3:])
SAMPLE = os.path.join(os.path.dirname(__file__), "../../runtime/training/sample")

# A method, its data, its steps, and settings of the run: short runs, but long enough that starting is not most of them.
CASES = {
    "lora": ("lora.jsonl", 40, ["train.batch=4"]),
    "dpo": ("dpo.jsonl", 30, ["train.batch=4"]),
    "grpo": ("grpo.jsonl", 16, ["train.batch=8", "method.completions=4", "method.max-tokens=32", "verifier.0.use=number"]),
}
# The bundled model is small: its runs have so many times the steps.
BUNDLED, FACTOR = "the bundled model", 10


def events(*arguments):
    """The events of a command, by name; the last of each name."""
    done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = map(json.loads, filter(lambda line: line.startswith("{"), done.stdout.splitlines()))
    return {row["event"]: row for row in rows if "event" in row}


def busy():
    """Seconds so far: of busy cores of the machine, of the children of this program, and of time."""
    ticks = list(map(int, open("/proc/stat").readline().split()[1:9]))
    own = os.times()
    # Without the third and fourth, in which a core waits.
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), own.children_user + own.children_system, own.elapsed


def measure_quietly(name, model, method):
    """The row of the run, of three at most, in which other programs took the smallest share of the processor's time."""
    rows = []
    for _ in range(3):
        before = busy()
        row = measure(name, model, method)
        every, own, passed = (after - start for start, after in zip(before, busy()))
        rows.append(row | {"others": round(max(every - own, 0.0) / (passed * os.cpu_count()), 4)})
        if rows[-1]["others"] <= 0.05:
            break
    return min(rows, key=lambda row: row["others"])


def measure(name, model, method):
    """The row of one run."""
    data, steps, settings = CASES[method]
    steps *= FACTOR if name == BUNDLED else 1
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "run.toml")
        with open(file, "w") as text:
            text.write(f'model.path = {json.dumps(os.path.abspath(model))}\n')
            text.write(f'data.path = {json.dumps(os.path.abspath(os.path.join(SAMPLE, data)))}\n')
            text.write(f'method.use = "{method}"\n')
        settings = [*settings, f"train.steps={steps}", f"run.folder={json.dumps(folder)}"]
        given = [word for setting in settings for word in ("--set", setting)]
        trial = events("check", file, "--fit", *given)
        run = events("train", file, *given)
    plan, done = run["planned"]["plan"], run["finished"]
    return {
        "model": name, "parameters": plan["parameters"], "method": method, "steps": done["total"], "tokens": done["tokens"],
        "estimate": trial["estimated"]["cost"], "trial-seconds": trial["estimated"]["seconds"],
        "trial-steps": trial["estimated"]["steps"], "in-run": done["estimated"], "cost": done["cost"],
        "memory": sum(plan["memory"].values()), "peak": run["step"]["peak_bytes"],
    }


results = json.load(open(out)) if os.path.exists(out) else {"rows": []}
cpu = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith(("model name", "vendor_id"))]
results["machine"] = f"{cpu[1] if len(cpu) > 1 else 'unknown'}, {os.cpu_count()} cores"
results["rows"] = {f"{row['model']} {row['method']}": row for row in results["rows"]}
for name, model in ({BUNDLED: os.path.join(SAMPLE, "model")} | models).items():
    for method in CASES:
        row = measure_quietly(name, model, method)
        results["rows"][f"{name} {method}"] = row
        off = row["estimate"]["seconds"] / row["cost"]["seconds"] - 1
        later = row["in-run"]["cost"]["seconds"] / row["cost"]["seconds"] - 1
        print(f"{name}, {method}: {row['estimate']['seconds']:.1f} s estimated ({off:+.1%}), {row['in-run']['cost']['seconds']:.1f} s "
              f"after step {row['in-run']['step']} ({later:+.1%}), {row['cost']['seconds']:.1f} s taken, others {row['others']:.1%}", flush=True)
        saved = results | {"rows": list(results["rows"].values())}
        with open(out, "w") as file:
            json.dump(saved, file, indent=1)
            file.write("\n")
