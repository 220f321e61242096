// What all kernels share: the type of activations, where a thread is, vectors of numbers, sums in fixed orders.
//
// Kernels are written once, in the dialect of CUDA C++ that Metal's language reads too: no lambdas, no exceptions to
// kinds of memory. cuda/prelude.cuh and metal/prelude.metal define what the two write differently:
//
//   KERNEL(most) name(… WHERE)  a kernel of at most `most` threads a block; WHERE ends its arguments, HERE is a `Here`
//   NUMBER(T)                   before an argument that is a number; all others are pointers
//   THERE(index, name)          whether argument `index`, the pointer `name`, is not null
//   GLOBAL, LOCAL, THREAD       the memory behind a pointer or reference: the device's, the block's, the thread's own
//   SHARED                      before a variable of the block's memory, in a kernel alone
//   ALONG, EVERYWHERE           loops over numbers, several at a time where the machine has vectors
//   get, put, load, store       numbers of any type in the device's memory, as f32
//   Double, Factor              f64 and what multiplies it, or what stands for them on a machine without f64
//   times, plus, minus          each rounded by itself, as on the processor
//
// A module is the text of the prelude, this file and the files of its kernels, one after another, compiled for one type
// of activations: ACTIVATION is 0 for f32, 1 for bf16, 2 for f16. Sums are in f32 or `Double` whatever the type.

#ifndef ACTIVATION
#define ACTIVATION 1
#endif

#if ACTIVATION == 0
typedef float act;
#elif ACTIVATION == 1
typedef bf16 act;
#else
typedef f16 act;
#endif

#define WARP 32u
#define NOWHERE 0xffffffffu
#define LOG2_E 1.4426950408889634f
#define INFINITE float_of(0x7f800000u)

// Where a thread is: its block among the blocks of the grid, its number among the threads of its block.
struct Here {
    uint3 block, blocks;
    u32 index, threads;
};

// Numbers that lie side by side, as f32.
template <int N> struct Numbers {
    float at[N];
};

DEVICE bool is_finite(float number) { return (bits_of(number) & 0x7f800000u) != 0x7f800000u; }
DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }
DEVICE u32 most(u32 a, u32 b) { return a > b ? a : b; }
DEVICE u32 div_ceil(u32 a, u32 b) { return (a + b - 1) / b; }
DEVICE u32 plus(u32 a, u32 b) { return a + b; }

// 1 / (1 + e⁻ˣ).
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <int N> DEVICE Numbers<N> scaled(Numbers<N> numbers, float factor) {
    UNROLL for (int i = 0; i < N; ++i) numbers.at[i] *= factor;
    return numbers;
}

template <int N> DEVICE Numbers<N> sum_of(Numbers<N> a, Numbers<N> b) {
    UNROLL for (int i = 0; i < N; ++i) a.at[i] += b.at[i];
    return a;
}

// factor · a + b, number by number, each rounded once.
template <int N> DEVICE Numbers<N> fused(float factor, Numbers<N> a, Numbers<N> b) {
    UNROLL for (int i = 0; i < N; ++i) b.at[i] = fmaf(factor, a.at[i], b.at[i]);
    return b;
}

// sum + Σ a·b, number after number.
template <int N> DEVICE float dot(Numbers<N> a, Numbers<N> b, float sum) {
    UNROLL for (int i = 0; i < N; ++i) sum = fmaf(a.at[i], b.at[i], sum);
    return sum;
}

// Σ over a warp, in every lane.
template <typename T> DEVICE T warp_sum(T value) {
    UNROLL for (u32 mask = WARP / 2; mask > 0; mask /= 2) value = plus(value, shuffle_xor(value, mask));
    return value;
}

// The largest number of a warp, in every lane.
DEVICE float warp_most(float value) {
    UNROLL for (u32 mask = WARP / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

// Σ over a block of at most 1024 threads, in every thread: warps first, then their sums in order. `parts`: WARP numbers.
template <typename T> DEVICE T block_sum(T value, LOCAL T *parts, Here here) {
    value = warp_sum(value);
    sync_block();
    if (here.index % WARP == 0) local_put(parts, here.index / WARP, value);
    sync_block();
    T sum = local_get(parts, 0u);
    for (u32 warp = 1; warp < here.threads / WARP; ++warp) sum = plus(sum, local_get(parts, warp));
    return sum;
}

// The largest number of a block of at most 1024 threads, in every thread. `parts`: WARP numbers.
DEVICE float block_most(float value, LOCAL float *parts, Here here) {
    value = warp_most(value);
    sync_block();
    if (here.index % WARP == 0) parts[here.index / WARP] = value;
    sync_block();
    float largest = parts[0];
    for (u32 warp = 1; warp < here.threads / WARP; ++warp) largest = fmaxf(largest, parts[warp]);
    return largest;
}

// An index if it is below `bound`, else 0 and a fault.
DEVICE u32 inside(u32 index, u32 bound, FAULT_WORD word) {
    if (index < bound) return index;
    fault(word, index);
    return 0;
}
