"""Loss curves in bf16 beside f32, of tunebox and of PyTorch, on the same steps from the same adapter: SFT and DPO.

Usage: compare_compute.py TUNEBOX MODEL OUT.json [--steps 6] [--batch 2] [--only sft,dpo]        TUNEBOX is the program
SFT is beside peft_steps.py, DPO beside trl_preference.py. The records are those of pairs.jsonl; SFT takes their chosen answers
where a prompt ends with a line, so that both sides cut them into the same tokens. OUT.json gets all curves.
Fails where tunebox in bf16 differs from f32, over all steps, by more than PyTorch does, in the mean of either loss or
gradient norm.
"""
import argparse, json, os, subprocess, sys, tempfile

p = argparse.ArgumentParser()
p.add_argument("program"); p.add_argument("model"); p.add_argument("out")
p.add_argument("--steps", type=int, default=6); p.add_argument("--batch", type=int, default=2); p.add_argument("--only", default="sft,dpo")
a = p.parse_args()
HERE = os.path.dirname(os.path.abspath(__file__))
PAIRS = os.path.join(HERE, "pairs.jsonl")
RATES = {"sft": 2e-4, "dpo": 1e-5}
METHODS = {"sft": "lora", "dpo": "dpo"}


def peer(script, *arguments):
    subprocess.run([sys.executable, os.path.join(HERE, script), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def theirs(kind, compute, adapter, folder):
    """PyTorch's losses and gradient norms. The first call also makes the adapter."""
    out = os.path.join(folder, f"{kind}-{compute}.json")
    sizes = ["--steps", a.steps, "--batch", a.batch, "--rate", RATES[kind], *(["--make"] if not os.path.exists(adapter) else [])]
    if kind == "sft":
        peer("peft_steps.py", a.model, os.path.join(folder, "sft.jsonl"), adapter, out, "--dtype", compute, *sizes)
        steps = json.load(open(out))["steps"]
        return {"loss": [step["loss"] for step in steps], "gradient-norm": [step["gradient_norm"] for step in steps]}
    peer("trl_preference.py", a.model, adapter, out, "--only", kind, *sizes, *(["--bf16"] if compute == "bf16" else []))
    return json.load(open(out))["methods"][kind]


def ours(kind, compute, adapter, folder):
    """The losses and gradient norms of tunebox."""
    data = PAIRS if kind == "dpo" else os.path.join(folder, "sft.jsonl")
    settings = [f"method.use={METHODS[kind]}", f"model.adapter={adapter}", "data.shuffle=false", f"train.compute={compute}", f"train.steps={a.steps}",
                f"train.batch={a.batch}", f"train.rate={RATES[kind]}", f"run.name={kind}-{compute}", f"run.folder={folder}"]
    start = [a.program, "train", "--quiet", "--model", os.path.abspath(a.model), "--data", data]
    subprocess.run(start + [word for setting in settings for word in ("--set", setting)], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(os.path.join(folder, f"{kind}-{compute}", "metrics.jsonl"))]
    return {key: [row[key] for row in rows if "loss" in row] for key in ("loss", "gradient-norm")}


def apart(curves, key):
    """The mean over all steps of how far bf16 lies from f32, as a share of the mean in f32."""
    pairs = list(zip(curves["bf16"][key], curves["f32"][key], strict=True))
    return sum(abs(half - single) for half, single in pairs) / sum(abs(single) for _, single in pairs)


found, worse = {"steps": a.steps, "batch": a.batch, "curves": {}, "apart": {}}, []
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "sft.jsonl"), "w") as file:
        for line in open(PAIRS):
            record = json.loads(line)
            if not record["prompt"].endswith("\n"): continue
            file.write(json.dumps({"prompt": record["prompt"], "completion": record["chosen"]}) + "\n")
    for kind in a.only.split(","):
        adapter = os.path.join(folder, f"{kind}-adapter")
        sides = {"PyTorch": theirs, "tunebox": ours}
        curves = {name: {compute: side(kind, compute, adapter, folder) for compute in ("f32", "bf16")} for name, side in sides.items()}
        found["curves"][kind] = curves
        found["apart"][kind] = {name: {key: apart(curves[name], key) for key in ("loss", "gradient-norm")} for name in sides}
        print(kind, json.dumps(found["apart"][kind]), flush=True)
        worse += [(kind, key) for key in ("loss", "gradient-norm")
                  if found["apart"][kind]["tunebox"][key] > found["apart"][kind]["PyTorch"][key]]
        json.dump(found, open(a.out, "w"), indent=1)
assert not worse, f"further from f32 than PyTorch: {worse}"
