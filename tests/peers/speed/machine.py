"""A note of the machine, and whether the peers are there in the versions that are pinned."""
import datetime, importlib.metadata, os, platform, re, sys

HERE = os.path.dirname(os.path.abspath(__file__))
REQUIRED = os.path.join(HERE, "..", "requirements.txt")
LLAMA = os.path.join(HERE, "llama.txt")

# The flags of the widest instruction sets first, as the kernel calls them, and their names.
INSTRUCTION_SETS = [("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 BF16"), ("avx512f", "AVX-512"), ("avx2", "AVX2")]

# What the program ends with where a module is missing, or is there in another version.
MISSING, OTHER_VERSION = 3, 4


def processor():
    """The processor's name, with family and model where the name alone does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in open("/proc/cpuinfo").read().split("\n\n")[0].splitlines())
    except (OSError, ValueError):
        return platform.processor()
    found = {key.strip(): value.strip() for key, value in lines.items()}
    name = re.sub(r"\(\w+\)| Processor", "", found.get("model name", platform.processor()))
    flags = found.get("flags", "").split()
    wide = next((name for flag, name in INSTRUCTION_SETS if flag in flags), None)
    family = f"family {found['cpu family']} model {found['model']}" if "cpu family" in found else None
    return ", ".join(part for part in (name, family, wide) if part)


def kind():
    """A word for all machines of this kind: the name of their data file."""
    return re.sub("[^a-z0-9]+", "-", processor().lower()).strip("-") + f"-{os.cpu_count()}-cores"


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def note():
    """What a reader must know of where figures come from. Nothing that names a host or a path."""
    return {"processor": processor(), "cores": os.cpu_count(), "memory_bytes": memory_bytes(),
            "system": f"{platform.system()} {platform.release().split('-')[0]}", "python": platform.python_version()}


def today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def pinned(path):
    """Versions by name; None for what is required in any version."""
    lines = [line.split("#")[0].strip() for line in open(path)]
    return {name: version or None for name, _, version in (line.partition("==") for line in lines if line)}


def versions(path=REQUIRED):
    """Versions that are installed, of what a file of requirements pins; None for what is missing."""
    found = {}
    for name in pinned(path):
        try:
            found[name] = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def check():
    """Ends the program with one plain line where a peer cannot be measured."""
    found, wanted = versions(), pinned(REQUIRED)
    missing = [name for name, version in found.items() if version is None]
    if missing:
        leave(MISSING, f"skipped: this Python has no {', '.join(missing)}; `pip install -r tests/peers/requirements.txt` brings them")
    other = [f"{name} {found[name]} instead of {version}" for name, version in wanted.items() if version and version != found[name]]
    if other:
        leave(OTHER_VERSION, f"not measured: {', '.join(other)}; `pip install -r tests/peers/requirements.txt` brings the pinned ones")


def leave(code, line):
    print(line, file=sys.stderr)
    sys.exit(code)
