// What all kernels share: the type of activations, vectors of eight numbers, sums in fixed orders, the fault word.
//
// A module is the text of machine.cuh, this file and the files of its kernels, one after another, compiled for one type
// of activations: ACTIVATION is 0 for f32, 1 for bf16, 2 for f16. Sums are in f32 or f64 whatever the type.

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

#define LOG2_E 1.4426950408889634f
#define LN_2 0.69314718055994531f
#define INFINITE __int_as_float(0x7f800000)
#define WARP 32
// What unpack_formats.h writes for both languages: here all pointers are alike.
#define MEMBER static __device__ __forceinline__
#define GLOBAL
#define THREAD
#define TABLE const
#define UNROLL _Pragma("unroll")

// A number that a template takes by its type.
template <int N> struct Count {
    static constexpr int value = N;
};

DEVICE bool finite(float number) { return (__float_as_uint(number) & 0x7f800000u) != 0x7f800000u; }
DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }
DEVICE u32 most(u32 a, u32 b) { return a > b ? a : b; }
DEVICE u32 divided_up(u32 a, u32 b) { return (a + b - 1) / b; }

// As the processor rounds: no product is fused with a sum.
DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
DEVICE float minus(float a, float b) { return __fsub_rn(a, b); }

// A number of 16 bits at an even address.
DEVICE float half_at(const u8 *bytes) {
    f16 half = {*(const u16 *)bytes};
    return wide(half);
}

// ---- one number, or eight that begin on a boundary of 16 bytes ----

template <int N> DEVICE void load(float (&into)[N], const float *from) {
    if constexpr (N == 8) {
        float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
        into[0] = low.x, into[1] = low.y, into[2] = low.z, into[3] = low.w;
        into[4] = high.x, into[5] = high.y, into[6] = high.z, into[7] = high.w;
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) into[i] = from[i];
    }
}

template <int N, typename T> DEVICE void load(float (&into)[N], const T *from) {
    if constexpr (N == 8) {
        uint4 words = *(const uint4 *)from;
        u32 all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) into[2 * i] = first_of<T>(all[i]), into[2 * i + 1] = second_of<T>(all[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) into[i] = wide(from[i]);
    }
}

template <int N> DEVICE void store(float *to, const float (&numbers)[N]) {
    if constexpr (N == 8) {
        *(float4 *)to = make_float4(numbers[0], numbers[1], numbers[2], numbers[3]);
        *(float4 *)(to + 4) = make_float4(numbers[4], numbers[5], numbers[6], numbers[7]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = numbers[i];
    }
}

template <int N, typename T> DEVICE void store(T *to, const float (&numbers)[N]) {
    if constexpr (N == 8) {
        *(uint4 *)to = make_uint4(pack<T>(numbers[0], numbers[1]), pack<T>(numbers[2], numbers[3]),
                                  pack<T>(numbers[4], numbers[5]), pack<T>(numbers[6], numbers[7]));
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = narrow<T>(numbers[i]);
    }
}

// Whether a pointer, if there is one, is on a boundary of 16 bytes.
DEVICE bool even(const void *pointer) { return ((u64)pointer & 15) == 0; }

// Runs `work(at, Count<N>)` for the places 0 … width − 1, eight at a time if `eights`, this lane's share of `lanes`.
template <typename F> DEVICE void along(u32 width, bool eights, u32 lane, u32 lanes, F work) {
    if (eights) {
        for (u32 at = lane * 8; at < width; at += lanes * 8) work(at, Count<8>());
    } else {
        for (u32 at = lane; at < width; at += lanes) work(at, Count<1>());
    }
}

// The same for a flat buffer and all threads of a grid of one axis; what eight do not divide comes one by one.
template <typename F> DEVICE void everywhere(u64 count, bool eights, F work) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    u64 whole = eights ? count / 8 * 8 : 0;
    for (u64 at = thread * 8; at < whole; at += threads * 8) work(at, Count<8>());
    for (u64 at = whole + thread; at < count; at += threads) work(at, Count<1>());
}

// ---- sums in fixed orders ----

// Σ over a warp, in every lane.
template <typename T> DEVICE T warp_sum(T value) {
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) value += across(value, mask);
    return value;
}

// Σ over a block of at most 1024 threads, in every thread: warps first, then their sums in order.
template <typename T> DEVICE T block_sum(T value) {
    __shared__ T parts[WARP];
    value = warp_sum(value);
    meet_block();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    meet_block();
    T sum = parts[0];
    for (u32 warp = 1; warp < blockDim.x / WARP; ++warp) sum += parts[warp];
    return sum;
}

// ---- functions ----

// 1 / (1 + e⁻ˣ).
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The hyperbolic tangent by two fast instructions, off by 10⁻⁷ at most; for scores on their way to 16 bits.
DEVICE float fast_tanh(float x) {
    return 1.0f - 2.0f * reciprocal(1.0f + power_of_two(2.0f * LOG2_E * x));
}

// ---- the fault word ----
//
// One 64-bit word for a device, all ones while nothing is wrong. A kernel that meets an index out of range lowers it
// to `place << 32 | ~index` and goes on with index 0, so that nothing is read or written out of bounds. `place` is the
// number, from 0, of the operation since the word was last read: what stays is the earliest operation's largest index,
// whatever the order in which threads came. Every read-back of numbers also brings the word (8 bytes more in the same
// stream); if it is not all ones the host refuses what it has read, names the index and sets the word again. `place` is 0
// so far, since the host checks indices before it uploads them. `adamw` writes nothing while the word is set.

DEVICE void fault(u64 *word, u32 place, u32 index) { atomicMin(word, (u64)place << 32 | (u64)~index); }

// An index if it is below `bound`, else 0 and a fault.
DEVICE u32 inside(u32 index, u32 bound, u64 *word, u32 place) {
    if (index < bound) return index;
    fault(word, place, index);
    return 0;
}
