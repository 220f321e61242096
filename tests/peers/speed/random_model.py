"""Writes a Llama of seeded random weights with a vocabulary of a given size, in f32, its tokenizer one token a byte.

Usage: random_model.py FOLDER VOCABULARY
Small but for the vocabulary: 4 blocks of 512, embedding and output matrix shared. Says how many bytes the weights take.
"""
import argparse, os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import peer

p = argparse.ArgumentParser()
p.add_argument("folder"); p.add_argument("vocabulary", type=int)
a = p.parse_args()

torch.manual_seed(0)
shape = transformers.LlamaConfig(vocab_size=a.vocabulary, hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8,
                                 num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1)
model = transformers.LlamaForCausalLM(shape)
model.save_pretrained(a.folder)
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
bytewise.save(os.path.join(a.folder, "tokenizer.json"))
peer.say(weight_bytes=sum(weight.numel() * weight.element_size() for weight in model.parameters()))
