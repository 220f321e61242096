"""Times the attention kernels for tensor cores, and variants of their tiles, beside PyTorch's flash attention.

Usage: attention.py [--shape 14,2,64] [--rows 8x2048] [--variant WARPGROUPS=0,DQ_KEYS=32]…
Compiles the kernels' text by itself, so a variant needs no build of tunebox. Needs cupy and PyTorch.
"""
import argparse, os, tempfile
import cupy, numpy, torch
from cupy_backends.cuda.libs import nvrtc

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime", "compute", "src", "accelerator", "kernels")
FILES = ["cuda/machine.cuh", "cuda/prelude.cuh", "dialect.h", "attention.h", "cuda/attention_tiles.cu", "attention_plain.h",
         "cuda/attention_sizes.cuh", "cuda/warpgroup.cuh", "cuda/attention_mma.cu", "cuda/attention_wgmma.cu", "cuda/attention_common.cuh",
         "cuda/attention_tensor.cu", "cuda/attention_tensor_back.cu"]
# Macros that `-D` may change.
VARIANTS = [{}, {"WARPGROUPS": 0}, *({"FORWARD_KEYS": size, "DQ_KEYS": size, "DKV_QUERIES": size} for size in (32, 64, 128)), {"ATTENTION_WARPS": 4}]
SCALE, REPEATS = 0.125, 10


def source(dim):
    return f"#define ACTIVATION 1\n#define HEAD_DIM {dim}\n" + "\n".join(open(os.path.join(KERNELS, name)).read() for name in FILES)


