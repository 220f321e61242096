"""Compares tunebox with what score.py wrote: log-probabilities of its texts, greedy continuations, chat ids.

Usage: compare_score.py TUNEBOX MODEL SCORES.json        TUNEBOX is the program
Fails where a log-probability differs by more than 1e-3, the mean by more than 1e-4, or an id at all.
"""
import json, os, subprocess, sys, tempfile

program, model, scores = sys.argv[1:4]
peer = json.load(open(scores))


def ours(*arguments):
    ran = subprocess.run([program, "--json", *arguments], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "texts.jsonl")
    with open(path, "w") as file:
        for text in peer["texts"]:
            file.write(json.dumps({"text": text["text"]}) + "\n")
    rows = ours("score", model, "--file", path, "--compute", "f32")
differences, greedy, chats = [], 0, 0
for row, text in zip(rows, peer["texts"], strict=True):
    assert row["ids"] == text["ids"], f"other token ids for {text['text']!r}"
    differences += [abs(a - b) for a, b in zip(row["logprobs"][-len(text["logprobs"]):], text["logprobs"], strict=True)]
    answer = ours("generate", model, text["text"], "--raw", "--compute", "f32", "--temperature", "0", "--max-tokens", "24")[-1]
    greedy += answer["ids"] == text["greedy"]
    if answer["ids"] != text["greedy"]: print("greedy", answer["ids"], text["greedy"], file=sys.stderr)
for chat in peer["chats"]:
    if len(chat["messages"]) == 1:
        answer = ours("generate", model, chat["messages"][0]["content"], "--max-tokens", "1")[-1]
        chats += answer["prompt"] == chat["ids"]
single = sum(len(chat["messages"]) == 1 for chat in peer["chats"])
worst, mean = max(differences), sum(differences) / len(differences)
print(json.dumps({"tokens": len(differences), "worst": worst, "mean": mean, "greedy": [greedy, len(peer["texts"])], "chats": [chats, single]}))
assert worst < 1e-3 and mean < 1e-4 and greedy == len(peer["texts"]) and chats == single
