// Memory as the host asks for it: allocations, copies, settings of bytes, pools. Every address is looked up.
#include "driver.h"
#include <cstdlib>
#include <cstring>

// `bytes` at an address of the device, or null and a complaint.
static void *place(u64 address, u64 bytes, const char *call, const char *what) {
    const Allocation *found = allocation_at(address);
    if (found && address + bytes <= found->begin + found->bytes) return here(address);
    if (found) {
        complain("%s: %llu bytes from byte %llu of allocation %llu on, which has %llu", call, bytes,
                 address - found->begin, found->number, found->bytes);
    } else {
        char words[256];
        describe(words, sizeof words, address);
        complain("%s: the %s %#llx is %s", call, what, address, words);
    }
    return nullptr;
}

static bool is_of_host(const void *pointer, u64 bytes, const char *call) {
    if (pointer && !is_of_device((u64)pointer) && !is_of_device((u64)pointer + bytes)) return true;
    complain("%s: the host's pointer %p is an address of the device or null", call, pointer);
    return false;
}

// ---- allocations ----

API int cuMemAlloc_v2(u64 *address, size_t bytes) {
    ALONE;
    if (Result result = ready()) return result;
    return allocate(*address, bytes, false);
}
API int cuMemAllocAsync(u64 *address, size_t bytes, void *stream) {
    ALONE;
    if (Result result = ready()) return result;
    return is_stream(stream) ? allocate(*address, bytes, true) : INVALID_HANDLE;
}
API int cuMemAllocFromPoolAsync(u64 *address, size_t bytes, void *, void *stream) {
    return cuMemAllocAsync(address, bytes, stream);
}
API int cuMemFree_v2(u64 address) {
    ALONE;
    if (Result result = ready()) return result;
    return release(address, "cuMemFree");
}
API int cuMemFreeAsync(u64 address, void *stream) {
    ALONE;
    if (Result result = ready()) return result;
    return is_stream(stream) ? release(address, "cuMemFreeAsync") : INVALID_HANDLE;
}
API int cuMemGetInfo_v2(size_t *left, size_t *all) {
    ALONE;
    if (Result result = ready()) return result;
    *all = memory_of_device(), *left = *all - pools[current_device()].reserved;
    return SUCCESS;
}
API int cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
    ALONE;
    if (Result result = ready()) return result;
    return (*pointer = malloc(bytes)) ? SUCCESS : OUT_OF_MEMORY;
}
API int cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
API int cuMemFreeHost(void *pointer) { return free(pointer), SUCCESS; }

// ---- copies ----

static Result to_device(u64 to, const void *from, size_t bytes, const char *call) {
    ALONE;
    if (Result result = ready()) return result;
    if (bytes == 0) return SUCCESS;
    void *target = is_of_host(from, bytes, call) ? place(to, bytes, call, "target") : nullptr;
    if (!target) return INVALID_VALUE;
    memcpy(target, from, bytes);
    return SUCCESS;
}
static Result to_host(void *to, u64 from, size_t bytes, const char *call) {
    ALONE;
    if (Result result = ready()) return result;
    if (bytes == 0) return SUCCESS;
    const void *source = is_of_host(to, bytes, call) ? place(from, bytes, call, "source") : nullptr;
    if (!source) return INVALID_VALUE;
    memcpy(to, source, bytes);
    return SUCCESS;
}
static Result on_device(u64 to, u64 from, size_t bytes, const char *call) {
    ALONE;
    if (Result result = ready()) return result;
    if (bytes == 0) return SUCCESS;
    const void *source = place(from, bytes, call, "source");
    void *target = place(to, bytes, call, "target");
    if (!source || !target) return INVALID_VALUE;
    if (to < from + bytes && from < to + bytes) {
        complain("%s: source and target overlap", call);
        return INVALID_VALUE;
    }
    memcpy(target, source, bytes);
    return SUCCESS;
}

API int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *stream) {
    return takes_work(stream) ? to_device(to, from, bytes, "cuMemcpyHtoDAsync") : INVALID_HANDLE;
}
API int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *stream) {
    return takes_work(stream) ? to_host(to, from, bytes, "cuMemcpyDtoHAsync") : INVALID_HANDLE;
}
API int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void *stream) {
    return takes_work(stream) ? on_device(to, from, bytes, "cuMemcpyDtoDAsync") : INVALID_HANDLE;
}
// What says no stream is on the default one.
API int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); }
API int cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); }
API int cuMemcpyDtoD_v2(u64 to, u64 from, size_t bytes) { return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr); }

