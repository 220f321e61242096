"""Whether every module compiles with NVRTC, without a GPU: PTX for sm_80 and sm_90, and machine code for its registers.

    python compile.py [--cubin]

Needs nvidia-cuda-nvrtc in the environment; no headers of the toolkit.
"""

import ctypes
import glob
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
SHARED = ["machine.cuh", "prelude.cuh"]
# The files of each module, and whether it depends on the head size.
MODULES = {
    "step": (
        ["elementwise.cu", "norm.cu", "rope.cu", "embedding.cu", "optimizer.cu", "faults.cu", "head.cu", "patches.cu"],
        False,
    ),
    "unpack": (["unpack.cu"], False),
    "chance": (["chance.cu"], False),
    "attention": (["attention.cuh", "attention_plain.cu", "attention_tensor.cu"], True),
    "cached": (["attention.cuh", "attention_cached.cu"], True),
}
# Lambdas have no execution space of their own; here all are the device's.
OPTIONS = ["--std=c++17", "--device-as-default-execution-space"]
HEADS = [64, 80, 96, 128, 160, 256]


def library():
    found = sorted(glob.glob(sys.prefix + "/lib/python3*/site-packages/nvidia/**/libnvrtc*.so*", recursive=True))
    found = [path for path in found if ".alt." not in path]
    # It looks for its other half by name only; one that is loaded already is found.
    for path in found:
        if "builtins" in path:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(next(path for path in found if "builtins" not in path))


def compile(nvrtc, text, name, options):
    program = ctypes.c_void_p()
    check = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    assert check == 0, check
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    result = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    ptx = b""
    if result == 0 and nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0:
        buffer = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetPTX(program, buffer)
        ptx = buffer.value
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result, log.value.decode(), ptx.decode()


def main():
    nvrtc = library()
    cubin = "--cubin" in sys.argv
    failed = 0
    for name, (files, by_head) in MODULES.items():
        text = "".join((HERE / file).read_text() + "\n" for file in SHARED + files)
        for activation in range(3):
            for head in HEADS if by_head else [128]:
                for group in ([1, 4, 14] if name == "cached" else [1]):
                    for capability in ["80", "90"]:
                        arch = ("sm_" if cubin else "compute_") + capability
                        options = [f"--gpu-architecture={arch}", *OPTIONS, f"-DACTIVATION={activation}"]
                        options += [f"-DHEAD_DIM={head}", f"-DGROUP={group}"]
                        options += ["--ptxas-options=-v"] if cubin else []
                        result, log, ptx = compile(nvrtc, text, name + ".cu", options)
                        kernels = len(re.findall(r"\.entry", ptx))
                        label = f"{name} act {activation} head {head} group {group} {arch}"
                        print(f"{label}: {'failed' if result else 'ok'}, {kernels} kernels, {len(ptx)} bytes")
                        failed += result != 0
                        if log.strip("\0 \n") and (result or cubin or "warning" in log):
                            print(log)
    sys.exit(failed != 0)


main()
