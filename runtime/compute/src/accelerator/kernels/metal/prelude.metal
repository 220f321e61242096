// Metal's side of what `dialect.h` lists: kernels and their arguments, kinds of memory, numbers of 16 bits, pairs for what
// f32 cannot hold, the fault word. A block is a threadgroup here, and a warp a SIMD group.
//
// A library is the text of this file, dialect.h and the files of its kernels, one after another, compiled at run time.
// Metal 2.3 and up, SIMD groups of 32, no fast-math: sums of pairs are nothing without the order in which they are
// written.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// From Metal 3.2 on the text can say itself how it is to be compiled; before, the options of the compiler say the first.
#if defined(__METAL_VERSION__) && __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;

// What the emulated machine of the tests defines otherwise.
#ifndef KERNEL
// A kernel of at most so many threads a group. Metal numbers the buffers of arguments in their order.
#define KERNEL(most) [[kernel, max_total_threads_per_threadgroup(most)]] void
// At the end of every list of arguments: a bit for each pointer that is not null, and where a thread is.
#define WHERE                                                                                                          \
    , constant u32 &given, uint3 here_block [[threadgroup_position_in_grid]],                                          \
        uint3 here_blocks [[threadgroups_per_grid]], u32 here_index [[thread_index_in_threadgroup]],                   \
        uint3 here_threads [[threads_per_threadgroup]]
#define HERE {here_block, here_blocks, here_index, here_threads.x}
// A null buffer has no address that could be asked.
#define THERE(index, name) ((given >> index & 1u) != 0)
#define FAULT_WORD device atomic_uint *
#endif
#ifndef SHARED
#define SHARED threadgroup
#endif

#define DEVICE inline
#define MEMBER static
#define GLOBAL device
#define LOCAL threadgroup
#define THREAD thread
#define NUMBER(T) constant T &
// Before a loop whose counter picks registers.
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_BY_8

// Likeliest words that `choose` keeps in a group's memory, of which there are 32 KiB.
#define NEAREST 2048u

// Loops over numbers, one a thread at a time.
#define ALONG(at, N, width, aligned, here, ...)                                                                        \
    for (u32 at = (here).index; at < (width); at += (here).threads) {                                                  \
        constexpr int N = 1;                                                                                           \
        __VA_ARGS__                                                                                                    \
    }
#define EVERYWHERE(at, N, count, aligned, ...)                                                                         \
    Here everywhere = HERE;                                                                                            \
    for (u64 at = (u64)everywhere.block.x * everywhere.threads + everywhere.index; at < (count);                       \
         at += (u64)everywhere.blocks.x * everywhere.threads) {                                                        \
        constexpr int N = 1;                                                                                           \
        __VA_ARGS__                                                                                                    \
    }

// A number of 16 bits: 8 bits of exponent, 7 of mantissa. Not `bfloat`: that is Metal 3.1, and this is no slower.
struct bf16 {
    u16 bits;
};

// A number of 16 bits: 5 bits of exponent, 10 of mantissa.
struct f16 {
    u16 bits;
};

inline float float_of(u32 bits) { return as_type<float>(bits); }
inline u32 bits_of(float number) { return as_type<u32>(number); }
inline u32 count_bits(u32 word) { return popcount(word); }
inline u32 lowest_bit(u32 word) { return ctz(word); }
inline u32 highest_bit(u32 word) { return 31 - clz(word); }

// CUDA's names.
#define expf exp
#define logf log
#define tanhf tanh
#define sqrtf sqrt
#define fabsf fabs
#define fmaxf fmax
#define fmaf fma

// ---- numbers of other types ----

inline float wide_bf16(u16 bits) { return as_type<float>((u32)bits << 16); }
inline float wide_f16(u16 bits) { return (float)as_type<half>(bits); }

