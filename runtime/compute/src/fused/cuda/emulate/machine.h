// Runs kernels on a processor, thread by thread, in place of machine.cuh: for tests where there is no GPU.
//
// A block's threads are fibers that run until they meet at a barrier or in a warp's exchange. Copies into shared memory
// spoil their target at once and arrive when they are awaited, and a warp runs as far as it comes before the next one
// does, so that a missing wait or barrier and a buffer reused too early show.
// `backwards` runs threads in the other order: results that differ tell of a race.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE static inline
#define KERNEL static
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(x)
#define __shared__ static
#define SHARED_BYTES(name) unsigned char *name = emulated::dynamic

struct Three { u32 x = 1, y = 1, z = 1; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { u32 x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

namespace emulated {
enum State { READY, AT_WARP, AT_BLOCK, DONE };
struct Copy { void *to; const void *from; bool there; };
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    Three thread;
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static Fiber *current;
static std::function<void()> body;
static unsigned char *dynamic;
static Three block, grid, size;
static u64 posted[32][32];
static const void *rows[32][32];
static u32 lefts[32][32][4], rights[32][32][2];
static bool backwards = false;

static void trampoline() {
    body();
    current->state = DONE;
    swapcontext(&current->context, &scheduler);
}
static void wait_as(State state) {
    current->state = state;
    swapcontext(&current->context, &scheduler);
}
static int index_of() { return (int)(current - fibers.data()); }

static void run_block(u32 threads) {
    for (u32 t = 0; t < threads; ++t) {
        Fiber &fiber = fibers[t];
        fiber.state = READY;
        fiber.thread = {t, 0, 0};
        fiber.groups.clear(), fiber.open.clear();
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, trampoline, 0);
    }
    for (;;) {
        bool ran = false;
        u32 done = 0, at_block = 0;
        for (u32 warp = 0; warp < (threads + 31) / 32; ++warp) {
            u32 w = backwards ? (threads + 31) / 32 - 1 - warp : warp, end = std::min(threads, w * 32 + 32);
            // As far as it comes without the other warps: who overtakes them too early writes what they still read.
            for (bool further = true; further;) {
                further = false;
                u32 live = 0, at_warp = 0;
                for (u32 i = w * 32; i < end; ++i) live += fibers[i].state != DONE, at_warp += fibers[i].state == AT_WARP;
                if (live > 0 && at_warp == live) {
                    for (u32 i = w * 32; i < end; ++i) if (fibers[i].state == AT_WARP) fibers[i].state = READY;
                }
                for (u32 k = w * 32; k < end; ++k) {
                    u32 i = backwards ? end - 1 - (k - w * 32) : k;
                    if (fibers[i].state != READY) continue;
                    ran = further = true;
                    current = &fibers[i];
                    swapcontext(&scheduler, &current->context);
                }
            }
            for (u32 i = w * 32; i < end; ++i) done += fibers[i].state == DONE, at_block += fibers[i].state == AT_BLOCK;
        }
        if (done == threads) return;
        if (done + at_block == threads) {
            for (u32 i = 0; i < threads; ++i) if (fibers[i].state == AT_BLOCK) fibers[i].state = READY;
        } else if (!ran) {
            fprintf(stderr, "threads wait for each other for ever\n"), abort();
        }
    }
}
} // namespace emulated

#define threadIdx (emulated::current->thread)
#define blockIdx (emulated::block)
#define gridDim (emulated::grid)
#define blockDim (emulated::size)

template <typename F> static void launch(Three grid, u32 threads, size_t shared, F kernel) {
    using namespace emulated;
    if (fibers.size() < threads) {
        fibers.resize(threads);
        for (auto &fiber : fibers) fiber.stack.resize(1 << 17);
    }
    std::vector<unsigned char> bytes(shared + 64);
    dynamic = bytes.data() + (64 - (uintptr_t)bytes.data() % 64);
    emulated::grid = grid, size = {threads, 1, 1};
    body = kernel;
    for (u32 z = 0; z < grid.z; ++z) for (u32 y = 0; y < grid.y; ++y) for (u32 x = 0; x < grid.x; ++x) {
        memset(dynamic, 0xff, shared);
        block = {x, y, z};
        run_block(threads);
    }
}

static inline float __uint_as_float(u32 x) { float y; memcpy(&y, &x, 4); return y; }
static inline u32 __float_as_uint(float x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline float __int_as_float(int x) { return __uint_as_float((u32)x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
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

static inline void meet_warp() { emulated::wait_as(emulated::AT_WARP); }
static inline void meet_block() { emulated::wait_as(emulated::AT_BLOCK); }
template <typename T> static inline T from_lane(T value, int lane) {
    using namespace emulated;
    int me = index_of();
    u64 bits = 0;
    memcpy(&bits, &value, sizeof value);
    posted[me / 32][me % 32] = bits;
    meet_warp();
    u64 other = posted[me / 32][lane & 31];
    meet_warp();
    T result;
    memcpy(&result, &other, sizeof result);
    return result;
}
template <typename T> static inline T across(T value, int mask) { return from_lane(value, (emulated::index_of() % 32) ^ mask); }
static inline u32 ballot(bool yes) {
    using namespace emulated;
    int me = index_of();
    posted[me / 32][me % 32] = yes;
    meet_warp();
    u32 mask = 0;
    for (int i = 0; i < 32; ++i) mask |= (u32)(posted[me / 32][i] & 1) << i;
    meet_warp();
    return mask;
}

static inline void load_any(u32 (&words)[4], const void *row, bool transposed) {
    using namespace emulated;
    int warp = index_of() / 32, lane = index_of() % 32;
    if ((uintptr_t)row % 16) fprintf(stderr, "a row of a matrix is not on 16 bytes\n"), abort();
    rows[warp][lane] = row;
    meet_warp();
    for (int m = 0; m < 4; ++m) {
        u16 pair[2];
        for (int i = 0; i < 2; ++i) {
            int r = transposed ? lane % 4 * 2 + i : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + i;
            pair[i] = ((const u16 *)rows[warp][8 * m + r])[c];
        }
        words[m] = pair[0] | (u32)pair[1] << 16;
    }
    meet_warp();
}
static inline void load_matrices(u32 (&words)[4], const void *row) { load_any(words, row, false); }
static inline void load_matrices_transposed(u32 (&words)[4], const void *row) { load_any(words, row, true); }

template <typename T> static inline void multiply(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    using namespace emulated;
    int warp = index_of() / 32, lane = index_of() % 32;
    memcpy(lefts[warp][lane], left, 16);
    rights[warp][lane][0] = right0, rights[warp][lane][1] = right1;
    meet_warp();
    for (int i = 0; i < 4; ++i) {
        int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
        double total = sum[i];
        for (int k = 0; k < 16; ++k) {
            u32 a = lefts[warp][row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)];
            u32 b = rights[warp][column * 4 + k % 8 / 2][k / 8];
            float x = k % 2 ? second_of<T>(a) : first_of<T>(a), y = k % 2 ? second_of<T>(b) : first_of<T>(b);
            total += (double)x * y;
        }
        sum[i] = (float)total;
    }
    meet_warp();
}

static inline void fetch(void *to, const void *from, bool there) {
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) fprintf(stderr, "a copy is not on 16 bytes\n"), abort();
    memset(to, 0xff, 16);
    emulated::current->open.push_back({to, from, there});
}
static inline void end_group() {
    auto &fiber = *emulated::current;
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
}
template <int left> static inline void await_groups() {
    auto &groups = emulated::current->groups;
    while (groups.size() > left) {
        for (auto &copy : groups.front()) {
            if (copy.there) memcpy(copy.to, copy.from, 16); else memset(copy.to, 0, 16);
        }
        groups.erase(groups.begin());
    }
}
