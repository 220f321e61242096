// What all kernels share: the type of activations, numbers of 16 bits, pairs for what f32 cannot hold, sums in fixed
// orders, the fault word.
//
// A library is the text of this file and the files of its kernels, one after another, compiled at run time for one type
// of activations: ACTIVATION is 0 for f32, 1 for bf16, 2 for f16. Metal 2.3 and up, SIMD groups of 32, no fast-math:
// sums of pairs are nothing without the order in which they are written. Whatever the type, sums are in f32 or in
// pairs. Names and arguments are those of the CUDA text; where both agree, that text has the longer comments.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// From Metal 3.2 on the text can say itself how it is to be compiled; before, the options of the compiler say the first.
#if defined(__METAL_VERSION__) && __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif

#ifndef ACTIVATION
#define ACTIVATION 1
#endif

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;

// What `emulate/metal_stdlib` defines otherwise.
#ifndef KERNEL
// A kernel of at most so many threads a group.
#define KERNEL(most) [[kernel, max_total_threads_per_threadgroup(most)]] void
// At the end of every list of arguments: a bit for each pointer that is not null, and where a thread is.
#define WHERE                                                                                                          \
    , constant u32 &given [[buffer(30)]], uint3 block [[threadgroup_position_in_grid]],                                \
        uint3 blocks [[threadgroups_per_grid]], u32 worker [[thread_index_in_threadgroup]],                            \
        uint3 workers [[threads_per_threadgroup]]
#define HERE {block, blocks, worker, workers.x}
// Whether argument `index`, the pointer `name`, is there. A null buffer has no address that could be asked.
#define THERE(index, name) ((given >> index & 1u) != 0)
#define FAULT_WORD device atomic_uint *
#endif
#ifndef SHARED
// Before a variable of the group's memory.
#define SHARED threadgroup
#endif

// Where a thread is: its group among the groups of the grid, its number among the threads of its group.
struct Here {
    uint3 block, blocks;
    u32 worker, workers;
};

// A number of 16 bits: 8 bits of exponent, 7 of mantissa. Not `bfloat`: that is Metal 3.1, and this is no slower.
struct bf16 {
    u16 bits;
};

// A number of 16 bits: 5 bits of exponent, 10 of mantissa.
struct f16 {
    u16 bits;
};

#if ACTIVATION == 0
typedef float act;
#elif ACTIVATION == 1
typedef bf16 act;
#else
typedef f16 act;
#endif

#define LOG2_E 1.4426950408889634f
// What unpack_formats.h writes for both languages.
#define DEVICE inline
#define MEMBER static
#define GLOBAL device
#define THREAD thread
#define TABLE constant
// Before a loop whose counter picks registers.
#define UNROLL _Pragma("clang loop unroll(full)")
#define WARP 32u
#define NOWHERE 0xffffffffu

inline bool finite(float number) { return (as_type<u32>(number) & 0x7f800000u) != 0x7f800000u; }
inline float infinite() { return as_type<float>(0x7f800000u); }
inline u32 least(u32 a, u32 b) { return a < b ? a : b; }
inline u32 most(u32 a, u32 b) { return a > b ? a : b; }
inline u32 divided_up(u32 a, u32 b) { return (a + b - 1) / b; }

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

inline float wide(float number) { return number; }
inline float wide(bf16 number) { return wide_bf16(number.bits); }
inline float wide(f16 number) { return wide_f16(number.bits); }

inline float get(device const float *from, u64 at) { return from[at]; }
inline float get(device const bf16 *from, u64 at) { return wide_bf16(from[at].bits); }
inline float get(device const f16 *from, u64 at) { return wide_f16(from[at].bits); }
inline void put(device float *to, u64 at, float number) { to[at] = number; }
inline void put(device bf16 *to, u64 at, float number) { to[at].bits = narrow_bf16(number); }
inline void put(device f16 *to, u64 at, float number) { to[at].bits = narrow_f16(number); }

// Products and sums that are rounded one by one where the processor does so. Before Metal 3.2 a call is what keeps them
// apart: nothing is fused across expressions unless math is fast.
inline float times(float a, float b) { return a * b; }
inline float plus(float a, float b) { return a + b; }
inline float minus(float a, float b) { return a - b; }

// ---- pairs: high + low, 48 bits, where the CUDA text has f64; the range is that of f32 ----

struct Pair {
    float high, low;
};

inline Pair pair(float high, float low) {
    Pair result = {high, low};
    return result;
}

// a + b exactly.
inline Pair exact_sum(float a, float b) {
    float sum = a + b, part = sum - a;
    // What is not finite has no rest.
    return pair(sum, finite(sum) ? (a - (sum - part)) + (b - part) : 0.0f);
}

// The same if |a| ≥ |b|.
inline Pair renormal(float a, float b) {
    float sum = a + b;
    return pair(sum, finite(sum) ? b - (sum - a) : 0.0f);
}

inline Pair plus(Pair a, Pair b) {
    Pair high = exact_sum(a.high, b.high), low = exact_sum(a.low, b.low);
    Pair sum = renormal(high.high, high.low + low.high);
    return renormal(sum.high, sum.low + low.low);
}

