"""Golden numbers for tests/families.rs: what transformers computes with tiny models of every family.

Usage: python families.py [NAME...]  writes families/*.json beside this file, or only those named
Needs: torch, transformers 5, peft (CPU is enough, seconds)

No weights are stored. Value i of a tensor is made from the tensor's name and i alone (see `noise`), so the test makes
the same weights in Rust, bit for bit. Each file holds the configuration as it would be published, the token ids, the
log-probability of every token given those before it, in f32 and in f64, a greedy continuation, and for families whose
maps or scores are made in their own way the gradients of an adapter.

The gradients are those of the sum of the log-probabilities in f64, by PEFT, for a low-rank pair on every linear map of the
blocks, its values made like the weights. Of each the file keeps its length and its product with noise of its own name.

In f64 the norms and the softmax are computed in f64 as well; only the rotation's cosines and sines stay f32.
"""
import json, pathlib, sys
import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT, LENGTH, GREEDY = 16, 48, 24
RANK, ALPHA = 4, 6
BASE = dict(hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=272, max_position_embeddings=512, rms_norm_eps=1e-5, eos_token_id=1, bos_token_id=2)
CASES = {
    # Llama 3: a head width of its own, a head of its own, frequencies scaled inside the length of the test.
    "llama3": dict(model_type="llama", head_dim=24, rope_theta=10000.0, tie_word_embeddings=False, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    # Llama with every bias that it knows, as many key heads as query heads, and stretched positions.
    "llama_biases": dict(model_type="llama", num_key_value_heads=4, attention_bias=True, mlp_bias=True,
                         tie_word_embeddings=True, rope_theta=500.0, rope_scaling=dict(type="linear", factor=4.0)),
    "mistral": dict(model_type="mistral", head_dim=32, sliding_window=12, rope_theta=1e6, tie_word_embeddings=False),
    "qwen2": dict(model_type="qwen2", tie_word_embeddings=True, rope_theta=1e6, use_sliding_window=True,
                  sliding_window=10, max_window_layers=2),
    # The ramp starts and ends between the first frequency and the last.
    "qwen2_yarn": dict(model_type="qwen2", tie_word_embeddings=False, rope_theta=1e4, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=256, beta_fast=4.0)),
    "qwen3": dict(model_type="qwen3", head_dim=32, rope_theta=1e6, tie_word_embeddings=True),
    # Mixtral: experts under other names, weights of a token's experts that add up to 1.
    "mixtral": dict(model_type="mixtral", rope_theta=1e6, tie_word_embeddings=False, num_local_experts=6,
                    num_experts_per_tok=2),
    # Qwen3-MoE: weights of a token's experts that add up to 1, experts narrower than the width that no block uses.
    "qwen3_moe": dict(model_type="qwen3_moe", head_dim=24, rope_theta=1e6, tie_word_embeddings=False, num_experts=10,
                      num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=True),
    # OLMoE: norms over all features of queries and keys, weights that add up to less than 1.
    "olmoe": dict(model_type="olmoe", rope_theta=1e4, tie_word_embeddings=False, num_experts=8, num_experts_per_tok=2,
                  pad_token_id=0),
    # OLMo 2: norms after attention and feed-forward alone, norms over all features of queries and of keys.
    "olmo2": dict(model_type="olmo2", rope_theta=1e4, tie_word_embeddings=False, pad_token_id=0),
    # OLMo 3: three local layers before each global one, whose rotation alone is scaled.
    "olmo3": dict(model_type="olmo3", num_hidden_layers=5, rope_theta=5e5, tie_word_embeddings=False, pad_token_id=0,
                  sliding_window=12, rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0,
                                                       original_max_position_embeddings=128)),
    # Granite: multipliers on embeddings, scores, what is added to the residual stream, and logits.
    "granite": dict(model_type="granite", rope_theta=1e4, tie_word_embeddings=True, pad_token_id=0,
                    embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.22, logits_scaling=0.7),
    # SmolLM3: the fourth of five layers without positions.
    "smollm3": dict(model_type="smollm3", num_hidden_layers=5, rope_theta=5e6, tie_word_embeddings=True, pad_token_id=0),
    # Phi-3 as in its short form: as many key heads as query heads, a window.
    "phi3": dict(model_type="phi3", num_key_value_heads=4, sliding_window=12, rope_theta=1e4, pad_token_id=0,
                 tie_word_embeddings=False, rope_scaling=None),
    # Phi-3.5: a long context of which the text stays inside the first part, so that the short factors hold.
    "phi3_short": dict(model_type="phi3", num_key_value_heads=4, sliding_window=262144, rope_theta=1e4, pad_token_id=0,
                       tie_word_embeddings=False, original_max_position_embeddings=64, rope_scaling=dict(
                           type="longrope", short_factor=[1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 2.4, 2.8],
                           long_factor=[1.1, 1.5, 2.0, 3.0, 4.5, 6.5, 9.0, 12.0])),
    # Phi-4-mini: heads that turn in part, and a text longer than the first part; the greedy continuation crosses its end.
    "phi4_mini": dict(model_type="phi3", rope_theta=1e4, pad_token_id=0, tie_word_embeddings=True, sliding_window=262144,
                      partial_rotary_factor=0.75, original_max_position_embeddings=32, rope_scaling=dict(
                          type="longrope", short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
                          long_factor=[1.1, 1.6, 2.5, 4.0, 8.0, 15.0])),
    # GLM-4-0414: heads that turn in part, in adjacent pairs, four norms under other names, biases on query, key and value.
    "glm4": dict(model_type="glm4", head_dim=32, rope_theta=1e4, pad_token_id=0, tie_word_embeddings=False,
                 partial_rotary_factor=0.5, attention_bias=True),
    # Gemma 2: caps that scores and logits run into, windows smaller than the text, a score scale of its own.
    "gemma2": dict(model_type="gemma2", num_hidden_layers=4, head_dim=32, query_pre_attn_scalar=20, sliding_window=8,
                   attn_logit_softcapping=3.0, final_logit_softcapping=4.0, rope_theta=1e4),
    # Gemma 3 in the older form: one local layer for each global one, windows far smaller than the text, a score scale
    # that is not the head's width, the global rotation stretched.
    "gemma3": dict(model_type="gemma3_text", num_hidden_layers=4, head_dim=32, query_pre_attn_scalar=20,
                   sliding_window=8, sliding_window_pattern=2, rope_theta=1e6, rope_local_base_freq=1e4,
                   final_logit_softcapping=20.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
}
WITH_GRADIENTS = ["gemma2", "smollm3", "phi3", "phi4_mini", "glm4", "mixtral", "qwen3_moe", "olmoe", "olmo2", "granite"]


