// The threads of a block, one after another on one thread of the processor.
//
// A thread runs until it waits for others: at a barrier, or in an exchange of its warp. A warp runs as far as it can
// before the next one does, so that a missing wait or barrier and a buffer reused too early show. A thread that never
// waits needs no stack of its own: the next one begins where it ended.
//
// In an exchange the lane that comes last does the work for all, as one instruction of a warp does, and goes on. What
// lanes gave and take lies in one of two places by turns: a lane that runs ahead cannot reach the same place again before
// all have left it.
#pragma once
#include "stacks.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Three {
    u32 x = 1, y = 1, z = 1;
};

namespace emulated {

static const u32 MOST_THREADS = 1024, MOST_WARPS = MOST_THREADS / 32;

// A copy into shared memory under way.
struct Copy {
    void *to;
    const void *from;
    bool there;
};

// Copies of a thread, oldest first, and where each closed group of them ends.
struct Copies {
    static const u32 MOST = 512, GROUPS = 16;
    Copy list[MOST];
    u32 count, ends[GROUPS], groups;
};

struct Thread {
    Three index;
    u32 warp, bit;
    Stack *stack;
};

// Lanes by what they wait for, a bit each. Who is in `live` and nowhere else runs.
struct Warp {
    u32 live, fresh, ready, met, blocked;
    void (*work)(u32 warp);
    u32 turn;
};

// What lanes give and take in an exchange.
struct Exchange {
    u64 posted[32];
    const void *rows[32];
    u32 left[32][4], right[32][2], words[32][4];
    float sums[32][4];
    u32 mask;
};

static Thread threads[MOST_THREADS];
static Warp warps[MOST_WARPS];
static Exchange exchanges[2][MOST_WARPS];
static Copies copies[MOST_THREADS];
static bool copied;
// Threads whose copies have arrived since they last showed them to the tensor cores.
static bool hidden[MOST_THREADS];
static Stack stacks[MOST_THREADS], *unused[MOST_THREADS];
static u32 made_stacks, unused_stacks;
static u32 at_barrier, unfinished;
static Stop scheduler;
static Thread *current;
static void (*body)(void *);
static void *body_context;
static unsigned char *dynamic;
static Three block, grid, size;
// Threads and blocks in the other order: results that differ tell of a race.
static bool backwards = false;

static inline u32 number_of() { return (u32)(current - threads); }
static inline Exchange &exchange_of(u32 warp) { return exchanges[warps[warp].turn][warp]; }

static inline u32 first_of_lanes(u32 lanes) {
    return backwards ? 31 - (u32)__builtin_clz(lanes) : (u32)__builtin_ctz(lanes);
}

static void run_threads();

static Stack *unused_stack() {
    if (unused_stacks > 0) return unused[--unused_stacks];
    Stack *stack = &stacks[made_stacks++];
    stack->low = guarded(STACK_BYTES);
    // Tops at all offsets within a page: at one, they would share the few places that the nearest cache has for it.
    begin_at(stack->stop, stack->low, STACK_BYTES - made_stacks % 64 * 192, run_threads);
    return stack;
}

// The warp's next thread that can run becomes the current one, on the stack that is given if it is a fresh one. Where
// it goes on from, or null if it is to begin here.
static inline Stop *next_of(Warp &warp, Stack *here) {
    u32 lane = first_of_lanes(warp.fresh | warp.ready), bit = 1u << lane;
    current = &threads[(u32)(&warp - warps) * 32 + lane];
    if (warp.ready & bit) {
        warp.ready &= ~bit;
        return &current->stack->stop;
    }
    warp.fresh &= ~bit;
    current->stack = here ? here : unused_stack();
    return here ? nullptr : &current->stack->stop;
}

// The current thread waits, having said for what.
static void leave() {
    Stop &from = current->stack->stop;
    Warp &warp = warps[current->warp];
    go(from, warp.fresh | warp.ready ? *next_of(warp, nullptr) : scheduler);
}

// All lanes have met.
static inline void release(u32 number, Warp &warp, u32 but) {
    if (warp.work) warp.work(number);
    warp.ready |= warp.met & ~but;
    warp.met = 0;
    warp.turn ^= 1;
}

// Waits for all lanes of the warp; the last one does the work. All must have come for the same.
static inline void meet(void (*work)(u32 warp)) {
    u32 number = current->warp, bit = current->bit;
    Warp &warp = warps[number];
    if (warp.met == 0) warp.work = work;
    else if (warp.work != work) refuse("lanes of a warp meet in different instructions");
    warp.met |= bit;
    if (warp.met == warp.live) return release(number, warp, bit);
    leave();
}

static void meet_all() {
    warps[current->warp].blocked |= current->bit;
    ++at_barrier;
    leave();
}

// What every stack runs: threads from their beginning to their end.
static void run_threads() {
    for (;;) {
        body(body_context);
        Stack *here = current->stack;
        u32 number = current->warp;
        Warp &warp = warps[number];
        warp.live &= ~current->bit;
        --unfinished;
        if (warp.met && warp.met == warp.live) release(number, warp, 0);
        Stop *next = &scheduler;
        if (warp.fresh | warp.ready) next = next_of(warp, here);
        if (!next) continue;
        unused[unused_stacks++] = here;
        go(here->stop, *next);
    }
}

static void run_block(u32 count) {
    u32 all = (count + 31) / 32;
    for (u32 w = 0; w < all; ++w) {
        u32 lanes = count - w * 32 < 32 ? count - w * 32 : 32, mask = lanes == 32 ? ~0u : (1u << lanes) - 1;
        warps[w] = {mask, mask, 0, 0, 0, nullptr, 0};
    }
    unfinished = count, at_barrier = 0;
    while (unfinished > 0) {
        bool ran = false;
        for (u32 i = 0; i < all; ++i) {
            Warp &warp = warps[backwards ? all - 1 - i : i];
            if (!(warp.fresh | warp.ready)) continue;
            ran = true;
            go(scheduler, *next_of(warp, nullptr));
        }
        if (unfinished > 0 && at_barrier == unfinished) {
            for (u32 w = 0; w < all; ++w) warps[w].ready = warps[w].blocked, warps[w].blocked = 0;
            at_barrier = 0;
        } else if (!ran) {
            refuse("threads of a block wait for each other for ever");
        }
    }
}

static void forget_copies(u32 count) {
    for (u32 t = 0; t < count; ++t) copies[t].count = copies[t].groups = 0, hidden[t] = false;
    copied = false;
}

static const size_t MOST_SHARED = 1 << 18;

// Runs a kernel for every block of the grid. Shared memory ends at an inaccessible page.
static void run_grid(Three blocks, u32 count, size_t shared, void (*kernel)(void *), void *context) {
    static unsigned char *all = guarded(MOST_SHARED);
    if (count > MOST_THREADS || shared > MOST_SHARED) refuse("a block is larger than any device has");
    dynamic = all + MOST_SHARED - (shared + 15) / 16 * 16;
    grid = blocks, size = {count, 1, 1};
    body = kernel, body_context = context;
    for (u32 i = 0; i < count; ++i) threads[i].index = {i, 0, 0}, threads[i].warp = i / 32, threads[i].bit = 1u << i % 32;
    u64 every = (u64)blocks.x * blocks.y * blocks.z;
    for (u64 i = 0; i < every; ++i) {
        u64 at = backwards ? every - 1 - i : i;
        block = {(u32)(at % blocks.x), (u32)(at / blocks.x % blocks.y), (u32)(at / blocks.x / blocks.y)};
        memset(dynamic, 0xff, shared);
        run_block(count);
        if (copied) forget_copies(count);
    }
}

} // namespace emulated

template <typename F> static void launch(Three grid, u32 threads, size_t shared, F kernel) {
    emulated::run_grid(grid, threads, shared, [](void *work) { (*(F *)work)(); }, &kernel);
}
