"""Runs one program at a time: what it says in JSON and when, and the most memory that it held."""
import json, os, resource, subprocess, sys, tempfile, threading, time

# Left to the rest of the system where a peer may ask for more than there is.
RESERVE = 3 << 29


class Failed(Exception):
    """A program that did not end well."""


class OutOfMemory(Failed):
    """A program that asked for more memory than is free."""


class Ran:
    """What a program said: `(seconds, object)` for each line of JSON, and its peak memory in bytes."""

    def __init__(self, lines, peak_bytes):
        self.lines, self.peak_bytes = lines, peak_bytes

    @property
    def last(self):
        return self.lines[-1][1]


def free_bytes():
    """Memory that a new program may fill, as far as the system says it; None where it does not."""
    try:
        lines = dict(line.split(":") for line in open("/proc/meminfo"))
    except OSError:
        return None
    return int(lines["MemAvailable"].split()[0]) * 1024


def confine(limit):
    """Called in the child: it is the first to end where memory runs out, and is refused memory past the limit."""
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def run(command, confined=False, timeout=None, env=None):
    """Runs to the end. Confined, a program that needs more memory than is free raises OutOfMemory. After `timeout` seconds
    the program is killed and Failed is raised."""
    free = free_bytes() if confined else None
    limit = free - RESERVE if free else None
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env,
                                 preexec_fn=lambda: confine(limit))
        timer = threading.Timer(timeout or threading.TIMEOUT_MAX, child.kill)
        timer.daemon = True
        timer.start()
        lines = []
        for line in child.stdout:
            if line.startswith('{"'):
                lines.append((time.perf_counter(), json.loads(line)))
        _, status, used = os.wait4(child.pid, 0)
        timed_out = timer.finished.is_set()
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode == 0 and lines:
            return Ran(lines, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
        errors.seek(0)
        said = errors.read()[-3000:]
    if timed_out:
        raise Failed(f"`{' '.join(command)}` did not end within {timeout} s:\n{said}")
    wants_memory = any(word in said for word in ("allocate memory", "bad_alloc", "MemoryError"))
    if confined and (wants_memory or child.returncode == -9):
        raise OutOfMemory(f"needs more than {limit} bytes")
    raise Failed(f"`{' '.join(command)}` ended with {child.returncode}:\n{said}")
