"""What several peers share: models from a folder or a GGUF file, log-probabilities, llama.cpp, losses of TRL, runs of tunebox."""

import json, os, subprocess


def source(path):
    """The arguments with which transformers loads a folder or a .gguf file."""
    if not path.endswith(".gguf"):
        return {"pretrained_model_name_or_path": path}
    folder, name = os.path.split(os.path.abspath(path))
    return {"pretrained_model_name_or_path": folder, "gguf_file": name}


def logprobs(model, ids):
    """The log-probability of each token after the first, in f64, by transformers."""
    import torch
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    return logits[:-1].log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


def llama_server(path, adapter=None):
    """llama.cpp (by xllamacpp) with a GGUF file, and perhaps the GGUF file of an adapter."""
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = path
    if adapter:
        one = xllamacpp.CommonAdapterLoraInfo()
        one.path, one.scale = adapter, 1.0
        params.lora_adapters = [one]
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 512, 1, False, 0
    return xllamacpp.Server(params)


def answered(answer):
    """What a function of llama.cpp's server answers, as Python values."""
    return json.loads(answer) if isinstance(answer, (str, bytes)) else answer


def train_by_trl(trainer, compute="compute_loss"):
    """Trains by a trainer of TRL; returns the loss of every call of its function `compute`, and what it logged of every step."""
    losses, compute_loss = [], getattr(trainer, compute)

    def recorded(*arguments, **named):
        loss = compute_loss(*arguments, **named)
        losses.append(float(loss))
        return loss

    setattr(trainer, compute, recorded)
    trainer.train()
    return losses, [entry for entry in trainer.state.log_history if "grad_norm" in entry]


def train(program, model, data, folder, name, settings):
    """Trains by tunebox without shuffling, as the run `name` in `folder`; returns the rows of its metrics."""
    settings = [*settings, "data.shuffle=false", f"run.name={name}", f"run.folder={folder}"]
    start = [program, "train", "--quiet", "--model", os.path.abspath(model), "--data", data]
    subprocess.run(start + [word for setting in settings for word in ("--set", setting)], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in open(os.path.join(folder, name, "metrics.jsonl"))]
