"""A folder with a Llama of random weights, in Hugging Face's layout: what speed needs of a model, without a download.

Usage: random_folder.py SHAPE FOLDER [--dtype bf16] [--device cpu] [--shard-gb 4]
SHAPE is `0.5b` (the sizes of Qwen 2.5 0.5B), `1b` (Llama 3.2 1B), `8b` (Llama 3.1 8B), `tiny`, `8b-4`, `8b-1`, `0.5b-1`
(so many blocks of these), or `words-32768` (4 blocks of 512 with so many words). Matrices are normal with deviation 0.02, drawn from a seed of their own name, norms are 1. The tokenizer knows single
bytes. Needs torch, safetensors and tokenizers; `--device cuda` draws the numbers there. A folder that has its index already
is left as it is.
"""
import argparse, json, os, zlib
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ROTATION = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
SHAPES = {
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "tie_word_embeddings": True},
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 151936, "tie_word_embeddings": True},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False},
}
SHAPES |= {"8b-4": {**SHAPES["8b"], "num_hidden_layers": 4}, "8b-1": {**SHAPES["8b"], "num_hidden_layers": 1},
           "0.5b-1": {**SHAPES["0.5b"], "num_hidden_layers": 1}}
SHAPES |= {f"words-{words}": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8,
                              "num_key_value_heads": 4, "head_dim": 64, "vocab_size": words, "tie_word_embeddings": True}
           for words in (32_768, 131_072, 262_144)}
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
BEGIN, END = "<|begin|>", "<|end|>"
TEMPLATE = "{% for message in messages %}{{ '" + BEGIN + "' + message['role'] + '\\n' + message['content'] + '" + END + \
           "' }}{% endfor %}{% if add_generation_prompt %}{{ '" + BEGIN + "assistant\\n' }}{% endif %}"
INDEX = "model.safetensors.index.json"


def weights(sizes):
    """Names and shapes of all weights, in the order of a pass."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    heads, keys = (sizes[key] * sizes["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens.weight", (sizes["vocab_size"], hidden)
    for layer in range(sizes["num_hidden_layers"]):
        of = f"model.layers.{layer}."
        yield of + "input_layernorm.weight", (hidden,)
        for name, rows, columns in [("q", heads, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, heads)]:
            yield f"{of}self_attn.{name}_proj.weight", (rows, columns)
        yield of + "post_attention_layernorm.weight", (hidden,)
        for name, rows, columns in [("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)]:
            yield f"{of}mlp.{name}_proj.weight", (rows, columns)
    yield "model.norm.weight", (hidden,)
    if not sizes["tie_word_embeddings"]:
        yield "lm_head.weight", (sizes["vocab_size"], hidden)


def numbers(name, shape, dtype, device):
    if len(shape) == 1:
        return torch.ones(shape, dtype=dtype)
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).mul_(0.02).to(dtype).cpu()


def shards(sizes, dtype, most):
    """Lists of names and shapes, each of at most so many bytes."""
    part, held = [], 0
    for name, shape in weights(sizes):
        size = torch.Size(shape).numel() * dtype.itemsize
        if part and held + size > most:
            yield part
            part, held = [], 0
        part.append((name, shape))
        held += size
    yield part


def write_weights(folder, sizes, dtype, device, most):
    parts = list(shards(sizes, dtype, most))
    where, total = {}, 0
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        made = {name: numbers(name, shape, dtype, device) for name, shape in part}
        save_file(made, os.path.join(folder, file), metadata={"format": "pt"})
        where |= {name: file for name in made}
        total += sum(tensor.nbytes for tensor in made.values())
    with open(os.path.join(folder, INDEX), "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, out)
    return total


def write_tokenizer(folder):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([BEGIN, END])
    made.save(os.path.join(folder, "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "chat_template": TEMPLATE,
              "clean_up_tokenization_spaces": False}
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
        json.dump(config, out)
    return made.token_to_id(END)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("shape", choices=SHAPES); p.add_argument("folder")
    p.add_argument("--dtype", choices=TYPES, default="bf16"); p.add_argument("--device", default="cpu")
    p.add_argument("--shard-gb", type=float, default=4.0)
    a = p.parse_args()
    if os.path.exists(os.path.join(a.folder, INDEX)):
        return print(json.dumps({"folder": a.folder, "made": False}))
    os.makedirs(a.folder, exist_ok=True)
    sizes = SHAPES[a.shape]
    end = write_tokenizer(a.folder)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": str(TYPES[a.dtype]).split(".")[1],
              "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": ROTATION,
              "max_position_embeddings": 131072, "attention_bias": False, "mlp_bias": False, "initializer_range": 0.02,
              "eos_token_id": end, **sizes}
    with open(os.path.join(a.folder, "config.json"), "w") as out:
        json.dump(config, out, indent=2)
    # The index comes last: a folder without it is not whole.
    total = write_weights(a.folder, sizes, TYPES[a.dtype], a.device, int(a.shard_gb * 1e9))
    print(json.dumps({"folder": a.folder, "made": True, "bytes": total}))


main()
