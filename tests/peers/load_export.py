"""Loads what `tunebox export` wrote into the program that it is for, and compares log-probabilities with the run's.

Usage: load_export.py FORMAT PATH SCORES.json [BASE]     SCORES.json: lines of `tunebox score RUN --text … --compute f32 --json`
FORMAT is hf (transformers), peft, mlx (mlx-lm), gguf or gguf-lora (llama.cpp by xllamacpp). BASE is the base model of an adapter: a
folder for peft and mlx, a GGUF file for gguf-lora. Prints the differences; a package that is not installed is named and skipped.
"""
import json, sys
import shared

format, path, scores = sys.argv[1:4]
base = sys.argv[4] if len(sys.argv) > 4 else None
rows = [row for row in map(json.loads, open(scores)) if "logprobs" in row]


def of_transformers():
    """A function from token ids to the log-probability of each token after the first, by transformers or PEFT."""
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(path if format == "hf" else base, dtype=torch.float32)
    if format == "peft":
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, path)
    model.eval()
    return lambda ids: shared.logprobs(model, ids).tolist()


def of_mlx():
    """As of_transformers, by mlx-lm with the adapter."""
    import mlx.core as mx
    from mlx_lm import load
    model, _ = load(base, adapter_path=path)
    model.set_dtype(mx.float32)

    def score(ids):
        logits = model(mx.array([ids]))[0].astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return [logprobs[at, token].item() for at, token in enumerate(ids[1:])]
    return score


def of_llama_cpp():
    """As of_transformers, by llama.cpp: one request for each token, which returns the probabilities of all tokens."""
    server = shared.llama_server(path) if format == "gguf" else shared.llama_server(base, path)

    def request(prompt, count):
        return shared.answered(server.handle_completions({"prompt": prompt, "max_tokens": 1, "logprobs": count, "temperature": 0, "cache_prompt": True}))
    for row in rows:
        if row["text"]:
            counted = request(row["text"], 1)["usage"]["prompt_tokens"]
            assert counted == len(row["ids"]), f"llama.cpp has {counted} tokens, tunebox {len(row['ids'])}"

    def score(ids):
        result = []
        for at in range(1, len(ids)):
            top = request(ids[:at], 1 << 18)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            result.append({entry["id"]: entry["logprob"] for entry in top}[ids[at]])
        return result
    return score


peers = {"hf": of_transformers, "peft": of_transformers, "mlx": of_mlx, "gguf": of_llama_cpp, "gguf-lora": of_llama_cpp}
try:
    score = peers[format]()
except ModuleNotFoundError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(0)
differences = []
for row in rows:
    found = score(row["ids"])
    differences += [abs(one - other) for one, other in zip(found, row["logprobs"][-len(found):], strict=True)]
assert differences, "there is nothing to compare"
print(json.dumps({"format": format, "tokens": len(differences), "worst": max(differences), "mean": sum(differences) / len(differences)}))