// The nearest number, the even one of two.
inline u16 narrow_bf16(float number) {
    u32 bits = as_type<u32>(number);
    if (number != number) return 0x7fff;
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline u16 narrow_f16(float number) { return as_type<u16>((half)number); }

// A number of 16 bits at an even address.
inline float half_at(device const u8 *bytes) { return wide_f16(*(device const u16 *)bytes); }

inline float get(device const float *from, u64 at) { return from[at]; }
inline float get(device const bf16 *from, u64 at) { return wide_bf16(from[at].bits); }
inline float get(device const f16 *from, u64 at) { return wide_f16(from[at].bits); }
inline void put(device float *to, u64 at, float number) { to[at] = number; }
inline void put(device bf16 *to, u64 at, float number) { to[at].bits = narrow_bf16(number); }
inline void put(device f16 *to, u64 at, float number) { to[at].bits = narrow_f16(number); }

template <int N> struct Numbers;

template <int N, typename T> Numbers<N> load(device const T *from) {
    Numbers<N> into;
    UNROLL for (int i = 0; i < N; ++i) into.at[i] = get(from, i);
    return into;
}
template <int N, typename T> void store(device T *to, Numbers<N> from) {
    UNROLL for (int i = 0; i < N; ++i) put(to, i, from.at[i]);
}

// Nothing here asks for a boundary.
#define are_aligned(...) true

// Products and sums that are rounded one by one where the processor does so. Before Metal 3.2 a call is what keeps them
// apart: nothing is fused across expressions unless math is fast.
inline float times(float a, float b) { return a * b; }
inline float plus(float a, float b) { return a + b; }
inline float minus(float a, float b) { return a - b; }

// ---- pairs: high + low, 48 bits, where CUDA has f64; the range is that of f32 ----

bool is_finite(float number);

struct Pair {
    float high, low;
};
typedef Pair Double;
typedef float Factor;

inline Pair pair(float high, float low) {
    Pair result = {high, low};
    return result;
}

// a + b exactly.
inline Pair exact_sum(float a, float b) {
    float sum = a + b, part = sum - a;
    // What is not finite has no rest.
    return pair(sum, is_finite(sum) ? (a - (sum - part)) + (b - part) : 0.0f);
}

// The same if |a| ≥ |b|.
inline Pair renormal(float a, float b) {
    float sum = a + b;
    return pair(sum, is_finite(sum) ? b - (sum - a) : 0.0f);
}

inline Pair plus(Pair a, Pair b) {
    Pair high = exact_sum(a.high, b.high), low = exact_sum(a.low, b.low);
    Pair sum = renormal(high.high, high.low + low.high);
    return renormal(sum.high, sum.low + low.low);
}

inline Pair plus(Pair a, float b) { return plus(a, pair(b, 0.0f)); }

// a · b exactly, unless it is too small.
inline Pair product(float a, float b) {
    float high = a * b;
    return pair(high, is_finite(high) ? fma(a, b, -high) : 0.0f);
}

inline Pair times(Pair a, Pair b) {
    Pair highs = product(a.high, b.high);
    return renormal(highs.high, highs.low + (a.high * b.low + a.low * b.high));
}

inline Pair times(Pair a, float b) { return times(a, pair(b, 0.0f)); }

inline Pair divided(Pair a, Pair b) {
    float first = a.high / b.high;
    if (!is_finite(first)) return pair(first, 0.0f);
    Pair rest = plus(a, times(b, -first));
    return renormal(first, rest.high / b.high);
}

inline Pair root(Pair a) {
    float first = sqrt(a.high);
    if (!is_finite(first) || first == 0.0f) return pair(first, 0.0f);
    Pair rest = plus(a, times(pair(first, 0.0f), -first));
    return renormal(first, rest.high / (2.0f * first));
}

// Whether a > b.
inline bool above(Pair a, Pair b) { return a.high > b.high || (a.high == b.high && a.low > b.low); }

inline Pair to_double(float number) { return pair(number, 0.0f); }
inline float rounded(Pair a) { return a.high; }
// What rounding leaves out.
inline float rest_of(Pair a) { return a.low; }
inline Pair negated(Pair a) { return pair(-a.high, -a.low); }
inline Pair logarithm(Pair a) { return to_double(log(a.high) + a.low / a.high); }
inline float exp_of(float a) { return exp(a); }

inline Pair get(device const Pair *from, u64 at) { return pair(from[at].high, from[at].low); }
inline void put(device Pair *to, u64 at, Pair number) { to[at].high = number.high, to[at].low = number.low; }
inline Pair local_get(threadgroup const Pair *from, u32 at) { return pair(from[at].high, from[at].low); }
inline void local_put(threadgroup Pair *to, u32 at, Pair number) { to[at].high = number.high, to[at].low = number.low; }
template <typename T> T local_get(threadgroup const T *from, u32 at) { return from[at]; }
template <typename T> void local_put(threadgroup T *to, u32 at, T value) { to[at] = value; }

// What a draw below 1 is bounded by, so that it stays below a total whatever their product rounds to: 1 − 2⁻⁴⁶.
inline Pair almost_one() { return pair(1.0f, -1.4210854715202004e-14f); }

// bits / 2⁵³: 24 bits, exact, and the 29 below them, of which about 24 stay.
inline Pair fraction_of(u64 bits) {
    return renormal((float)(u32)(bits >> 29) / 16777216.0f, (float)(u32)(bits & 0x1fffffffu) / 9007199254740992.0f);
}

// The fewest of `ties` words of one weight whose sum reaches `missing`, or, if `past`, exceeds it; at least 1. The
// quotient may be off by one at a border; what n of them weigh decides.
inline u32 fewest_ties(Pair missing, float weight, u32 ties, bool past) {
    float quotient = divided(missing, to_double(weight)).high;
    u32 few = quotient < 1.0f ? 1u : quotient < (float)ties ? (u32)quotient : ties;
    while (few > 1) {
        Pair fewer = product((float)(few - 1), weight);
        if (past ? !above(fewer, missing) : above(missing, fewer)) break;
        --few;
    }
    while (few < ties) {
        Pair these = product((float)few, weight);
        if (past ? above(these, missing) : !above(missing, these)) break;
        ++few;
    }
    return few;
}

// ---- threads ----

// What the lane whose number differs by `mask` has.
inline float shuffle_xor(float value, u32 mask) { return simd_shuffle_xor(value, (u16)mask); }
inline u32 shuffle_xor(u32 value, u32 mask) { return simd_shuffle_xor(value, (u16)mask); }
inline Pair shuffle_xor(Pair value, u32 mask) { return pair(shuffle_xor(value.high, mask), shuffle_xor(value.low, mask)); }

// What some lane has.
inline float shuffle(float value, u32 lane) { return simd_shuffle(value, (u16)lane); }
inline Pair shuffle(Pair value, u32 lane) { return pair(shuffle(value.high, lane), shuffle(value.low, lane)); }

// A bit for every lane.
inline u32 ballot(bool yes) { return (u32)(simd_vote::vote_t)simd_ballot(yes); }

// Waits for all threads of the group, and shows them what was written to its memory and to the device's.
inline void sync_block() { threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); }
// Waits for all threads of the group, and shows them what was written to its memory, not to the device's.
inline void sync_shared() { threadgroup_barrier(mem_flags::mem_threadgroup); }
inline void sync_warp() { simdgroup_barrier(mem_flags::mem_threadgroup); }

// ---- counts in a group's memory that all threads raise ----

typedef atomic_uint Counter;

inline void clear(threadgroup Counter *counter) { atomic_store_explicit(counter, 0u, memory_order_relaxed); }
inline void raise(threadgroup Counter *counter) { atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed); }
inline u32 count_in(threadgroup const Counter *counter) { return atomic_load_explicit(counter, memory_order_relaxed); }

// ---- the fault word ----
//
// Two words of 32 bits, as there is no minimum of 64 everywhere: together they are read as the u64 of CUDA, all ones
// while nothing is wrong. A fault makes the upper one 0 and the lower one ~index of the largest index. Kernels go on
// with index 0.

inline void fault(FAULT_WORD word, u32 index) {
    atomic_fetch_min_explicit(&word[0], ~index, memory_order_relaxed);
    atomic_fetch_min_explicit(&word[1], 0u, memory_order_relaxed);
}
