// Launches: what a device takes, addresses as kernels get them, and what happens when a kernel does what none may do.
#include "modules.h"
#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

// ---- what a kernel may not do ----

struct Running {
    const Entry *entry;
    sigjmp_buf back;
    const char *why;   // what the machine refused
    int signal;        // or what the processor did
    const void *place; // and where
};
// Asked in the handler of a signal, where nothing may be allocated.
static thread_local __attribute__((tls_model("initial-exec"))) Running *running;
static struct sigaction before[NSIG];

// Words are found after the jump: the stack of a handler is small.
static void refused(const char *why) {
    running->why = why;
    siglongjmp(running->back, 1);
}

static void on_signal(int signal, siginfo_t *what, void *where) {
    if (running) {
        running->signal = signal, running->place = what->si_addr;
        siglongjmp(running->back, 1);
    }
    struct sigaction &old = before[signal];
    if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, what, where);
    if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
    // The instruction runs once more, and the system ends the process as it would have.
    sigaction(signal, &old, nullptr);
}

// Says what a kernel did.
static Result explain(const Running &it) {
    char words[512], place[256];
    describe_place(place, sizeof place, it.place);
    if (it.why) snprintf(words, sizeof words, "%s", it.why);
    else if (it.signal == SIGFPE) snprintf(words, sizeof words, "it divides a whole number by zero");
    else if (!it.place) snprintf(words, sizeof words, "it reads or writes at null, or vectors where none may begin");
    else snprintf(words, sizeof words, "it reads or writes at %p: %s", it.place, place);
    u32 block[3], thread;
    it.entry->where(block, thread);
    complain("kernel `%s`, block (%u, %u, %u), thread %u: %s", it.entry->name, block[0], block[1], block[2], thread, words);
    return it.why ? LAUNCH_FAILED : ILLEGAL_ADDRESS;
}

static void listen() {
    static bool done = false;
    if (done) return;
    done = true;
    struct sigaction own = {};
    own.sa_sigaction = on_signal;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &own, &before[signal]);
}

// ---- launches ----

struct Times {
    u64 launches = 0;
    double seconds = 0;
};
static std::map<std::string, Times> &times = *new std::map<std::string, Times>;
static const u64 loud = setting("TUNEBOX_STANDIN_TIMES", 0);

__attribute__((destructor)) static void print_times() {
    if (!loud) return;
    std::vector<std::pair<double, std::string>> order;
    for (auto &[name, time] : times) order.push_back({time.seconds, name});
    std::sort(order.rbegin(), order.rend());
    for (auto &[seconds, name] : order) {
        fprintf(stderr, "stand-in: %9.3f s %7llu launches of %s\n", seconds, times[name].launches, name.c_str());
    }
}

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static void count(const char *name, double since) {
    if (!loud) return;
    Times &time = times[name];
    time.launches += 1, time.seconds += now() - since;
}

static const size_t MOST_ARGUMENTS = 64;

// Where addresses of the device are for a kernel, and which memory they lie in.
struct Arguments {
    void *addresses[MOST_ARGUMENTS], *given[MOST_ARGUMENTS];
    Allocation blocks[MOST_ARGUMENTS];
    size_t count = 0;
};

static bool translate(Arguments &all, const Entry &entry, void **from) {
    for (size_t i = 0; entry.kinds[i]; ++i) {
        all.given[i] = from[i];
        if (entry.kinds[i] != 'p') continue;
        u64 address;
        memcpy(&address, from[i], sizeof address);
        all.given[i] = &all.addresses[i];
        all.addresses[i] = nullptr;
        if (address == 0) continue;
        const Allocation *block = allocation_at(address);
        if (!block) {
            char words[256];
            describe(words, sizeof words, address);
            complain("kernel `%s`, argument %zu: %#llx is %s", entry.name, i, address, words);
            return false;
        }
        all.addresses[i] = here(address);
        all.blocks[all.count++] = *block;
    }
    return true;
}

