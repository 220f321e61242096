"""Compares tunebox with what trl_preference.py wrote: losses and gradient norms, step by step.

Usage: compare_preference.py TUNEBOX MODEL ADAPTER_DIR TRL.json        TUNEBOX is the program
Fails where a loss differs by more than 3e-4 of itself, or a gradient norm by more than 1e-3.
"""
import json, os, sys, tempfile
import shared

program, model, adapter, peer = sys.argv[1:5]
peer = json.load(open(peer))
HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = {"dpo": ["method.use=dpo"], "orpo": ["method.use=orpo"], "cpo": ["method.use=cpo"],
            "simpo": ["method.use=cpo", "method.loss=simpo", "method.nll-weight=0", "method.beta=2.5", "method.gamma=1.375"],
            "kto": ["method.use=kto", "method.undesirable-weight=1.33"]}
DISTILL = ["method.use=distill", "method.sampling-temperature=0", "method.max-tokens=16", f"teacher.0.path={os.path.abspath(model)}"]
SETTINGS |= {name: DISTILL + [f"method.beta={beta}", f"method.on-policy={own}"] for name, beta, own in
             [("gkd-forward", 0, 0), ("gkd-mixed", 0.5, 0), ("gkd-reverse", 1, 0), ("gkd-own", 0.5, 1)]}
pairs = [json.loads(line) for line in open(os.path.join(HERE, "pairs.jsonl"))]
worst = {}
with tempfile.TemporaryDirectory() as folder:
    chosen = os.path.join(folder, "chosen.jsonl")
    with open(chosen, "w") as file:
        for r in pairs: file.write(json.dumps({"prompt": r["prompt"], "completion": r["chosen"]}) + "\n")
    labeled = os.path.join(folder, "labeled.jsonl")
    with open(labeled, "w") as file:
        for i, r in enumerate(pairs):
            file.write(json.dumps({"prompt": r["prompt"], "completion": r["rejected" if i % 2 else "chosen"], "label": i % 2 == 0}) + "\n")
    for name, wanted in peer["methods"].items():
        data = labeled if name == "kto" else chosen if name.startswith("gkd") else os.path.join(HERE, "pairs.jsonl")
        settings = SETTINGS[name] + [f"model.adapter={os.path.abspath(adapter)}", "train.compute=f32", f"train.steps={peer['steps']}",
            f"train.batch={peer['batch']}", f"train.rate={peer['rate']}", f"train.optimizer={peer['optimizer']}"]
        rows = shared.train(program, model, data, folder, name, settings)
        rows = [row for row in rows if "loss" in row]
        off = lambda key: max(abs(row[key] - w) / abs(w) for row, w in zip(rows, wanted[key], strict=True))
        worst[name] = {key: off(key) for key in ("loss", "gradient-norm")}
        print(name, worst[name], flush=True)
assert all(found["loss"] <= 3e-4 and found["gradient-norm"] <= 1e-3 for found in worst.values()), worst
