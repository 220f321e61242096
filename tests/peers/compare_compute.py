"""Loss curves in bf16 beside f32, of tunebox and of PyTorch, on the same updates from the same adapter: SFT, DPO and GRPO.

Usage: compare_compute.py TUNEBOX NAME=FOLDER [--out tests/peers/results] [--only sft,dpo,grpo]
TUNEBOX is the program, FOLDER a model and NAME what the table calls it. SFT is beside peft_steps.py, DPO beside trl_preference.py on
pairs.jsonl; SFT takes their chosen answers where a prompt ends with a line, so that both sides cut them into the same tokens. GRPO is
beside trl_recorded_grpo.py: completions of its own would differ from the first token that two number formats choose differently, so all
four runs learn from recorded ones, tunebox by the method in recorded_grpo/, whose loss is that of methods/grpo. `--out` puts all curves
into the file of this kind of machine. Fails where tunebox in f32 lies far from PyTorch in f32, or tunebox in bf16 differs from f32, over
all updates, by more than PyTorch does, in the mean of loss, gradient norm or (GRPO) KL.
"""
import argparse, json, os, subprocess, sys, tempfile, typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "speed"))
import machine, shared, sides
from report import Report


class Kind(typing.NamedTuple):
    """A method of both sides, and its updates."""

    name: str
    method: str
    rate: float
    updates: int
    batch: int
    things: str
    keys: tuple = ("loss", "gradient-norm")


KINDS = {"sft": Kind("SFT", "lora", 2e-4, 6, 2, "answers"), "dpo": Kind("DPO", "dpo", 1e-5, 6, 2, "pairs"),
         "grpo": Kind("GRPO", "recorded-grpo.wasm", 2e-4, 8, 4, "completions", ("loss", "gradient-norm", "kl"))}
# How far the two sides may lie from each other in f32, as a share of the mean.
SAME = 1e-3
PAIRS = os.path.join(HERE, "pairs.jsonl")

p = argparse.ArgumentParser()
p.add_argument("program"); p.add_argument("model"); p.add_argument("--out"); p.add_argument("--only", default="sft,dpo,grpo")
a = p.parse_args()
name, _, model = a.model.partition("=")
machine.check()


def peer(script, *arguments):
    subprocess.run([sys.executable, os.path.join(HERE, script), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def theirs(kind, compute, folder):
    """PyTorch's curves. The first call also makes the adapter, and the records of GRPO."""
    own, adapter, out = KINDS[kind], os.path.join(folder, f"{kind}-adapter"), os.path.join(folder, f"{kind}-{compute}.json")
    records, make = os.path.join(folder, f"{kind}.jsonl"), [] if os.path.exists(adapter) else ["--make"]
    sizes = ["--steps", own.updates, "--rate", own.rate]
    bf16 = ["--bf16"] if compute == "bf16" else []
    if kind == "sft":
        peer("peft_steps.py", model, records, adapter, out, "--dtype", compute, "--batch", own.batch, *sizes, *make)
        steps = json.load(open(out))["steps"]
        return {"loss": [step["loss"] for step in steps], "gradient-norm": [step["gradient_norm"] for step in steps]}
    if kind == "grpo":
        peer("trl_recorded_grpo.py", model, adapter, records, out, "--group", own.batch, *sizes, *bf16, *(make and ["--make", a.program]))
        return json.load(open(out))
    peer("trl_preference.py", model, adapter, out, "--only", kind, "--batch", own.batch, *sizes, *bf16, *make)
    return json.load(open(out))["methods"][kind]


def ours(kind, compute, folder):
    """The curves of tunebox."""
    own, adapter = KINDS[kind], os.path.join(folder, f"{kind}-adapter")
    method = os.path.join(folder, own.method) if kind == "grpo" else own.method
    settings = [f"method.use={method}", f"model.adapter={adapter}", f"train.compute={compute}", f"train.steps={own.updates}",
                f"train.batch={own.batch}", f"train.rate={own.rate}"]
    if kind == "grpo":
        settings += ["method.beta=0.04"]
    rows = shared.train(a.program, model, os.path.join(folder, f"{kind}.jsonl"), folder, f"{kind}-{compute}", settings)
    return {key: [row[key] for row in rows if "loss" in row] for key in own.keys}


def prepare(kind, folder):
    """Writes the records, but for those of GRPO, and builds the method of GRPO."""
    records = [json.loads(line) for line in open(PAIRS)]
    if kind == "grpo":
        subprocess.run([a.program, "build", "--quiet", os.path.join(HERE, "recorded_grpo"), "--out", os.path.join(folder, KINDS[kind].method)], check=True)
        return
    if kind == "sft":
        records = [{"prompt": record["prompt"], "completion": record["chosen"]} for record in records if record["prompt"].endswith("\n")]
    with open(os.path.join(folder, f"{kind}.jsonl"), "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def apart(found, wanted):
    """The mean over all updates of how far two curves lie apart, as a share of the mean of the second."""
    return sum(abs(one - other) for one, other in zip(found, wanted, strict=True)) / sum(map(abs, wanted))


def run(kind):
    """All curves of a kind by side and number format, to seven digits."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(kind, folder)
        curves = {side: {compute: run(kind, compute, folder) for compute in ("f32", "bf16")} for side, run in (("PyTorch", theirs), ("tunebox", ours))}
    digits = lambda curve: [float(f"{value:.7g}") for value in curve]
    return {side: {compute: {key: digits(found[key]) for key in KINDS[kind].keys} for compute, found in own.items()} for side, own in curves.items()}


report, wrong = Report("formats", sides.versions(a.program)), []
for kind in a.only.split(","):
    own, curves = KINDS[kind], run(kind)
    row = report.row(name, f"{own.name}, {own.updates} × {own.batch} {own.things}", "curves")
    row.data["sides"] = {side: [found] for side, found in curves.items()}
    for key in own.keys:
        mine, peers = (apart(curves[side]["bf16"][key], curves[side]["f32"][key]) for side in ("tunebox", "PyTorch"))
        same = apart(curves["tunebox"]["f32"][key], curves["PyTorch"]["f32"][key])
        print(f"{name}, {own.name}, {key}: bf16 {mine:.2%} from f32, in PyTorch {peers:.2%}; f32 {same:.1e} from PyTorch's", flush=True)
        wrong += [(kind, key)] * (mine > peers or same > SAME)
    if a.out:
        report.merge(os.path.join(a.out, machine.kind() + ".json"))
assert not wrong, f"further from f32 than PyTorch, or in f32 from PyTorch: {wrong}"
