"""Training steps of tunebox and of PyTorch + PEFT on this machine, in turns, so that both meet the same disturbances.

Usage: side_by_side.py TUNEBOX MODEL_DIR… [--shapes 4x256,1x1024,8x128] [--pairs 5] [--steps 3] [--out FILE.json]
TUNEBOX is the program. Each pair is one process of each; ratios are of medians over the pairs. Prints one table, and
writes every figure with a note of the machine when `--out` is given. Versions are those of requirements.txt.
"""
import argparse, json, os, platform, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
p = argparse.ArgumentParser()
p.add_argument("program"); p.add_argument("models", nargs="+"); p.add_argument("--shapes", default="4x256,1x1024,8x128")
p.add_argument("--pairs", type=int, default=5); p.add_argument("--steps", type=int, default=3); p.add_argument("--out")
a = p.parse_args()


def wanted():
    """The pinned versions by name."""
    lines = [line.strip() for line in open(os.path.join(HERE, "requirements.txt"))]
    return dict(line.split("==") for line in lines if "==" in line)


def said(command):
    """What a program says in JSON on its last line."""
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


def processor():
    try:
        return next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def pair(model, batch, sequence):
    sizes = ["--batch", str(batch), "--sequence", str(sequence), "--steps", str(a.steps)]
    ours = said([a.program, "bench", "--json", "--model", model] + sizes)
    theirs = said([sys.executable, os.path.join(HERE, "step_speed.py"), model] + sizes)
    pinned = wanted()
    other = {name: found for name, found in theirs["versions"].items() if pinned.get(name, found) != found.split("+")[0]}
    if other:
        sys.exit(f"these versions are not those of requirements.txt: {other}")
    return {"ours": ours, "theirs": theirs}


runs = []
print(f"{'model':<24}{'shape':>10}{'ours':>10}{'PEFT':>10}{'ratio':>8}{'memory':>8}{'of peak':>9}")
for model in a.models:
    for shape in a.shapes.split(","):
        batch, sequence = (int(part) for part in shape.split("x"))
        pairs = [pair(model, batch, sequence) for _ in range(a.pairs)]
        middle = lambda side, key: statistics.median(one[side][key] for one in pairs)
        speed, peer = middle("ours", "tokens_per_second"), middle("theirs", "tokens_per_second")
        memory = middle("ours", "peak_bytes") / middle("theirs", "peak_bytes")
        share = middle("ours", "utilisation")
        name = os.path.basename(os.path.normpath(model))
        print(f"{name:<24}{shape:>10}{speed:>10.1f}{peer:>10.1f}{speed / peer:>8.2f}{memory:>8.2f}{100 * share:>8.0f}%", flush=True)
        runs.append({"model": name, "batch": batch, "sequence": sequence, "ratio": speed / peer, "memory_ratio": memory,
                     "utilisation": share, "pairs": pairs})
if a.out:
    machine = {"processor": processor(), "system": platform.system(), "threads": os.cpu_count()}
    with open(a.out, "w") as file:
        json.dump({"schema": 1, "machine": machine, "runs": runs}, file, indent=1)
