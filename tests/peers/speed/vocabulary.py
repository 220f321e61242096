"""The question whether memory grows with the vocabulary: small models of random weights, alike but for the number of words."""
import os, tempfile

import sides

VOCABULARIES = (32_768, 131_072, 262_144)


def vocabulary(a, report):
    """LoRA steps of 4 × 256 tokens beside PEFT: what a process holds at most, its weights and the rest."""
    with tempfile.TemporaryDirectory() as folder:
        for words in VOCABULARIES:
            model = os.path.join(folder, str(words))
            weights = sides.peer("../random_folder.py", f"words-{words}", model, "--dtype", "f32").last["bytes"]
            row = report.row("4 blocks of 512", f"{words:,} words", "tokens/s")
            sizes = ["--batch", 4, "--sequence", 256, "--steps", a.steps]
            for _ in range(a.pairs):
                ours = sides.bench(a.program, "training", "--model", model, "--rank", sides.RANK, *sizes)
                row.add("tunebox", beside(ours, weights))
                row.add("PEFT loop", beside(sides.peer("dense_loop.py", model, *sizes), weights))


def beside(ran, weights):
    """A measurement, with the bytes of the process's peak that are not the model's."""
    return sides.measured(ran, rate=ran.last["tokens_per_second"], weight_bytes=weights, beside_weights_bytes=ran.peak_bytes - weights)
