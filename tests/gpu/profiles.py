"""The kernels of one LoRA step by name, with the time of each, as NVIDIA's profiler `ncu` measures them one after another."""
import csv, io, os, re, shutil, subprocess

import carried, speed

# The profiler takes some 50 ms for a launch: models of one block, and no more launches than the first step has.
SECONDS, LAUNCHES = 90, 400
METRIC = "gpu__time_duration.sum"


def step(table, work, name, batch=4, sequence=1024):
    """Milliseconds and launches of each kernel among the first of a run."""
    profiler = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [profiler, "--csv", "--clock-control", "none", "--launch-count", str(LAUNCHES), "--metrics", METRIC,
               *speed.command(speed.folder(work, name), batch, sequence, 1)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    rows = times(ran.stdout)
    if not rows:
        raise KeyError(f"no times in what ncu said: {(ran.stdout + ran.stderr)[-1500:]}")
    total = sum(time for time, _ in rows.values())
    launches = sum(count for _, count in rows.values())
    table.add(f"profile {name}", "all kernels", f"{total / 1e6:.2f} ms, {launches} launches")
    for kernel, (time, count) in sorted(rows.items(), key=lambda row: -row[1][0]):
        table.add(f"profile {name}", kernel, f"{time / 1e6:8.3f} ms {time / total:6.1%} {count:5} × {time / count / 1e3:8.1f} µs")


def times(said):
    """The sum of nanoseconds and the number of launches of each kernel with its grid's size left out."""
    found = {}
    # Lines before the head of the table are the program's own and the profiler's.
    lines = said.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        if row.get("Metric Name") != METRIC:
            continue
        kernel = re.sub(r"<.*|\(.*", "", row["Kernel Name"])
        unit = {"ns": 1, "us": 1e3, "usecond": 1e3, "nsecond": 1, "ms": 1e6, "msecond": 1e6}[row["Metric Unit"]]
        time, count = found.get(kernel, (0, 0))
        found[kernel] = (time + float(row["Metric Value"].replace(",", "")) * unit, count + 1)
    return found