def noise(name, count):
    """`count` numbers in [-1, 1): FNV-1a of the name, then splitmix64 from there, the upper 24 bits of each."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)


def weight(name, shape, unit_offset):
    values = noise(name, int(np.prod(shape))).reshape(shape)
    if name.endswith("norm.weight"):
        return np.float32(0.0 if unit_offset else 1.0) + np.float32(0.25) * values
    return np.float32(0.25) * values


def expert_weights(name, shape):
    """All experts' matrices of one parameter of transformers, which joins gate and up; files hold each alone."""
    path, count = name.rpartition(".")[0], shape[0]
    gate, up, down = ("w1", "w3", "w2") if "block_sparse_moe" in name else ("gate_proj", "up_proj", "down_proj")
    if name.endswith("down_proj"):
        maps = [(down, shape[1:])]
    else:
        maps = [(gate, (shape[1] // 2, shape[2])), (up, (shape[1] // 2, shape[2]))]
    one = lambda expert: [weight(f"{path}.{expert}.{part}.weight", sides, False) for part, sides in maps]
    return np.stack([np.concatenate(one(expert)) for expert in range(count)])


def fill(model, unit_offset):
    tied = model.config.tie_word_embeddings
    for name, parameter in model.named_parameters():
        assert not (tied and name == "lm_head.weight"), "a tied head is no parameter"
        shape = tuple(parameter.shape)
        if model.config.model_type == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        values = expert_weights(name, shape) if len(shape) == 3 else weight(name, shape, unit_offset)
        parameter.data.copy_(torch.from_numpy(values))


def has_experts(config):
    return hasattr(config, "num_experts_per_tok")


def in_double(model, unit_offset):
    """The same model in f64. The library's norms and its plain softmax go through f32, whatever the model is."""
    model = model.double()
    if model.config._attn_implementation == "eager" or has_experts(model.config):
        softmax = torch.softmax
        torch.nn.functional.softmax = lambda x, dim, dtype=None: softmax(x, dim)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            epsilon = getattr(module, "variance_epsilon", None) or module.eps
            scale = module.weight + 1.0 if unit_offset else module.weight
            module.forward = lambda x, e=epsilon, s=scale: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + e) * s
    return model


def logprobs(model, ids):
    logits = model(torch.tensor([ids])).logits[0, :-1]
    return logits.double().log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


def rounded(values):
    return [round(value, 10) for value in values.tolist()]


@torch.enable_grad()
def gradients(model, ids):
    """Length, and product with noise, of every gradient of an adapter, by the name that PEFT saves the tensor under."""
    # PEFT's own choice would adapt router and experts too.
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"] if has_experts(model.config) else "all-linear"
    adapted = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, task_type="CAUSAL_LM"))
    adapted = adapted.double().eval()
    parameters = {name.replace(".default", ""): one for name, one in adapted.named_parameters() if one.requires_grad}
    for name, parameter in parameters.items():
        parameter.data.copy_(torch.from_numpy(weight(name, tuple(parameter.shape), False)))
    logprobs(adapted, ids).sum().backward()
    found = {}
    for name, parameter in parameters.items():
        along = torch.from_numpy(noise("along " + name, parameter.numel()).astype(np.float64)).reshape(parameter.shape)
        found[name] = [float(f"{value:.10g}") for value in (parameter.grad.norm(), (parameter.grad * along).sum())]
    return found


