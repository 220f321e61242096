"""Everything that is claimed of CUDA, on a machine with an NVIDIA GPU, as one table. `tests/gpu/build` packs what it needs.

Usage: run.py PART… [--work /tmp/tunebox-gpu] [--out FILE] [--shape 1b]…
Parts, with about how many minutes they take on one H200: `parity` 4, `curve` 1, `qlora` 3, `speed` 3 for 1b and 7 for 8b,
`nested` 2, `long` 4. Ends with 1 if something is not as wanted; `--out` takes the figures as JSON.
"""
import argparse, os, platform, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "peers", "speed")]
import carried, curves, processes, speed
from table import Table

# Tests that take libraries of the GPU away, which only stand-ins allow.
STANDINS = ["--skip", "cuda_a_library_that_is_missing", "--skip", "cuda_a_gpu_that_is_full"]


def parity(a, table):
    """Every test that has a part for CUDA: operations, gradients, whole models."""
    for program in carried.tests():
        begun = time.perf_counter()
        ran = subprocess.run([program, "cuda_", "accelerator::", "--include-ignored", *STANDINS, "--test-threads", "1"], capture_output=True, text=True)
        said = next((line for line in ran.stdout.splitlines() if line.startswith("test result:")), f"ended with {ran.returncode}")
        figure = f"{said.removeprefix('test result: ')} {time.perf_counter() - begun:.0f} s"
        table.add("parity", os.path.basename(program).removeprefix("test-"), figure, "all pass", ran.returncode == 0)
        if ran.returncode:
            print(ran.stdout[-6000:], ran.stderr[-3000:], sep="\n", flush=True)


def curve(a, table):
    """20 steps of the sample: f32 on the CPU, f32 and bf16 on CUDA, by one component."""
    curves.sample(table)


def qlora(a, table):
    """A base in NF4 on both devices."""
    curves.nested(table, speed.folder(a.work, "1b"))


def beside(a, table):
    """Steps beside PyTorch + PEFT."""
    for name in a.shapes or ["1b", "8b"]:
        speed.shape(table, a.work, name)


def nested(a, table):
    """Steps over a base in NF4."""
    for name in a.shapes or ["8b"]:
        speed.nested(table, a.work, name)


def long(a, table):
    """Rows of 16,384 tokens."""
    for name in a.shapes or ["1b", "8b"]:
        speed.long(table, a.work, name)


PARTS = {"parity": parity, "curve": curve, "qlora": qlora, "speed": beside, "nested": nested, "long": long}


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    p.add_argument("--work", default="/tmp/tunebox-gpu", help="where random models are made and kept")
    p.add_argument("--out"); p.add_argument("--shape", action="append", choices=["1b", "8b", "tiny"], dest="shapes")
    a = p.parse_args()
    carried.unpack()
    machine = f"{carried.device()}; {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(machine, flush=True)
    table = Table(machine)
    for name in a.parts:
        try:
            PARTS[name](a, table)
        except (processes.Failed, subprocess.CalledProcessError, KeyError, OSError) as ended:
            # What is measured of other parts still counts.
            table.add(name, "stopped", f"{type(ended).__name__}: {ended}"[:2000], "an end", False)
        if a.out:
            table.write(a.out)
    table.show()
    sys.exit(1 if table.failed() else 0)


main()
