"""Golden numbers for tests/reward_models.rs: the logits that transformers computes with tiny reward models.

Usage: python reward_models.py  writes reward_models/*.json beside this file
Needs: what families.py needs (CPU is enough, seconds)

No weights are stored: they are made from their names, as in families.py. Each file holds the configuration as transformers
saves it, a tokenizer that is built here, a chat template if the model has one, pairs of a prompt and a completion, and the
logit of each: of the conversation, if there is a template, as TRL makes it, else of the pair of texts; with `truncation=True`
at the model's positions, which some pairs exceed.
"""
import json, pathlib
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from families import noise

LETTERS = "".join(chr(code) for code in range(33, 127))
CHAT = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}")
PAIRS = [
    ("What is 2 + 2?", "4"),
    ("What is 2 + 2?", "It is 5, as everybody knows."),
    ("Say hello.", "Hello! How are you today, my friend?"),
    ("Name a colour.", ""),
    ("A long question, " * 12, "and a short answer."),
    ("A short question?", "A long answer, " * 12),
    ("Both are long, " * 9, "so both are cut, " * 9),
]
ENCODER = dict(vocab_size=112, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
               max_position_embeddings=128, num_labels=1)
DECODER = dict(vocab_size=272, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               intermediate_size=48, max_position_embeddings=128, num_labels=1, pad_token_id=257, eos_token_id=256,
               bos_token_id=256)
CASES = {
    # As DeBERTa-v3 is published.
    "deberta_v3": dict(ENCODER, model_type="deberta-v2", relative_attention=True, position_buckets=16, type_vocab_size=0,
                       max_relative_positions=-1, pos_att_type="p2c|c2p", share_att_key=True, norm_rel_ebd="layer_norm",
                       position_biased_input=False, pad_token_id=0),
    # Everything else that the family has, but for convolutions.
    "deberta_v2": dict(ENCODER, model_type="deberta-v2", relative_attention=True, max_relative_positions=24,
                       type_vocab_size=2, pos_att_type=["c2p", "p2c"], share_att_key=False,
                       position_biased_input=True, pad_token_id=0),
    # Without the terms of distances, and with narrow embeddings.
    "deberta_plain": dict(ENCODER, model_type="deberta-v2", relative_attention=False, type_vocab_size=0,
                          embedding_size=16, pad_token_id=0),
    # Windows far smaller than the text; every second layer sees all of it.
    "modern_bert": dict(ENCODER, model_type="modernbert", num_hidden_layers=4, global_attn_every_n_layers=2,
                        local_attention=8, classifier_pooling="cls", pad_token_id=0, cls_token_id=1, sep_token_id=2,
                        bos_token_id=1, eos_token_id=2),
    "modern_bert_mean": dict(ENCODER, model_type="modernbert", num_hidden_layers=4, global_attn_every_n_layers=3,
                             local_attention=16, classifier_pooling="mean", pad_token_id=0, cls_token_id=1,
                             sep_token_id=2, bos_token_id=1, eos_token_id=2),
    "qwen2": dict(DECODER, model_type="qwen2", rope_theta=1e6, tie_word_embeddings=False),
    # The token that ends a turn, and so the text, is the padding token.
    "qwen3": dict(DECODER, model_type="qwen3", head_dim=16, rope_theta=1e6, tie_word_embeddings=True, pad_token_id=256),
    # No template: a pair of texts.
    "llama": dict(DECODER, model_type="llama", rope_theta=1e4, tie_word_embeddings=False),
    "gemma2": dict(DECODER, model_type="gemma2", head_dim=16, query_pre_attn_scalar=20, sliding_window=16,
                   attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
}
WITH_TEMPLATE = ["qwen2", "qwen3", "gemma2"]


def unigram():
    """Pieces of single letters with scores, as SentencePiece has them, and the special tokens of BERT around a pair."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    words = ["▁a", "▁is", "▁long", "an", "er", "▁"]
    pieces = [(piece, 0.0) for piece in special] + [(piece, -2.0 - 0.1 * at) for at, piece in enumerate(words + list(LETTERS))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                                   unk_token="[UNK]", bos_token="[CLS]", eos_token="[SEP]")


def byte_level(template):
    """A token for each byte, the tokens of a chat, and a text of a pair begun by the end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"])
    if template is None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|end|> $A", pair="<|end|>:0 $A:0 <|end|>:1 $B:1", special_tokens=[("<|end|>", 256)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>",
                                   chat_template=template)


def weight(name, shape, unit_offset):
    base = np.float32(1.0 if name.lower().endswith("norm.weight") and not unit_offset else 0.0)
    return base + np.float32(0.25) * noise(name, int(np.prod(shape))).reshape(shape)


@torch.no_grad()
def case(name, config):
    kind = config.pop("model_type")
    parsed = AutoConfig.for_model(kind, **config)
    attention = "eager" if "attn_logit_softcapping" in config else "sdpa"
    arguments = {} if kind == "deberta-v2" else dict(attn_implementation=attention)
    model = AutoModelForSequenceClassification.from_config(parsed, dtype=torch.float32, **arguments).eval()
    for parameter_name, parameter in model.named_parameters():
        values = weight(parameter_name, tuple(parameter.shape), kind.startswith("gemma"))
        parameter.copy_(torch.from_numpy(values))
    template = CHAT if name in WITH_TEMPLATE else None
    tokenizer = byte_level(template) if "num_key_value_heads" in config else unigram()
    has_types = config.get("type_vocab_size", 0) > 0
    limit = dict(truncation=True, max_length=config["max_position_embeddings"], return_tensors="pt",
                 return_token_type_ids=has_types)
    scores, lengths = [], []
    for prompt, completion in PAIRS:
        if template:
            messages = [dict(role="user", content=prompt), dict(role="assistant", content=completion)]
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            inputs = tokenizer(text, add_special_tokens=False, **limit)
        else:
            # As lists: alone, an empty completion would not count as the second text of a pair.
            inputs = tokenizer([prompt], [completion], **limit)
        assert not has_types or inputs["token_type_ids"].max() == 1, "the types of a pair"
        lengths.append(inputs["input_ids"].shape[1])
        scores.append(round(model(**inputs).logits.item(), 8))
    assert lengths.count(config["max_position_embeddings"]) == 3, lengths
    saved = json.loads(parsed.to_json_string(use_diff=False))
    saved["architectures"] = [type(model).__name__]
    kept = ["architectures", "model_type", "id2label", "num_labels", "layer_types", "norm_eps", "layer_norm_eps", "hidden_act",
            "hidden_activation", "classifier_activation", "classifier_bias", "pooler_hidden_act", "pooler_hidden_size",
            "rope_parameters", "attention_bias", "mlp_bias", "norm_bias", "rms_norm_eps", "use_sliding_window", *config]
    made_by = f"tests/golden/reward_models.py, transformers {transformers.__version__}, torch {torch.__version__}"
    return dict(made_by=made_by, config={key: saved[key] for key in kept if saved.get(key) is not None},
                tokenizer=json.loads(tokenizer.backend_tokenizer.to_str()), template=template, pairs=PAIRS, scores=scores)


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "reward_models"
    folder.mkdir(exist_ok=True)
    for name, config in CASES.items():
        found = case(name, dict(config))
        (folder / f"{name}.json").write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, found["scores"])