@torch.no_grad()
def case(name, config):
    config = {**BASE, **config}
    parsed = AutoConfig.for_model(**config)
    # The fused attention knows no cap on scores.
    attention = "eager" if "attn_logit_softcapping" in config else "sdpa"
    experts = dict(experts_implementation="eager") if has_experts(parsed) else {}
    model = AutoModelForCausalLM.from_config(parsed, dtype=torch.float32, attn_implementation=attention, **experts).eval()
    unit_offset = config["model_type"].startswith("gemma")
    fill(model, unit_offset)
    ids = [int((value + 1) / 2 * config["vocab_size"]) for value in noise("ids of " + name, LENGTH)]
    greedy = model.generate(torch.tensor([ids[:PROMPT]]), max_new_tokens=GREEDY, do_sample=False, eos_token_id=None,
                            pad_token_id=0, use_cache=False)[0, PROMPT:].tolist()
    single = rounded(logprobs(model, ids))
    model = in_double(model, unit_offset)
    found = dict(made_by=f"tests/golden/families.py, transformers {transformers.__version__}, torch {torch.__version__}",
                 config=config, ids=ids, logprobs=single, logprobs_f64=rounded(logprobs(model, ids)), prompt=PROMPT,
                 greedy=greedy)
    if name in WITH_GRADIENTS:
        found |= dict(rank=RANK, alpha=ALPHA, gradients=gradients(model, ids))
    return found


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "families"
    for name, config in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        found = case(name, config)
        gap = max(abs(a - b) for a, b in zip(found["logprobs"], found["logprobs_f64"]))
        print(f"{name}: f32 and f64 differ by at most {gap:.1e}")
        (folder / f"{name}.json").write_text(json.dumps(found).replace('], "', '],\n "') + "\n")