def module(text, variant):
    """Machine code for this GPU, as tunebox has it compiled; for 9.0 with the instructions of warpgroups."""
    capability = cupy.cuda.Device().compute_capability
    options = [f"--gpu-architecture=sm_{capability}" + ("a" if capability == "90" else ""), "--std=c++17",
               "--device-as-default-execution-space", *(f"-D{name}={value}" for name, value in variant.items())]
    program = nvrtc.createProgram(text, "attention.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        raise RuntimeError(nvrtc.getProgramLog(program)[:400]) from None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(nvrtc.getCUBIN(program))
        file.flush()
        loaded = cupy.RawModule(path=file.name)
        # Else it would be read at the first launch, when the file is gone.
        loaded.compile()
        return loaded


def tiles(batch, length, size):
    """Tiles of so many tokens, as `TileEntry`, and a `Span` for each row."""
    places = [(first, row * length + first, min(size, length - first), row, 1) for row in range(batch) for first in range(0, length, size)]
    return places, [(0, row * length, length) for row in range(batch)]


def uploaded(numbers):
    return cupy.asarray(numpy.array(numbers, dtype=numpy.uint32))


def milliseconds(work):
    """The median of some calls after a first one."""
    work()
    times = []
    for _ in range(REPEATS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(); work(); end.record(); end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return sorted(times)[REPEATS // 2]


def address(argument):
    """What a kernel takes: the address of a tensor, 0 for none, or a number as it is."""
    if argument is None:
        return numpy.uint64(0)
    if isinstance(argument, torch.Tensor):
        return numpy.uint64(argument.data_ptr())
    return numpy.uint64(argument.data.ptr) if isinstance(argument, cupy.ndarray) else argument


class Case:
    """Operands of one batch, as tensors of PyTorch whose memory the kernels read."""

    def __init__(self, heads, kv_heads, dim, batch, length):
        self.heads, self.kv_heads, self.dim, self.batch, self.length = heads, kv_heads, dim, batch, length
        self.tokens, self.group = batch * length, heads // kv_heads
        random = torch.Generator("cuda").manual_seed(1)
        new = lambda width: torch.randn(self.tokens, width, generator=random, device="cuda", dtype=torch.float32).bfloat16()
        self.q, self.k, self.v, self.dout = new(heads * dim), new(kv_heads * dim), new(kv_heads * dim), new(heads * dim)
        empty = lambda *shape, dtype=torch.bfloat16: torch.full(shape, float("nan"), device="cuda", dtype=dtype)
        self.out, self.dq = empty(self.tokens, heads * dim), empty(self.tokens, heads * dim)
        self.lse, self.delta = (empty(self.tokens, heads, dtype=torch.float32) for _ in range(2))
        self.parts = empty(self.group, 2, self.tokens, kv_heads * dim, dtype=torch.float32)

    def launch(self, module, name, grid, threads, shared, first, places, spans):
        """A call of a kernel with its own arguments first, then those that all share."""
        kernel = module.get_function(name)
        kernel.max_dynamic_shared_size_bytes = max(shared, 48 << 10)
        kept, wide, narrow = [uploaded(places), uploaded(spans)], self.heads * self.dim, self.kv_heads * self.dim
        numbers = [numpy.uint32(one) for one in (self.heads, self.group, self.dim)] + [numpy.float32(SCALE), numpy.float32(0), numpy.uint32(0)]
        arguments = [address(one) for one in first + kept] + [numpy.uint64(one) for one in (wide, narrow, narrow)] + numbers
        return lambda kept=kept: kernel(grid, (threads,), tuple(arguments), shared_mem=shared)

    def kernels(self, module, variant):
        """The three kernels as calls, by name; sizes as in attention_sizes.cuh and attention/device.rs."""
        d = self.dim
        groups = variant["WARPGROUPS"] if d in (64, 128) else 0
        warps = variant.get("ATTENTION_WARPS", 8 if groups and d > 64 else 4)
        # Tiles that are copied ahead, and numbers of a row; groups begin on 1024 bytes.
        rows, threads, ahead, pitch, more = 16 * warps, 32 * warps, 1 + groups, d if groups else d + 8, 1024 * groups
        stack = variant.get("FORWARD_STACK", 1 if groups or d > 128 else 2)
        queries, keys = rows * stack, variant.get("FORWARD_KEYS", 128 if groups and d == 128 else 64 if d <= 80 or d == 128 else 32)
        places, spans = tiles(self.batch, self.length, queries)
        places.sort(key=lambda place: -place[0])
        forward = self.launch(module, "attention", (len(places), self.heads), threads, 2 * pitch * (queries + 2 * ahead * keys) + more,
                              [self.out, self.lse, self.q, self.k, self.v], places, spans)
        keys = variant.get("DQ_KEYS", 64 if d <= 128 else 32)
        places, spans = tiles(self.batch, self.length, rows)
        places.sort(key=lambda place: -place[0])
        read = [self.dout, self.q, self.k, self.v, self.lse, self.delta]
        dq = self.launch(module, "attention_dq", (len(places), self.heads), threads, 4 * pitch * (rows + ahead * keys) + more,
                         [self.dq, *read], places, spans)
        queries = variant.get("DKV_QUERIES", 64 if d <= 64 or d == 128 else 32)
        places.sort(key=lambda place: place[0])
        first = [None, None, self.parts, numpy.uint32(1), numpy.uint32(self.tokens), *read]
        dkv = self.launch(module, "attention_dkv", (len(places), self.heads), threads,
                          4 * pitch * (rows + ahead * queries) + 8 * ahead * queries + more, first, places, spans)
        return {"forward": forward, "dq": dq, "dkv": dkv}

    def flash(self):
        """Outputs and gradients of PyTorch, and the milliseconds of both passes."""
        split = lambda x, heads: x.view(self.batch, self.length, heads, self.dim).transpose(1, 2).detach().requires_grad_()
        q, k, v = split(self.q, self.heads), split(self.k, self.kv_heads), split(self.v, self.kv_heads)
        run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE, enable_gqa=self.group > 1)
        out = run()
        dout = self.dout.view(self.batch, self.length, self.heads, self.dim).transpose(1, 2)
        back = lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
        join = lambda x: x.transpose(1, 2).reshape(self.tokens, -1)
        return [join(x) for x in (out, *back())], milliseconds(run), milliseconds(back)


def check(case, wanted):
    """The largest distances from PyTorch's numbers, as shares of its largest."""
    sums = case.parts.sum(0)
    found = [case.out, case.dq, sums[0], sums[1]]
    return [((one.float() - other.float()).abs().max() / other.float().abs().max()).item() for one, other in zip(found, wanted)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shape", action="append"); p.add_argument("--rows", action="append"); p.add_argument("--variant", action="append")
    a = p.parse_args()
    number = lambda one: (one.split("=")[0], int(one.split("=")[1]))
    variants = [{}, *(dict(map(number, one.split(","))) for one in a.variant)] if a.variant else VARIANTS
    for shape in a.shape or ["14,2,64", "32,8,128"]:
        for rows in a.rows or ["4x1024", "8x2048"]:
            case = Case(*map(int, shape.split(",")), *map(int, rows.split("x")))
            # Gigaflops of one product under a causal mask; a kernel has two to four.
            unit = case.batch * case.heads * case.length**2 * case.dim / 1e9
            rate = lambda name, time: {"forward": 2, "dq": 3, "dkv": 4}[name] * unit / time
            wanted, forward, back = case.flash()
            print(f"heads {shape}, {rows}: PyTorch forward {forward:.3f} ms ({2 * unit / forward:.0f} TFLOP/s), backward {back:.3f} ms ({5 * unit / back:.0f})", flush=True)
            for variant in variants:
                variant = {"WARPGROUPS": int(cupy.cuda.Device().compute_capability == "90")} | variant
                try:
                    calls = case.kernels(module(source(case.dim), variant), variant)
                    calls["forward"]()
                    products = (case.dout.float() * case.out.float()).view(-1, case.heads, case.dim)
                    case.delta.copy_(products.sum(-1))
                    times = {name: milliseconds(call) for name, call in calls.items()}
                    off = ", ".join(f"{share:.0e}" for share in check(case, wanted))
                    print(f"  {variant}: " + ", ".join(f"{name} {time:.3f} ms ({rate(name, time):.0f})" for name, time in times.items())
                          + f"; off by {off}", flush=True)
                except Exception as ended:
                    print(f"  {variant}: {type(ended).__name__}: {str(ended)[:200]}", flush=True)


if __name__ == "__main__":
    main()
