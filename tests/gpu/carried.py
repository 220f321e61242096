"""What `tests/gpu/build` packed, unpacked on the machine with the GPU, and the libraries that are there already."""
import glob, hashlib, json, os, shutil, site, subprocess, tarfile, zipfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PACKED = os.path.join(ROOT, ".gpu", "carried.tar.xz")
FOLDER = os.path.join(ROOT, ".gpu", "unpacked")
PROGRAM = os.path.join(FOLDER, "tunebox")


def unpack():
    """Once a packed file: programs, and links from where tests look for this checkout and for the program."""
    with open(PACKED, "rb") as packed:
        digest = hashlib.sha256(packed.read()).hexdigest()
    mark = os.path.join(FOLDER, "digest")
    if not os.path.exists(mark) or open(mark).read() != digest:
        # A machine that is still warm may hold those of an earlier build.
        shutil.rmtree(FOLDER, ignore_errors=True)
        with tarfile.open(PACKED) as packed:
            packed.extractall(FOLDER, filter="tar")
        with open(mark, "w") as file:
            file.write(digest)
    for name, here in (("root", ROOT), ("program", PROGRAM)):
        built = open(os.path.join(FOLDER, name)).read().strip()
        if not os.path.exists(built):
            os.makedirs(os.path.dirname(built), exist_ok=True)
            os.symlink(here, built)
    wheels = glob.glob(os.path.join(FOLDER, "wheels", "*.whl"))
    place = os.path.join(FOLDER, "site")
    if wheels and not os.path.exists(place):
        # Pure Python: unpacked is installed, also where there is no pip.
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(place)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (place, os.environ.get("PYTHONPATH")) if path)
    os.environ["TUNEBOX_DEVICES"] = "cuda"


def device():
    """What `tunebox doctor` says of CUDA; first as anybody would start it, then with the libraries of this Python named."""
    said = doctor()
    if not said.startswith("cuda:"):
        roots = [*site.getsitepackages(), "/usr/local/cuda*"]
        names = [f"{root}/**/{name}.so*" for root in roots for name in ("libnvrtc", "libcublas", "libcublasLt")]
        folders = sorted({os.path.dirname(path) for name in names for path in glob.glob(name, recursive=True)})
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, os.environ.get("LD_LIBRARY_PATH", "")])
        again = doctor()
        said = f"{again} [only with LD_LIBRARY_PATH; without: {said}]"
    return said


def doctor():
    ran = subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True)
    for line in ran.stdout.splitlines():
        if line.startswith('{"'):
            return next(one["state"] for one in json.loads(line)["devices"] if one["name"] == "cuda")
    return f"doctor ended with {ran.returncode}: {ran.stderr.strip()}"


def tests():
    return sorted(glob.glob(os.path.join(FOLDER, "test-*")))