static Result run(const Entry &entry, const Order &order, const Arguments &arguments) {
    Running own = {&entry, {}, nullptr, 0, nullptr};
    listen();
    double begin = now();
    bool jumped = sigsetjmp(own.back, 1) != 0;
    if (!jumped) {
        running = &own;
        entry.run(&order);
    }
    running = nullptr;
    if (jumped) return explain(own);
    count(entry.name, begin);
    for (size_t i = 0; i < arguments.count; ++i) {
        if (!unharmed(arguments.blocks[i], entry.name)) return ILLEGAL_ADDRESS;
    }
    return SUCCESS;
}

// Whether a launch is one that a device takes; what does not fit is said.
static Result check(const Function &function, const u32 (&grid)[3], const u32 (&block)[3], u32 shared) {
    const char *name = function.entry->name;
    bool small = grid[0] <= 2147483647u && grid[1] <= 65535 && grid[2] <= 65535;
    u64 threads = (u64)block[0] * block[1] * block[2];
    if (!small || (u64)grid[0] * grid[1] * grid[2] == 0 || threads == 0 || threads > 1024) {
        complain("kernel `%s`: no device takes %u × %u × %u blocks of %u × %u × %u threads", name, grid[0], grid[1], grid[2],
                 block[0], block[1], block[2]);
        return INVALID_VALUE;
    }
    if (function.entry->most_threads && threads > function.entry->most_threads) {
        complain("kernel `%s` is made for %u threads a block, not %llu", name, function.entry->most_threads, threads);
        return LAUNCH_OUT_OF_RESOURCES;
    }
    if (shared > function.most_shared) {
        complain("kernel `%s`: %u bytes of shared memory, allowed are %u", name, shared, function.most_shared);
        return INVALID_VALUE;
    }
    if (block[1] * block[2] != 1) {
        complain("kernel `%s`: the stand-in has threads along one axis alone", name);
        return NOT_SUPPORTED;
    }
    return SUCCESS;
}

API int cuLaunchKernel(void *function, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, u32 block_z,
                       u32 shared, void *stream, void **arguments, void **extra) {
    ALONE;
    if (Result result = ready()) return result;
    if (!function || !takes_work(stream)) return INVALID_HANDLE;
    if (extra) return NOT_SUPPORTED;
    const Function &known = *(Function *)function;
    u32 grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    if (Result result = check(known, grid, block, shared)) return result;
    if (strlen(known.entry->kinds) > MOST_ARGUMENTS) return NOT_SUPPORTED;
    static const bool backwards = setting("TUNEBOX_STANDIN_BACKWARDS", 0);
    if (is_idle()) return count(known.entry->name, now()), SUCCESS;
    Arguments all;
    Order order = {{grid_x, grid_y, grid_z}, block_x, shared, all.given, backwards, refused};
    Result result = translate(all, *known.entry, arguments) ? run(*known.entry, order, all) : ILLEGAL_ADDRESS;
    if (result != SUCCESS) break_down(result);
    return result;
}

// ---- for the stand-in of cuBLAS ----

API int standin_is_ready() {
    ALONE;
    return ready() == SUCCESS;
}

API int standin_is_idle() { return is_idle(); }

// Whether a product may begin: then it is alone until it ends.
static double product_began;
API int standin_begin(const void *stream) {
    one_at_a_time.lock();
    product_began = now();
    if (ready() == SUCCESS && takes_work(stream)) return 1;
    one_at_a_time.unlock();
    return 0;
}
API void standin_end() {
    count("a product", product_began);
    one_at_a_time.unlock();
}

// Where `bytes` of an operand are; null and a complaint if they are not all in one place.
API void *standin_operand(u64 address, u64 bytes, const char *what) {
    ALONE;
    const Allocation *block = allocation_at(address);
    if (block && address + bytes <= block->begin + block->bytes) return here(address);
    char words[256];
    describe(words, sizeof words, address);
    complain("%s: %llu bytes at %#llx, which is %s", what, bytes, address, words);
    return nullptr;
}
