"""Per-token log-probabilities, greedy continuations and chat ids by transformers, in f32 on the CPU.

Usage: score.py MODEL OUT.json        MODEL is a folder or a .gguf file
Needs: torch, transformers, gguf (see requirements.txt).
"""
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
import shared

TEXTS = [
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "Once upon a time there was a small robot who wanted to learn how to paint.",
    "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name ORDER BY 2 DESC;",
    "Die Würde des Menschen ist unantastbar. Sie zu achten ist Verpflichtung.",
    "東京は日本の首都です。人口は約1400万人です。",
    "Numbers: 1 2 3 10 100 1000 3.14159 2.71828 and -40 degrees.",
    "{\"name\": \"Ada\", \"languages\": [\"analytical engine\"], \"born\": 1815}",
    "🙂 Emoji, tabs\tand   runs of spaces,\n\n\nblank lines — and dashes…",
    "In the beginning the Universe was created. This has made a lot of people very angry "
    "and been widely regarded as a bad move. Many races believe that it was created by some sort of god.",
]
CHATS = [
    [{"role": "user", "content": "Write a haiku about rust."}],
    [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi!"},
     {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "What is 2 + 2?"}],
]


def load(path):
    arguments = shared.source(path)
    return AutoModelForCausalLM.from_pretrained(**arguments, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(**arguments)


@torch.no_grad()
def main(path, out):
    model, tokenizer = load(path)
    result = {"texts": [], "chats": []}
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        logprobs = shared.logprobs(model, ids)
        greedy = model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False, repetition_penalty=1.0)
        result["texts"].append({"text": text, "ids": ids, "logprobs": logprobs.tolist(), "greedy": greedy[0, len(ids):].tolist()})
    if tokenizer.chat_template:
        for chat in CHATS:
            ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
            result["chats"].append({"messages": chat, "ids": list(ids)})
    json.dump(result, open(out, "w"))


main(*sys.argv[1:3])
