"""The kernels of LoRA steps by name, with the time of each, from the clock of the GPU while the program runs at its own speed."""
import collections, glob, os, re, site, subprocess, tempfile

import carried, processes, speed

SECONDS, STEPS = 90, 5
HERE = os.path.dirname(os.path.abspath(__file__))


def step(table, work, name, batch, sequence):
    """Milliseconds and launches of each kernel in one step of a measured run, and the time in which nothing ran."""
    records = inner_step(trace(speed.command(speed.folder(work, name), batch, sequence, STEPS)))
    part, total = f"profile {name} {batch} × {sequence}", records[-1][1] - records[0][0]
    busy = sum(end - begin for begin, end, _ in records)
    table.add(part, "a step", f"{total / 1e6:.2f} ms, {len(records)} launches, idle {1 - busy / total:.1%}")
    times = collections.defaultdict(list)
    for begin, end, kernel in records:
        times[kernel].append(end - begin)
    for kernel, each in sorted(times.items(), key=lambda row: -sum(row[1])):
        table.add(part, kernel, f"{sum(each) / 1e6:8.3f} ms {sum(each) / total:6.1%} {len(each):5} × {sum(each) / len(each) / 1e3:8.1f} µs")


def trace(command):
    """What ran on the GPU while a program ran: begin and end in nanoseconds and the name, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "times")
        environment = os.environ | {"LD_PRELOAD": tracer(folder), "TRACE_OUT": out}
        processes.run(command, timeout=SECONDS, env=environment)
        # A program of several processes: the one that used the GPU most.
        text = max((open(path, errors="replace").read() for path in glob.glob(out + ".*")), key=len)
    # A program that ends at once leaves half a line at the end.
    lines = [line.split(" ") for line in text.splitlines() if line.count(" ") == 2]
    # Names of library kernels carry the size of their tiles; those of templates their arguments.
    return sorted((int(begin), int(end), re.sub(r"<.*|\(.*", "", name)) for begin, end, name in lines)


def inner_step(records):
    """The launches of the last step but one: those between two calls of `adamw`. At the end of the program names may be lost."""
    ends = [at for at, (_, _, name) in enumerate(records) if name.startswith("adamw")]
    if len(ends) < 3:
        raise KeyError(f"{len(ends)} steps among {len(records)} launches, {records[len(records) // 2:][:3]}")
    return records[ends[-3] + 1:ends[-2] + 1]


def tracer(folder):
    """Compiles the library that writes the times, against the CUPTI that is there."""
    roots = [*site.getsitepackages(), *glob.glob("/usr/local/cuda*")]
    find = lambda name: next(iter(path for root in roots for path in glob.glob(f"{root}/**/{name}", recursive=True)), None)
    header, cuda, library = find("cupti.h"), find("cuda.h"), find("libcupti.so.1*") or find("libcupti.so")
    if not (header and cuda and library):
        raise FileNotFoundError(f"CUPTI is not on this machine: cupti.h {header}, cuda.h {cuda}, libcupti {library}")
    out = os.path.join(folder, "trace.so")
    include = [f"-I{os.path.dirname(path)}" for path in (header, cuda)]
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", *include, os.path.join(HERE, "trace.c"), "-o", out, library,
                    f"-Wl,-rpath,{os.path.dirname(library)}"], check=True)
    return out