inline Pair plus(Pair a, float b) { return plus(a, pair(b, 0.0f)); }

// a · b exactly, unless it is too small.
inline Pair exact_product(float a, float b) {
    float product = a * b;
    return pair(product, finite(product) ? fma(a, b, -product) : 0.0f);
}

inline Pair times(Pair a, Pair b) {
    Pair product = exact_product(a.high, b.high);
    return renormal(product.high, product.low + (a.high * b.low + a.low * b.high));
}

inline Pair times(Pair a, float b) { return times(a, pair(b, 0.0f)); }

inline Pair divided(Pair a, Pair b) {
    float first = a.high / b.high;
    if (!finite(first)) return pair(first, 0.0f);
    Pair rest = plus(a, times(b, -first));
    return renormal(first, rest.high / b.high);
}

inline Pair root(Pair a) {
    float first = sqrt(a.high);
    if (!finite(first) || first == 0.0f) return pair(first, 0.0f);
    Pair rest = plus(a, times(pair(first, 0.0f), -first));
    return renormal(first, rest.high / (2.0f * first));
}

// Whether a > b.
inline bool above(Pair a, Pair b) { return a.high > b.high || (a.high == b.high && a.low > b.low); }

inline Pair get(device const Pair *from, u64 at) { return pair(from[at].high, from[at].low); }
inline Pair get(threadgroup const Pair *from, u32 at) { return pair(from[at].high, from[at].low); }
inline void put(device Pair *to, u64 at, Pair number) { to[at].high = number.high, to[at].low = number.low; }
inline void put(threadgroup Pair *to, u32 at, Pair number) { to[at].high = number.high, to[at].low = number.low; }

// ---- threads ----

// What the lane whose number differs by `mask` has.
inline float across(float value, u32 mask) { return simd_shuffle_xor(value, (u16)mask); }
inline u32 across(u32 value, u32 mask) { return simd_shuffle_xor(value, (u16)mask); }
inline Pair across(Pair value, u32 mask) { return pair(across(value.high, mask), across(value.low, mask)); }

// What some lane has.
inline float from_lane(float value, u32 lane) { return simd_shuffle(value, (u16)lane); }
inline Pair from_lane(Pair value, u32 lane) { return pair(from_lane(value.high, lane), from_lane(value.low, lane)); }

// A bit for every lane.
inline u32 ballot(bool yes) { return (u32)(simd_vote::vote_t)simd_ballot(yes); }

// Everybody of the group is here, and sees what was written to the group's memory and to the device's.
inline void meet_block() { threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); }
inline void meet_warp() { simdgroup_barrier(mem_flags::mem_threadgroup); }

// Σ over a SIMD group, in every lane.
template <typename T> T warp_sum(T value) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) value = plus(value, across(value, mask));
    return value;
}
inline u32 plus(u32 a, u32 b) { return a + b; }
template <> inline u32 warp_sum<u32>(u32 value) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) value += across(value, mask);
    return value;
}

// Σ over a group of at most 1024 threads, in every thread: SIMD groups first, then their sums in order. `parts` are 32
// numbers of the group's memory.
inline float block_sum(float value, threadgroup float *parts, Here here) {
    value = warp_sum(value);
    meet_block();
    if (here.worker % WARP == 0) parts[here.worker / WARP] = value;
    meet_block();
    float sum = parts[0];
    for (u32 warp = 1; warp < here.workers / WARP; ++warp) sum += parts[warp];
    return sum;
}

inline u32 block_sum(u32 value, threadgroup u32 *parts, Here here) {
    value = warp_sum(value);
    meet_block();
    if (here.worker % WARP == 0) parts[here.worker / WARP] = value;
    meet_block();
    u32 sum = parts[0];
    for (u32 warp = 1; warp < here.workers / WARP; ++warp) sum += parts[warp];
    return sum;
}

inline Pair block_sum(Pair value, threadgroup Pair *parts, Here here) {
    value = warp_sum(value);
    meet_block();
    if (here.worker % WARP == 0) put(parts, here.worker / WARP, value);
    meet_block();
    Pair sum = get(parts, 0u);
    for (u32 warp = 1; warp < here.workers / WARP; ++warp) sum = plus(sum, get(parts, warp));
    return sum;
}

// ---- functions ----

// 1 / (1 + e⁻ˣ).
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// ---- the fault word ----
//
// Two words of 32 bits, as there is no minimum of 64 everywhere: together they are read as the u64 of the CUDA text,
// all ones while nothing is wrong. The upper one becomes the first operation's `place`, the lower one ~index of the
// largest index, which with one faulty operation is its own. Kernels go on with index 0.

inline void fault(FAULT_WORD word, u32 place, u32 index) {
    atomic_fetch_min_explicit(&word[0], ~index, memory_order_relaxed);
    atomic_fetch_min_explicit(&word[1], place, memory_order_relaxed);
}

// An index if it is below `bound`, else 0 and a fault.
inline u32 inside(u32 index, u32 bound, FAULT_WORD word, u32 place) {
    if (index < bound) return index;
    fault(word, place, index);
    return 0;
}
