// Kernels as modules have them and launches take them.
#pragma once
#include "driver.h"

// As in machine/entry.h.
struct Order {
    u32 grid[3], threads;
    u64 shared;
    void **arguments;
    bool backwards;
    void (*refusal)(const char *why);
};
struct Entry {
    const char *name, *kinds;
    u32 most_threads;
    void (*run)(const Order *order);
    void (*where)(u32 (&block)[3], u32 &thread);
};

// What a host holds as a function.
struct Function {
    const Entry *entry;
    u32 most_shared;
};
