// Runs kernels on a processor, thread by thread, in place of machine.cuh: for tests where there is no GPU.
//
// Copies into shared memory spoil their target at once and arrive when they are awaited; shared memory begins as NaNs.
// How threads take turns is in threads.h. With EMULATED_LISTING there is only what the text of a kernel needs to go
// through the preprocessor, with a mark before each kernel's name; entry.h makes a table of them.
#pragma once
#define EMULATED

#ifdef EMULATED_LISTING

#define DEVICE
#define KERNEL(most, ...) emulated_kernel emulated_bounds(most) void
#define __device__
#define __forceinline__
#define __shared__
#define SHARED_BYTES(name)

#else

#include <cmath>
#include "threads.h"

#define DEVICE static inline
#define KERNEL(...) static void
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define SHARED_BYTES(name) unsigned char *name = emulated::dynamic

#define threadIdx (emulated::current->index)
#define blockIdx (emulated::block)
#define gridDim (emulated::grid)
#define blockDim (emulated::size)

struct uint3 { u32 x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { u32 x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

static inline float __uint_as_float(u32 x) { float y; memcpy(&y, &x, 4); return y; }
static inline u32 __float_as_uint(float x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline float __int_as_float(int x) { return __uint_as_float((u32)x); }
// The compiler fuses products with sums, as NVRTC does, but not these: `noinline` keeps it from doing so.
#define ROUNDED_BY_ITSELF __attribute__((noinline, noclone)) static float
ROUNDED_BY_ITSELF __fadd_rn(float a, float b) { return a + b; }
ROUNDED_BY_ITSELF __fsub_rn(float a, float b) { return a - b; }
ROUNDED_BY_ITSELF __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline int __popc(u32 x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((u32)x) : 32; }
static inline u64 atomicMin(u64 *word, u64 value) { u64 old = *word; if (value < old) *word = value; return old; }
static inline u32 atomicAdd(u32 *word, u32 value) { u32 old = *word; *word += value; return old; }

struct bf16 { u16 bits; };
struct f16 { u16 bits; };
static inline float wide(float x) { return x; }
static inline float wide(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
static inline float wide(f16 x) { _Float16 half; memcpy(&half, &x, 2); return (float)half; }
template <typename T> static inline T narrow(float x);
template <> inline float narrow<float>(float x) { return x; }
template <> inline bf16 narrow<bf16>(float x) {
    u32 bits = __float_as_uint(x);
    if (x != x) return {0x7fff};
    return {(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <> inline f16 narrow<f16>(float x) { _Float16 half = (_Float16)x; f16 y; memcpy(&y, &half, 2); return y; }
template <typename T> static inline u32 pack(float a, float b) { return (u32)narrow<T>(a).bits | (u32)narrow<T>(b).bits << 16; }
template <typename T> static inline float first_of(u32 word) { return wide(T{(u16)word}); }
template <typename T> static inline float second_of(u32 word) { return wide(T{(u16)(word >> 16)}); }
static inline float power_of_two(float x) { return exp2f(x); }
static inline float reciprocal(float x) { return 1.0f / x; }

// ---- warps and blocks ----

static inline void sync_warp() { emulated::meet(nullptr); }
static inline void sync_block() { emulated::meet_all(); }

namespace emulated {
static void exchange_numbers(u32) {}
static void count_votes(u32 warp) {
    Exchange &all = exchange_of(warp);
    all.mask = 0;
    for (u32 i = 0; i < 32; ++i) all.mask |= (warps[warp].met >> i & 1) & (u32)all.posted[i] ? 1u << i : 0;
}
} // namespace emulated

template <typename T> static inline T shuffle(T value, int lane) {
    using namespace emulated;
    Exchange &all = exchange_of(current->warp);
    memcpy(&all.posted[current->index.x % 32], &value, sizeof value);
    meet(exchange_numbers);
    T result;
    memcpy(&result, &all.posted[lane & 31], sizeof result);
    return result;
}
template <typename T> static inline T shuffle_xor(T value, int mask) {
    return shuffle(value, (int)(emulated::current->index.x % 32) ^ mask);
}
static inline u32 ballot(bool yes) {
    using namespace emulated;
    Exchange &all = exchange_of(current->warp);
    all.posted[current->index.x % 32] = yes;
    meet(count_votes);
    return all.mask;
}

// ---- matrices of a warp: what each lane holds is as in the manual of PTX ----

namespace emulated {
template <bool transposed> static void read_matrices(u32 warp) {
    Exchange &all = exchange_of(warp);
    for (int lane = 0; lane < 32; ++lane) {
        for (int m = 0; m < 4; ++m) {
            u16 pair[2];
            for (int i = 0; i < 2; ++i) {
                int r = transposed ? lane % 4 * 2 + i : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + i;
                pair[i] = ((const u16 *)all.rows[8 * m + r])[c];
            }
            all.words[lane][m] = pair[0] | (u32)pair[1] << 16;
        }
    }
}

// Each sum in order and in f64, where products of 16 bits are exact.
template <typename T> static void multiply_matrices(u32 warp) {
    Exchange &all = exchange_of(warp);
    double sums[16][8];
    float left[16][16], right[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        int row = lane / 4, column = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
            sums[row + 8 * (i / 2)][column + i % 2] = all.sums[lane][i];
            float *to = &left[row + 8 * (i % 2)][column + 8 * (i / 2)];
            to[0] = first_of<T>(all.left[lane][i]), to[1] = second_of<T>(all.left[lane][i]);
        }
        for (int i = 0; i < 2; ++i) {
            right[column + 8 * i][row] = first_of<T>(all.right[lane][i]);
            right[column + 8 * i + 1][row] = second_of<T>(all.right[lane][i]);
        }
    }
    for (int row = 0; row < 16; ++row) {
        for (int k = 0; k < 16; ++k) {
            for (int column = 0; column < 8; ++column) sums[row][column] += (double)left[row][k] * right[k][column];
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) all.sums[lane][i] = (float)sums[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
    }
}

template <bool transposed> static inline void load_any(u32 (&words)[4], const void *row) {
    Exchange &all = exchange_of(current->warp);
    u32 lane = current->index.x % 32;
    if ((uintptr_t)row % 16) refuse("a row of a matrix is not on 16 bytes");
    all.rows[lane] = row;
    meet(read_matrices<transposed>);
    memcpy(words, all.words[lane], sizeof words);
}
} // namespace emulated

static inline void load_matrices(u32 (&words)[4], const void *row) { emulated::load_any<false>(words, row); }
static inline void load_matrices_transposed(u32 (&words)[4], const void *row) { emulated::load_any<true>(words, row); }

template <typename T> static inline void multiply(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    using namespace emulated;
    Exchange &all = exchange_of(current->warp);
    u32 lane = current->index.x % 32;
    memcpy(all.left[lane], left, sizeof left);
    memcpy(all.sums[lane], sum, sizeof sum);
    all.right[lane][0] = right0, all.right[lane][1] = right1;
    meet(multiply_matrices<T>);
    memcpy(sum, all.sums[lane], sizeof sum);
}

// ---- copies into shared memory ----

static inline void fetch(void *to, const void *from, bool there) {
    using namespace emulated;
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) refuse("a copy is not on 16 bytes");
    Copies &own = copies[number_of()];
    if (own.count == Copies::MOST) refuse("a thread has more copies under way than the emulation holds");
    memset(to, 0xff, 16);
    own.list[own.count++] = {to, from, there};
    copied = true;
}
static inline void end_group() {
    using namespace emulated;
    Copies &own = copies[number_of()];
    if (own.groups == Copies::GROUPS) refuse("a thread has more groups of copies than the emulation holds");
    own.ends[own.groups++] = own.count;
    copied = true;
}
template <int left> static inline void await_groups() {
    using namespace emulated;
    Copies &own = copies[number_of()];
    if (own.groups <= left) return;
    u32 arrived = own.groups - left, upto = own.ends[arrived - 1];
    if (upto > 0) hidden[number_of()] = true;
    for (u32 i = 0; i < upto; ++i) {
        if (own.list[i].there) memcpy(own.list[i].to, own.list[i].from, 16);
        else memset(own.list[i].to, 0, 16);
    }
    memmove(own.list, own.list + upto, (own.count - upto) * sizeof(Copy));
    own.count -= upto, own.groups = left;
    for (u32 i = 0; i < left; ++i) own.ends[i] = own.ends[i + arrived] - upto;
}

#include "warpgroup.h"

#endif
