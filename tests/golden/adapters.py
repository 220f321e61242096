"""Golden numbers for tests/adapters.rs: writes adapters.json beside this file.

Needs: torch, transformers 5, peft (torch 2.8, transformers 5.24 and peft 0.21 wrote the file)

The model is `llama3` of families.py, whose weights the test makes as well. The file holds

- `modules`: for settings with regular expressions, `adapter_config.json` as PEFT saves it, and the rank and the scale that
  PEFT gives to each module;
- `initial`: for PiSSA and OLoRA, the length and the product with noise of each first A and B, with the sign of each pair of
  vectors such that A's product with noise is positive; the log-probabilities and the gradients in f64 after noise was added to
  A and B; and the rank, the alpha and the tensors' shapes of the plain adapter to which PEFT converts that;
- `whole`: for modules that are trained whole, on two models, of which `qwen2` has a tied head: `adapter_config.json` and the
  tensors' shapes as PEFT saves them, and the losses of steps of AdamW in f64;
- `noise`: log-probabilities in f64 of two rows by the hook of transformers for NEFTune, with the numbers of a random stream
  of the program (ChaCha12, see `stream`) in the place of torch's.
"""
import copy, hashlib, json, pathlib, struct, tempfile
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.neftune import neftune_post_forward_hook

from families import BASE, CASES, LENGTH, fill, in_double, logprobs, noise, rounded

CONFIG = {**BASE, **CASES["llama3"]}
IDS = [int((value + 1) / 2 * CONFIG["vocab_size"]) for value in noise("ids of llama3", LENGTH)]
MODULES = [
    dict(target_modules="all-linear", rank_pattern={"q_proj": 2, r"layers\.[12]\.mlp\..*": 8}, alpha_pattern={"layers.0.*": 3}),
    dict(target_modules=r".*\.(q|v)_proj", alpha_pattern={"v_proj": 1.5}, use_rslora=True),
    dict(target_modules=r"model\.layers\.[01]\..*(?<!k)_proj", exclude_modules=r".*mlp.*"),
    dict(target_modules=["q_proj", "mlp.down_proj"], layers_to_transform=[0, 2],
         rank_pattern={"^model.layers.0.self_attn.q_proj$": 5, "q_proj": 6}),
]
INITIAL = [dict(init_lora_weights="pissa"), dict(init_lora_weights="olora"),
           dict(init_lora_weights="pissa", use_rslora=True)]
WHOLE = [("qwen2", dict(modules_to_save=["embed_tokens"])), ("qwen2", dict(modules_to_save=["lm_head"])),
         ("qwen2", dict(modules_to_save=["embed_tokens", "lm_head"])),
         ("qwen2", dict(modules_to_save=["lm_head"], ensure_weight_tying=True)),
         ("llama3", dict(modules_to_save=["embed_tokens", "lm_head"])),
         ("llama3", dict(modules_to_save=["norm", "mlp.down_proj"]))]
RANK, ALPHA, NEFTUNE_ALPHA, SEED, STEPS, RATE = 4, 6, 5.0, 11, 5, 1e-2


def model(config=CONFIG):
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32).eval()
    fill(made, False)
    return made


def number(value):
    return float(f"{value:.9g}")


def summary(name, tensor):
    along = torch.from_numpy(noise("along " + name, tensor.numel()).astype(np.float64)).reshape(tensor.shape)
    return [number(tensor.double().norm()), number((tensor.double() * along).sum())]


def modules(settings):
    adapted = get_peft_model(model(), LoraConfig(r=RANK, lora_alpha=ALPHA, task_type="CAUSAL_LM", **settings))
    found = {name.removeprefix("base_model.model."): [module.r["default"], number(module.scaling["default"])]
             for name, module in adapted.named_modules() if hasattr(module, "lora_A")}
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        config = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())
    if isinstance(config["target_modules"], list):
        # PEFT writes a set, in any order.
        config["target_modules"].sort()
    return dict(config=config, modules=found)


