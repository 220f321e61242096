// Makes a table of a module's kernels, by which a driver finds and runs them: `emulated_kernels`, ended by a null name.
//
// A kernel's own C++ signature says how its arguments are read, so that none has to be written down a second time.
#pragma once
#include "machine.h"
#include <type_traits>
#include <utility>

namespace emulated {

// What a driver asks for: numbers as cuLaunchKernel has them, and what to call when a kernel does what none may do.
struct Order {
    u32 grid[3], threads;
    u64 shared;
    void **arguments;
    bool backwards;
    Refusal refusal;
};

// A kernel. `kinds` has a letter for each argument: p an address, n 32 bits, l 64 bits, x f32, d f64.
struct Entry {
    const char *name, *kinds;
    u32 most_threads; // 0: as many as the device has
    void (*run)(const Order *order);
    void (*where)(u32 (&block)[3], u32 &thread);
};

template <typename T> constexpr char kind_of() {
    static_assert(std::is_pointer<T>::value || std::is_arithmetic<T>::value, "an argument is an address or a number");
    static_assert(std::is_pointer<T>::value || sizeof(T) >= 4, "an argument has 4 or 8 bytes");
    if (std::is_pointer<T>::value) return 'p';
    if (std::is_floating_point<T>::value) return sizeof(T) == 4 ? 'x' : 'd';
    return sizeof(T) == 4 ? 'n' : 'l';
}

static void say_where(u32 (&of_block)[3], u32 &thread) {
    of_block[0] = block.x, of_block[1] = block.y, of_block[2] = block.z;
    thread = current ? number_of() : 0;
}

static void run_order(const Order *order, void (*kernel)(void *)) {
    refusal = order->refusal, backwards = order->backwards;
    run_grid({order->grid[0], order->grid[1], order->grid[2]}, order->threads, order->shared, kernel, order->arguments);
}

template <auto kernel> struct Caller;
template <typename... Arguments, void (*kernel)(Arguments...)> struct Caller<kernel> {
    static constexpr char kinds[] = {kind_of<Arguments>()..., 0};
    template <size_t... at> static inline void call(void **given, std::index_sequence<at...>) {
        kernel(*(Arguments *)given[at]...);
    }
    static void run(const Order *order) {
        run_order(order, [](void *given) { call((void **)given, std::index_sequence_for<Arguments...>()); });
    }
};

} // namespace emulated

#define EMULATED_ENTRY(name, bounds)                                                                                  \
    {#name, emulated::Caller<name>::kinds, (u32)(bounds + 0), emulated::Caller<name>::run, emulated::say_where}
