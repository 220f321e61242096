"""tunebox and PyTorch on this machine, side by side: one question at a time, in turns, each side a process of its own.

Usage: measure.py QUESTION --program TUNEBOX --model NAME=FOLDER… [--gguf FILE] [--pairs 5] [--out tests/peers/results]
`measure.py --help` lists the questions and how long each takes. A pair is one process of every side, one after the other,
so that all meet the same disturbances; medians over the pairs count. Peers that are much slower than the fastest one in the first
pair are left out of the others. Peers are pinned in requirements.txt.
"""
import argparse, os, shutil, sys, typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "speed"))
import growth, machine, processes, sandbox, sides, training, vocabulary, writing
from report import Report


class Question(typing.NamedTuple):
    """What is asked, who answers it, and how long that takes with five pairs on two cores."""

    answer: typing.Callable
    what: str
    minutes: int
    pairs: int = 5
    steps: int = 2


QUESTIONS = {
    "dense": Question(training.dense, "LoRA steps over full rows, every token a label, beside a PEFT loop", 60),
    "records": Question(training.records, "256 chat records of natural lengths, beside a PEFT loop and TRL", 40),
    "preference": Question(training.preference, "DPO on 256 pairs, beside a PEFT loop and TRL", 110),
    "grpo": Question(training.grpo, "GRPO steps of 2 × 8 completions, beside a loop with transformers' generation and TRL", 15, steps=1),
    "growth": Question(growth.growth, "rows of 128 to 4096 tokens, beside a PEFT loop, and 1 to 8 rows", 10, pairs=1),
    "vocabulary": Question(vocabulary.vocabulary, "what memory a step takes for 32 to 262 thousand words, beside a PEFT loop", 4, pairs=1),
    "decode": Question(writing.decode, "greedy writing from a GGUF file, beside transformers and llama.cpp", 10),
    "overhead": Question(sandbox.overhead, "what the sandbox takes of a DPO step, and how long a method starts", 3, steps=5),
}


class Model(typing.NamedTuple):
    """A model as tables call it, and its folder."""

    name: str
    folder: str


def model(text):
    name, equals, folder = text.partition("=")
    return Model(name, folder) if equals else Model(os.path.basename(os.path.normpath(text)), text)


def shape(text):
    batch, _, sequence = text.partition("x")
    return int(batch), int(sequence)


def arguments():
    lines = [f"  {name:<11} {asked.what}; about {asked.minutes} minutes" for name, asked in QUESTIONS.items()]
    whole = sum(asked.minutes for asked in QUESTIONS.values())
    ends = f"All of them, `dense` with two models: about {whole} minutes on two quiet cores of a server, with models of half a billion weights.\n" \
           "Ends with 0 done, 1 a program failed, 2 wrong use, 3 a Python module is missing, 4 a peer is there in another version."
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__.split("\n")[0],
                                epilog="questions:\n" + "\n".join(lines) + "\n\n" + ends)
    p.add_argument("question", choices=QUESTIONS, metavar="QUESTION", help="one of those below")
    p.add_argument("--program", required=True, help="the tunebox to measure")
    p.add_argument("--model", action="append", type=model, required=True, dest="models", metavar="NAME=FOLDER",
                   help="a model's folder and what the table calls it; `dense` takes several, the others the first")
    p.add_argument("--gguf", help="for `decode`: the GGUF file that the model's folder was made from")
    p.add_argument("--out", help="a folder with a data file for each kind of machine; the answer is put into this machine's, or into FILE.unfinished where a program failed, and other questions stay as they are")
    p.add_argument("--pairs", type=int, help="processes of each side; over how many parts the records are spread")
    p.add_argument("--steps", type=int, help="counted steps of a process, after one that warms up")
    p.add_argument("--shapes", type=lambda text: [shape(part) for part in text.split(",")], default=[(4, 256), (1, 1024), (8, 128)],
                   help="for `dense`: rows x tokens (default 4x256,1x1024,8x128)")
    p.add_argument("--records", type=int, default=256, help="for `records` and `preference` (default 256)")
    p.add_argument("--parts", type=int, help="for `records` and `preference`: only so many parts")
    p.add_argument("--batch", type=int, default=4, help="for `records` and `preference` (default 4)")
    p.add_argument("--peers", action="append", choices=training.PEERS,
                   help=f"for `dense`, `records`, `preference`, `grpo`: only this one; may be given several times "
                        f"(default {'; '.join(training.USUAL)}; for `records` {training.RECORDS[-1]} as well; for `dense` {'; '.join(training.DENSE)})")
    p.add_argument("--longest", type=int, default=4096, help="for `growth`: no longer rows (default 4096)")
    p.add_argument("--prompt", type=int, default=32, help="for `decode`: tokens of a prompt (default 32)")
    p.add_argument("--tokens", type=int, default=128, help="for `decode`: new tokens (default 128)")
    a = p.parse_args()
    a.program = shutil.which(a.program) or p.error(f"`{a.program}` is no program")
    for chosen in a.models:
        if not os.path.isdir(chosen.folder):
            p.error(f"`{chosen.folder}` is no folder: peers need a model in Hugging Face's layout")
    if a.question == "decode" and not a.gguf:
        p.error("`decode` needs `--gguf`: what tunebox and llama.cpp write from")
    asked = QUESTIONS[a.question]
    a.pairs, a.steps = a.pairs or asked.pairs, a.steps or asked.steps
    return a


def main():
    a = arguments()
    machine.check()
    report = Report(a.question, sides.versions(a.program))
    try:
        QUESTIONS[a.question].answer(a, report)
    except (processes.Failed, KeyboardInterrupt) as ended:
        if a.out:
            report.merge(os.path.join(a.out, machine.kind() + ".json.unfinished"))
        machine.leave(1, str(ended) or "stopped")
    if a.out:
        report.merge(os.path.join(a.out, machine.kind() + ".json"))
    for row in report.rows:
        print(row.line())


main()
