// What the files of the stand-in's driver share. Names and numbers of the C interface are those of cuda.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define API extern "C" __attribute__((visibility("default")))

enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    FILE_NOT_FOUND = 301,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
};

// A complaint to the person who tests, before the call that deserves it fails as it would on a GPU.
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

// A number that the environment may set.
u64 setting(const char *name, u64 otherwise);
// Whether nothing is computed and memory begins as zeros, so that a program shows what it costs the host to queue its work.
bool is_idle();

// One call at a time, whatever the thread.
extern std::recursive_mutex one_at_a_time;
#define ALONE std::lock_guard<std::recursive_mutex> alone(one_at_a_time)

// ---- devices ----

static const int MOST_DEVICES = 8;

// What every call asks first: that there is a current context, and that no kernel went wrong before.
Result ready();
int current_device();
bool is_stream(const void *stream);
// Whether it is a stream; says once that there is work on two of them.
bool takes_work(const void *stream);

// Shared memory that a block may ask for.
u32 shared_memory();

// A kernel did what none may do: from now on every call fails, as the contexts of a GPU do.
void break_down(Result why);

// ---- memory ----

struct Allocation {
    u64 begin, bytes;       // where the device has it
    u64 pages, pages_bytes; // the pages that it lies in
    u64 number;             // counted from 1
    int device;
    bool pooled;
};

Result allocate(u64 &address, u64 bytes, bool pooled);
Result release(u64 address, const char *call);

// What lies at an address, its end included; null if nothing does.
const Allocation *allocation_at(u64 address);
bool is_of_device(u64 address);

// Where this process has what the device has at an address.
void *here(u64 address);

// Whether nothing was written beside an allocation; names the last kernel there.
bool unharmed(const Allocation &allocation, const char *after);

// Words for an address of the device, and for a place in this process where a kernel failed.
void describe(char *words, size_t room, u64 address);
void describe_place(char *words, size_t room, const void *place);

// What a wait gives back to the system.
void give_back_unused();

struct Pool {
    u64 used, most_used, reserved, most_reserved, threshold;
};
extern Pool pools[MOST_DEVICES];
u64 memory_of_device();
