"""LoRA steps of 1B- and 8B-shaped Llamas beside PyTorch + PEFT on one GPU: tokens a second, memory, the chip's use."""
import os, subprocess, sys

import carried, processes
from table import gib

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "..", "peers")
RANK = 16
# Operations a second of dense bf16 products that makers write on their chips, by a word of the name.
NOMINAL = {"H200": 989.5e12, "H100": 989.5e12, "A100": 312e12, "L40S": 362e12, "4090": 165.2e12, "B200": 2250e12}
# At most this share of the peer's memory; at least this share of its speed.
MEMORY, SPEED = 0.6, 1.0
PEERS_OF_A_STEP = [("PEFT", []), ("PEFT, checkpointing", ["--checkpointing"])]
# The longest that a measured program may take.
SECONDS = 180


def folder(work, shape):
    """The folder of a random model, made where it is not there yet; its numbers are drawn on the GPU."""
    place = os.path.join(work, f"llama-{shape}")
    subprocess.run([sys.executable, os.path.join(PEERS, "random_folder.py"), shape, place, "--device", "cuda"], check=True)
    return place


def command(model, batch, sequence, steps, *more):
    """The words of a measured run of tunebox."""
    words = [carried.PROGRAM, "bench", "--json", "--offline", "--only", "training", "--model", model, "--device", "cuda",
             "--rank", RANK, "--batch", batch, "--sequence", sequence, "--steps", steps, *more]
    return [str(word) for word in words]


def ours(*words):
    return processes.run(command(*words), timeout=SECONDS).last


def theirs(model, batch, sequence, steps, *more):
    command = [sys.executable, os.path.join(PEERS, "speed", "dense_loop.py"), model, "--device", "cuda", "--precision", "bf16",
               "--batch", batch, "--sequence", sequence, "--steps", steps, *more]
    return processes.run([str(word) for word in command], timeout=SECONDS).last


def use(said, machine):
    """The share of plain products that a step's necessary arithmetic makes up, and of what is written on the chip."""
    found = said.get("utilization")
    nominal = next((rate for word, rate in NOMINAL.items() if word in machine), None)
    if found is None:
        return ""
    words = f", {found:.0%} of plain bf16 products ({said['product_gflops'] / 1e3:.0f} TFLOP/s)"
    return words + (f", {found * said['product_gflops'] * 1e9 / nominal:.0%} of the chip's {nominal / 1e12:.0f}" if nominal else "")


def tunebox(table, part, case, model, batch, sequence, steps, *more):
    said = ours(model, batch, sequence, steps, *more)
    figure = f"{said['tokens_per_second']:,.0f} tokens/s, {gib(said['peak_bytes'])}{use(said, table.machine)}"
    table.add(part, f"{case}, tunebox", figure, **said)
    estimated, peak = said["expected_peak_bytes"], said["peak_bytes"]
    table.add(part, f"{case}, forecast", f"{gib(estimated)} estimated, {gib(peak)} taken", "within 15 %", abs(estimated / peak - 1) <= 0.15)
    return said


def beside(table, part, case, said, model, batch, sequence, steps, *more):
    """The peer, and how the first stands to it."""
    found = theirs(model, batch, sequence, steps, *more)
    if found.get("out_of_memory"):
        return table.add(part, case, f"out of memory above {gib(found['gpu_peak_bytes'])}", **found)
    figure = f"{found['tokens_per_second']:,.0f} tokens/s, {gib(found['gpu_peak_bytes'])} ({gib(found['gpu_reserved_bytes'])} reserved)"
    table.add(part, case, figure, **found)
    speed, memory = said["tokens_per_second"] / found["tokens_per_second"], said["peak_bytes"] / found["gpu_peak_bytes"]
    table.add(part, f"{case}, ratio of speed", f"{speed:.2f}", f"at least {SPEED}", speed >= SPEED)
    table.add(part, f"{case}, ratio of memory", f"{memory:.2f}", f"at most {MEMORY}", memory <= MEMORY)


def shape(table, work, name, steps=5):
    """4 rows of 1024 tokens and 8 of 2048, beside PEFT, and the latter also beside PEFT with gradient checkpointing."""
    model = folder(work, name)
    for batch, sequence, peers in [(4, 1024, PEERS_OF_A_STEP[:1]), (8, 2048, PEERS_OF_A_STEP)]:
        rows = f"{batch} × {sequence}"
        said = tunebox(table, f"speed {name}", rows, model, batch, sequence, steps)
        for case, more in peers:
            beside(table, f"speed {name}", f"{rows}, {case}", said, model, batch, sequence, steps, *more)


def nested(table, work, name, steps=3):
    """The same rows over a base in NF4."""
    tunebox(table, f"speed {name}", "8 × 2048 in NF4", folder(work, name), 8, 2048, steps, "--precision", "nf4")


def long(table, work, name, steps=2):
    """One row of 16,384 tokens."""
    model = folder(work, name)
    said = tunebox(table, f"long {name}", "1 × 16384", model, 1, 16384, steps)
    beside(table, f"long {name}", "PEFT, checkpointing", said, model, 1, 16384, steps, "--checkpointing")
