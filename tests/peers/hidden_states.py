"""Residual-stream means, a refusal direction and a steering vector of a model, by transformers and hooks: compared with a run.

    hidden_states.py MODEL_FOLDER ABLITERATE_RUN STEER_RUN DATA_FOLDER

The runs were made with `method.hold-out` 2 and 0, `train.batch` of half or all of the records, and `data.shuffle=false`, so
that the first half of `abliterate.jsonl` and all of `steer.jsonl` make the means. Prints, layer by layer, the cosine and the
relative difference in length; fails below a cosine of 0.9999 or past 1e-3. Versions: requirements.txt beside this file.
"""
import json, os, sys
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

model_folder, abliterate, steer, data = sys.argv[1:5]
model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(model_folder)
read_lines = lambda name: [json.loads(line) for line in open(os.path.join(data, name))]


def ids(messages, prompt):
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=False)
    return tokenizer.encode(text, add_special_tokens=False)


def stream(tokens):
    """The input of every block and the output of the last one, before the final norm: [layers + 1, tokens, width]."""
    seen = []
    hooks = [layer.register_forward_pre_hook(lambda _, args, kwargs: seen.append((args[0] if args else kwargs["hidden_states"])[0]), with_kwargs=True) for layer in model.model.layers]
    hooks.append(model.model.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0][0])))
    with torch.no_grad():
        model(torch.tensor([tokens]))
    for hook in hooks:
        hook.remove()
    return torch.stack(seen).double()


def vectors(run):
    with safe_open(os.path.join(run, "vectors.safetensors"), "pt") as file:
        return {int(key.split(".")[1]): file.get_tensor(key).double() for key in file.keys()}, file.metadata()


worst = [1.0, 0.0]


def compare(name, ours, theirs):
    cosine = torch.nn.functional.cosine_similarity(ours, theirs, dim=0).item()
    length = abs(ours.norm() / theirs.norm() - 1).item()
    worst[0], worst[1] = min(worst[0], cosine), max(worst[1], length)
    print(f"{name}: cosine {cosine:.8f}, length off by {length:.1e}")


ours, facts = vectors(abliterate)
records = read_lines("abliterate.jsonl")
records = records[: len(records) // 2]
back = int(facts["token"].rsplit("-", 1)[1])
mean = lambda side: torch.stack([stream(ids([{"role": "user", "content": r[side]}], True))[:-1, -1 - back] for r in records]).mean(0)
harmful, harmless = mean("harmful"), mean("harmless")
for layer, vector in ours.items():
    compare(f"refusal direction, layer {layer}, token {back} from the end", vector, (harmful - harmless)[layer])

ours, facts = vectors(steer)
total = 0
records = read_lines("steer.jsonl")
for record in records:
    for side, sign in (("positive", 1), ("negative", -1)):
        whole, prompt = ids(record[side], False), ids(record[side][:-1], True)
        assert whole[: len(prompt)] == prompt and facts["token"].startswith("from-end-")
        total = total + sign * stream(whole)[1:, -1 - int(facts["token"].rsplit("-", 1)[1])]
for layer, vector in ours.items():
    compare(f"steering vector, layer {layer}", vector, total[layer] / len(records))

print(f"worst cosine {worst[0]:.8f}, worst length {worst[1]:.1e}")
sys.exit(worst[0] < 0.9999 or worst[1] > 1e-3)
