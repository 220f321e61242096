"""Records of natural, unequal lengths, made from a seed: the same on every machine.

Answers and questions have log-normally many words, so that most are short and a few are long, as in chats.
"""
import json, random

SENTENCES = """the ferry leaves the harbour when the last lorry is on board
a good loaf needs flour water salt and more patience than most people have on a weekday
nobody in the office remembers who ordered the second printer
if the valve sticks turn the heating off wait an hour and try it again with a warm cloth
she kept every letter in a tin that had once held biscuits
the quickest way over the hill is the old road past the quarry
his report was short because there was little to say and most of it was known
they paint the bridge from one end to the other and then begin anew
when two numbers share no factor their product holds every factor of both
after the storm the garden was full of slates and one surprised hedgehog
write the test first and it will tell you what you have forgotten to ask
the museum closes early in winter but the tower stays open until dusk""".splitlines()
SEED = 20


def prose(draw, words):
    """Exactly so many words of sentences."""
    found = []
    while len(found) < words:
        sentence = draw.choice(SENTENCES)
        found += (sentence[0].upper() + sentence[1:] + ".").split()
    return " ".join(found[:words])


def words(draw):
    return max(4, min(380, round(draw.lognormvariate(4.0, 0.9))))


def speaks(role, text):
    return [{"role": role, "content": text}]


def records(kind, count):
    """`answers`, `pairs` or `prompts`. Prompts are plain text that a model goes on with."""
    draw = random.Random(SEED)
    made = []
    for _ in range(count):
        asked = words(draw) // 2 + 4
        if kind == "prompts":
            made.append({"prompt": prose(draw, 12) + " Then"})
            continue
        question = speaks("user", prose(draw, asked))
        sides = ["completion"] if kind == "answers" else ["chosen", "rejected"]
        made.append({"prompt": question} | {side: speaks("assistant", prose(draw, words(draw))) for side in sides})
    return made


def write(path, some):
    with open(path, "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in some)
    return path
