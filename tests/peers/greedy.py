"""Greedy answers of llama.cpp (by xllamacpp) to questions, as a JSON list of texts.

Usage: greedy.py MODEL.gguf QUESTION…
"""
import json, sys

import shared

path, *questions = sys.argv[1:]
server = shared.llama_server(path)


def answer(question):
    asked = {"messages": [{"role": "user", "content": question}], "max_tokens": 64, "temperature": 0}
    return shared.answered(server.handle_chat_completions(asked))["choices"][0]["message"]["content"]


print(json.dumps([answer(question) for question in questions]))
