"""Greedy answers of llama.cpp (by xllamacpp) to questions, as a JSON list of texts.

Usage: greedy.py MODEL.gguf QUESTION…
"""
import json, sys

import xllamacpp

path, *questions = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 512, 1, False, 0
server = xllamacpp.Server(params)


def answer(question):
    asked = {"messages": [{"role": "user", "content": question}], "max_tokens": 64, "temperature": 0}
    answered = server.handle_chat_completions(asked)
    answered = json.loads(answered) if isinstance(answered, (str, bytes)) else answered
    return answered["choices"][0]["message"]["content"]


print(json.dumps([answer(question) for question in questions]))
