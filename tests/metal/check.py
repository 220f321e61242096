"""Whether the text of every Metal library is C++ that clang accepts, with Metal's kinds of memory kept apart.

    python check.py

Needs libclang in the environment (`pip install libclang`); no Metal, no Mac. `metal_stdlib` declares Metal's
words. What clang cannot know is whether Metal's own compiler accepts the rest.
"""

import re
import sys
from pathlib import Path

from clang.cindex import Index

HERE = Path(__file__).parent
KERNELS = HERE / "../../runtime/compute/src/accelerator/kernels"
# The files of each library behind what all have in front, and what it depends on beside the type of activations.
SHARED = ["metal/prelude.metal", "dialect.h"]
STEP = ["elementwise.h", "norm.h", "rope.h", "embedding.h", "optimizer.h", "head.h", "patches.h"]
ATTENTION = ["attention.h", "metal/attention_tiles.metal", "attention_plain.h"]
LIBRARIES = {
    "step": (STEP, {}),
    "unpack": (["unpack_formats.h", "unpack.h"], {}),
    "chance": (["chance.h"], {}),
    "attention": (ATTENTION, {"HEAD_DIM": [16, 64, 80, 96, 128, 256]}),
    "cached": (["attention.h", "attention_cached.h"], {"HEAD_DIM": [64, 128, 256], "GROUP": [1, 4, 14]}),
    "product": (["metal/product.metal"], {}),
}
OPTIONS = ["-x", "c++", "-std=c++14", f"-I{HERE}", "-DADDRESS_SPACES", "-Wall", "-Wextra"]
# Metal's attributes; variables that one kernel of a macro does not use; fields that a kernel leaves alone.
OPTIONS += ["-Wno-unknown-attributes", "-Wno-unused-parameter", "-Wno-unused-function", "-Wno-parentheses"]
OPTIONS += ["-Wno-shift-op-parentheses", "-Wno-bitwise-op-parentheses", "-Wno-sign-compare"]
# What Metal does not have.
FORBIDDEN = re.compile(r"\bdouble\b|\bgoto\b|\bvirtual\b|\bnew\b|\bauto\b|\blong\b|\[[&=]\]|\bif constexpr\b")
# The memory of a group of threads.
MOST_SHARED = 32768


def variants(choices):
    made = [[]]
    for name, values in choices.items():
        made = [defines + [f"-D{name}={value}"] for defines in made for value in values]
    return made


def shared_bytes(unit, kernel):
    """Bytes of the group's memory that a kernel declares."""
    return sum(
        child.type.get_size()
        for child in kernel.walk_preorder()
        if child.kind.name == "VAR_DECL" and child.storage_class.name == "EXTERN"
    )


def main():
    index, failed, kernels = Index.create(), 0, set()
    for name, (files, choices) in LIBRARIES.items():
        paths = [KERNELS / file for file in [*SHARED, *files]]
        texts = [path.read_text() for path in paths]
        for path, text in zip(paths, texts):
            code = re.sub(r"//.*", "", text)
            for found in FORBIDDEN.finditer(code):
                print(f"{path.name}: Metal has no `{found.group()}`")
                failed += 1
        text = "\n".join(texts)
        for defines in variants(choices):
            for activation in range(3):
                options = [*OPTIONS, f"-DACTIVATION={activation}", *defines]
                unit = index.parse(f"{name}.metal", args=options, unsaved_files=[(f"{name}.metal", text)])
                for diagnostic in unit.diagnostics:
                    print(f"{name} {activation} {' '.join(defines)}: {diagnostic}")
                    failed += 1
                for child in unit.cursor.get_children():
                    if child.kind.name != "FUNCTION_DECL" or not child.is_definition():
                        continue
                    bytes_of = shared_bytes(unit, child)
                    if bytes_of > MOST_SHARED:
                        print(f"{child.spelling} {' '.join(defines)}: {bytes_of} bytes of a group's {MOST_SHARED}")
                        failed += 1
                    if bytes_of or any(a.spelling == "given" for a in child.get_arguments()):
                        kernels.add(child.spelling)
    print(f"{len(kernels)} kernels, {failed} complaints")
    sys.exit(failed != 0)


main()