// ---- bytes ----

template <typename Number> static Result fill(u64 to, Number number, size_t count, const char *call) {
    ALONE;
    if (Result result = ready()) return result;
    if (count == 0) return SUCCESS;
    auto *target = (Number *)place(to, count * sizeof number, call, "target");
    if (!target || to % sizeof number) return INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) target[i] = number;
    return SUCCESS;
}
API int cuMemsetD8Async(u64 to, u8 number, size_t count, void *stream) {
    return takes_work(stream) ? fill(to, number, count, "cuMemsetD8Async") : INVALID_HANDLE;
}
API int cuMemsetD16Async(u64 to, uint16_t number, size_t count, void *stream) {
    return takes_work(stream) ? fill(to, number, count, "cuMemsetD16Async") : INVALID_HANDLE;
}
API int cuMemsetD32Async(u64 to, u32 number, size_t count, void *stream) {
    return takes_work(stream) ? fill(to, number, count, "cuMemsetD32Async") : INVALID_HANDLE;
}
API int cuMemsetD8_v2(u64 to, u8 number, size_t count) { return cuMemsetD8Async(to, number, count, nullptr); }
API int cuMemsetD16_v2(u64 to, uint16_t number, size_t count) { return cuMemsetD16Async(to, number, count, nullptr); }
API int cuMemsetD32_v2(u64 to, u32 number, size_t count) { return cuMemsetD32Async(to, number, count, nullptr); }

// ---- pools: one a device, which counts all of its memory ----

static Pool *pool_of(void *handle) {
    for (Pool &pool : pools) if (&pool == handle) return &pool;
    return nullptr;
}

API int cuDeviceGetDefaultMemPool(void **pool, int device) {
    ALONE;
    if (device < 0 || device >= MOST_DEVICES) return INVALID_DEVICE;
    return *pool = &pools[device], SUCCESS;
}
API int cuDeviceGetMemPool(void **pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }

enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT, RESERVED_HIGH, USED_CURRENT, USED_HIGH };

API int cuMemPoolGetAttribute(void *handle, int attribute, void *value) {
    ALONE;
    Pool *pool = pool_of(handle);
    if (!pool) return INVALID_VALUE;
    switch (attribute) {
    case RELEASE_THRESHOLD: return *(u64 *)value = pool->threshold, SUCCESS;
    case RESERVED_CURRENT: return *(u64 *)value = pool->reserved, SUCCESS;
    case RESERVED_HIGH: return *(u64 *)value = pool->most_reserved, SUCCESS;
    case USED_CURRENT: return *(u64 *)value = pool->used, SUCCESS;
    case USED_HIGH: return *(u64 *)value = pool->most_used, SUCCESS;
    default: return INVALID_VALUE;
    }
}

API int cuMemPoolSetAttribute(void *handle, int attribute, void *value) {
    ALONE;
    Pool *pool = pool_of(handle);
    if (!pool) return INVALID_VALUE;
    u64 number = attribute >= RELEASE_THRESHOLD ? *(u64 *)value : 0;
    // The high marks can be set back to what is, by a zero, and to nothing else.
    if ((attribute == RESERVED_HIGH || attribute == USED_HIGH) && number != 0) return INVALID_VALUE;
    switch (attribute) {
    case 1: case 2: case 3: return SUCCESS;
    case RELEASE_THRESHOLD: return pool->threshold = number, SUCCESS;
    case RESERVED_HIGH: return pool->most_reserved = pool->reserved, SUCCESS;
    case USED_HIGH: return pool->most_used = pool->used, SUCCESS;
    default: return INVALID_VALUE;
    }
}

API int cuMemPoolTrimTo(void *handle, size_t kept) {
    ALONE;
    Pool *pool = pool_of(handle);
    if (!pool) return INVALID_VALUE;
    u64 threshold = pool->threshold;
    pool->threshold = kept;
    give_back_unused();
    pool->threshold = threshold;
    return SUCCESS;
}