def initial(settings):
    with torch.no_grad():
        config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM", **settings)
        adapted = get_peft_model(model(), config)
    folder = tempfile.mkdtemp()
    first, pairs = {}, [(name.removeprefix("base_model.model."), module) for name, module in adapted.named_modules()
                        if hasattr(module, "lora_A")]
    for name, module in pairs:
        a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
        signs = torch.sign((a.data * torch.from_numpy(noise("sign " + name, a.shape[1]))).sum(1))
        a.data, b.data = a.data * signs[:, None], b.data * signs
        for suffix, tensor in ("lora_A.weight", a), ("lora_B.weight", b):
            first[f"{name}.{suffix}"] = summary(f"{name}.{suffix}", tensor.data)
    adapted.peft_config["default"].init_lora_weights = True
    adapted.save_pretrained(folder + "/first")
    for name, module in pairs:
        for suffix, tensor in ("lora_A.weight", module.lora_A), ("lora_B.weight", module.lora_B):
            tensor = tensor["default"].weight
            change = noise(f"change {name}.{suffix}", tensor.numel()).reshape(tensor.shape)
            tensor.data += 0.05 * torch.from_numpy(change)
    adapted.peft_config["default"].init_lora_weights = settings["init_lora_weights"]
    adapted.save_pretrained(folder + "/plain", path_initial_model_for_weight_conversion=folder + "/first")
    plain = json.loads(pathlib.Path(folder + "/plain/adapter_config.json").read_text())
    in_double(adapted, False)
    trained = {name.removeprefix("base_model.model.").replace(".default", ""): one
               for name, one in adapted.named_parameters() if "lora_" in name}
    scores = logprobs(adapted, IDS)
    scores.sum().backward()
    return dict(settings=settings, first=first, logprobs=rounded(scores.detach()), r=plain["r"], alpha=plain["lora_alpha"],
                gradients={name: summary(name, one.grad) for name, one in trained.items()})


def whole(family, given):
    config = {**BASE, **CASES[family]}
    adapted = get_peft_model(model(config), LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear",
                                                       task_type="CAUSAL_LM", **copy.deepcopy(given)))
    for name, one in adapted.named_parameters():
        if "lora_" in name:
            name = name.removeprefix("base_model.model.").replace(".default", "")
            one.data.copy_(torch.from_numpy(0.25 * noise(name, one.numel())).reshape(one.shape))
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        saved = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())
        tensors = load_file(folder + "/adapter_model.safetensors")
    saved["target_modules"].sort()
    in_double(adapted, False)
    optimizer = torch.optim.AdamW([one for one in adapted.parameters() if one.requires_grad], lr=RATE, weight_decay=0.0)
    ids = [int((value + 1) / 2 * config["vocab_size"]) for value in noise("ids of " + family, LENGTH)]
    losses = []
    for _ in range(STEPS):
        loss = -logprobs(adapted, ids).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return dict(family=family, settings=given, config=saved, losses=losses,
                tensors={name: list(tensors[name].shape) for name in sorted(tensors)})


def stream(seed, name, count):
    """`count` numbers in [0, 1): the words of ChaCha12 with the key SHA-256(`tunebox stream` 0 seed name), upper 24 bits."""
    key = hashlib.sha256(b"tunebox stream\0" + struct.pack("<Q", seed) + name.encode()).digest()
    blocks = -(-count // 16)
    start = np.zeros((16, blocks), dtype=np.uint32)
    start[:4] = np.frombuffer(b"expand 32-byte k", dtype="<u4")[:, None]
    start[4:12] = np.frombuffer(key, dtype="<u4")[:, None]
    start[12] = np.arange(blocks, dtype=np.uint32)
    words = start.copy()

    def quarter(a, b, c, d):
        for to, other, into, by in (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7):
            words[to] += words[other]
            mixed = words[into] ^ words[to]
            words[into] = mixed << np.uint32(by) | mixed >> np.uint32(32 - by)

    for _ in range(6):
        for at in range(4):
            quarter(at, at + 4, at + 8, at + 12)
        for at in range(4):
            quarter(at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4)
    words += start
    return (words.T.reshape(-1)[:count] >> np.uint32(8)).astype(np.float64) / 2**24


@torch.no_grad()
def noisy():
    """Two rows whose tokens before the last are packed one after another, as the program does."""
    made, rows, hidden = in_double(model(), False).train(), [IDS, IDS[:20]], CONFIG["hidden_size"]
    packed = sum(len(row) - 1 for row in rows)
    draws = stream(SEED, "neftune/0/0", packed * hidden).reshape(packed, hidden)
    embedding = made.get_input_embeddings()
    embedding.neftune_noise_alpha = NEFTUNE_ALPHA
    embedding.register_forward_hook(neftune_post_forward_hook)
    found, at, uniform = [], 0, torch.Tensor.uniform_
    for row in rows:
        own = np.full((len(row), hidden), 0.5)
        own[:-1] = draws[at:at + len(row) - 1]
        torch.Tensor.uniform_ = lambda self, low, high: self.copy_(low + (high - low) * torch.from_numpy(own)[None])
        found.append(rounded(logprobs(made, row)))
        at += len(row) - 1
    torch.Tensor.uniform_ = uniform
    return dict(alpha=NEFTUNE_ALPHA, seed=SEED, lengths=[len(row) for row in rows], logprobs=found)


if __name__ == "__main__":
    found = dict(rank=RANK, alpha=ALPHA, modules=[modules(one) for one in MODULES],
                 initial=[initial(one) for one in INITIAL], whole=[whole(*one) for one in WHOLE],
                 noise=noisy())
    text = json.dumps(found).replace('}, {"', '},\n {"').replace('], "', '],\n "')
    (pathlib.Path(__file__).parent / "adapters.json").write_text(text + "\n")
