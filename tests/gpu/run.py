"""Everything that is claimed of CUDA, on a machine with an NVIDIA GPU, as one table. `tests/gpu/build` packs what it needs.

Usage: run.py PART… [--work /tmp/tunebox-gpu] [--out FILE] [--shape 1b]…
Parts: `parity` (each test beside the CPU), `curve` (loss curves beside the CPU), `qlora` (the same over NF4), `speed` (steps
beside PEFT), `nested` (steps over NF4), `long` (rows of 16,384), `profile` (kernels of a step by name). Ends with
1 if something is not as wanted; `--out` takes the figures as JSON. Tests, profiles and measured programs have time limits.
"""
import argparse, concurrent.futures, os, platform, shutil, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "peers", "speed")]
import carried, curves, processes, profiles, speed
from table import Table

# The longest that one test may take.
TEST_SECONDS = 180
# Tests that take libraries of the GPU away or count launches, for which stand-ins are needed.
STANDINS = ["--skip", "cuda_a_library_that_is_missing", "--skip", "cuda_a_gpu_that_is_full", "--skip", "cuda_a_step_launches"]


def parity(a, table):
    """Every test that has a part for CUDA (operations, gradients, whole models), each in a process of its own: after an
    illegal address a process cannot use the GPU again."""
    for program in carried.tests():
        listed = subprocess.run([program, "cuda_", "accelerator::", "--include-ignored", *STANDINS, "--list"], capture_output=True, text=True)
        cases = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
        begun = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
            failures = {case: said for case, said in pool.map(lambda case: alone(program, case), cases) if said}
        passed = len(cases) - len(failures)
        figure = f"{passed} of {len(cases)} pass, {time.perf_counter() - begun:.0f} s"
        table.add("parity", os.path.basename(program).removeprefix("test-"), figure, "all", bool(cases) and not failures, failures=failures)
        for case, said in failures.items():
            print(f"---- {case}\n{said[:1500]}", flush=True)
        for case in list(failures)[:2]:
            sanitize(program, case)


def alone(program, case):
    """Runs one test; what it said if it failed, else nothing."""
    try:
        ran = subprocess.run([program, case, "--exact", "--include-ignored"], capture_output=True, text=True, timeout=TEST_SECONDS)
    except subprocess.TimeoutExpired:
        return case, f"did not end within {TEST_SECONDS} s"
    # A name that matches no test would pass.
    return case, "" if ran.returncode == 0 and "1 passed" in ran.stdout else ran.stdout + ran.stderr


def sanitize(program, case):
    """Shows what NVIDIA's `compute-sanitizer` says of a test that fails, where that program is."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    try:
        ran = subprocess.run([tool, program, case, "--exact", "--include-ignored"], capture_output=True, text=True, timeout=60)
        print("\n".join(line for line in ran.stdout.splitlines() if line.startswith("========="))[:2000], flush=True)
    except (OSError, subprocess.TimeoutExpired) as ended:
        print(f"compute-sanitizer: {ended}", flush=True)


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


def profile(a, table):
    """The time of each kernel of a step, by name."""
    for name in a.shapes or ["0.5b", "8b-4"]:
        for batch, sequence in [(4, 1024), (8, 2048)]:
            profiles.step(table, a.work, name, batch, sequence)


PARTS = {"parity": parity, "curve": curve, "qlora": qlora, "speed": beside, "nested": nested, "long": long, "profile": profile}


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    p.add_argument("--work", default="/tmp/tunebox-gpu", help="where random models are made and kept")
    p.add_argument("--out"); p.add_argument("--shape", action="append", choices=["0.5b", "0.5b-1", "1b", "8b", "8b-1", "8b-4", "tiny"], dest="shapes")
    a = p.parse_args()
    carried.unpack()
    machine = f"{carried.device()}; {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(machine, flush=True)
    table = Table(machine)
    for name in a.parts:
        try:
            PARTS[name](a, table)
        except (processes.Failed, subprocess.SubprocessError, KeyError, OSError) as ended:
            # What is measured of other parts still counts.
            table.add(name, "stopped", f"{type(ended).__name__}: {ended}"[:2000], "an end", False)
        if a.out:
            table.write(a.out)
    table.show()
    sys.exit(1 if table.failed() else 0)


main()
