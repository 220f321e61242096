// The device's memory: guarded pages of this process under addresses that cannot be read or written.
//
// The host gets addresses in a range without access, and kernels get the same plus a distance, where the memory is:
// a host that follows an address of the device crashes, a kernel that is given one of the host is refused. Each
// allocation ends where a page without access begins; an address is used again only when a terabyte is through.
#include "driver.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

std::recursive_mutex one_at_a_time;
Pool pools[MOST_DEVICES];

// Unwritten numbers are NaNs, unwritten indices out of every range.
static const int POISON = 0xff;
// The least that the pool of a GPU asks of it at once.
static const u64 GRAIN = 32ull << 20;

// Never destroyed: what outlives the process's end may still free memory.
static std::map<u64, Allocation> &live = *new std::map<u64, Allocation>;
static std::deque<Allocation> &freed = *new std::deque<Allocation>;
static u64 base, distance, extent, cursor, page, count;

void complain(const char *format, ...) {
    char words[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    fprintf(stderr, "stand-in: %s\n", words);
}

bool is_idle() {
    static const bool idle = setting("TUNEBOX_STANDIN_IDLE", 0);
    return idle;
}

u64 setting(const char *name, u64 otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

u64 memory_of_device() {
    static const u64 bytes = setting("TUNEBOX_STANDIN_BYTES", 4ull << 30);
    return bytes;
}

static void *reserve(u64 bytes) {
    void *found = mmap(nullptr, bytes, is_idle() ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : found;
}

static bool reserve_all() {
    if (extent) return true;
    page = (u64)sysconf(_SC_PAGESIZE);
    for (u64 bytes = 1ull << 40; bytes >= 1ull << 33; bytes /= 2) {
        void *seen = reserve(bytes), *real = seen ? reserve(bytes) : nullptr;
        if (real) {
            base = (u64)seen, distance = (u64)real - base, extent = bytes, cursor = base + page;
            return true;
        }
        if (seen) munmap(seen, bytes);
    }
    return false;
}

void *here(u64 address) { return (void *)(address + distance); }
bool is_of_device(u64 address) { return address - base < extent; }

static u64 rounded(u64 bytes, u64 to) { return (bytes + to - 1) / to * to; }

// Where so many bytes of pages are free, with one before and behind that stays so; 0 if nowhere.
static u64 free_pages(u64 bytes) {
    for (int round = 0; round < 2; ++round) {
        while (cursor + bytes + page <= base + extent) {
            auto after = live.lower_bound(cursor);
            if (after != live.begin()) {
                const Allocation &before = std::prev(after)->second;
                u64 end = before.pages + before.pages_bytes + page;
                if (end > cursor) {
                    cursor = end;
                    continue;
                }
            }
            if (after == live.end() || after->second.pages >= cursor + bytes + page) return cursor;
            cursor = after->second.pages + after->second.pages_bytes + page;
        }
        cursor = base + page;
    }
    return 0;
}

Result allocate(u64 &address, u64 bytes, bool pooled) {
    if (bytes == 0) return INVALID_VALUE;
    Pool &pool = pools[current_device()];
    u64 counted = rounded(bytes, 512);
    if (pool.used + counted > memory_of_device() || !reserve_all()) return OUT_OF_MEMORY;
    u64 whole = rounded(rounded(bytes, 16), page), pages = free_pages(whole);
    if (!pages) return OUT_OF_MEMORY;
    if (!is_idle()) {
        if (mprotect(here(pages), whole, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
        memset(here(pages), POISON, whole);
    }
    address = pages + whole - rounded(bytes, 16);
    live[address] = {address, bytes, pages, whole, ++count, current_device(), pooled};
    cursor = pages + whole + page;
    pool.used += counted;
    pool.most_used = std::max(pool.most_used, pool.used);
    pool.reserved = std::max(pool.reserved, std::min(rounded(pool.used, GRAIN), memory_of_device()));
    pool.most_reserved = std::max(pool.most_reserved, pool.reserved);
    return SUCCESS;
}

Result release(u64 address, const char *call) {
    if (address == 0) return SUCCESS;
    auto found = live.find(address);
    if (found == live.end()) {
        char words[256];
        describe(words, sizeof words, address);
        complain("%s: %#llx is no beginning of live memory: %s", call, address, words);
        return INVALID_VALUE;
    }
    Allocation gone = found->second;
    Result result = unharmed(gone, call) ? SUCCESS : ILLEGAL_ADDRESS;
    if (!is_idle()) {
        mmap(here(gone.pages), gone.pages_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    live.erase(found);
    freed.push_back(gone);
    if (freed.size() > 1 << 16) freed.pop_front();
    pools[gone.device].used -= rounded(gone.bytes, 512);
    return result;
}

void give_back_unused() {
    for (Pool &pool : pools) {
        u64 kept = std::max(rounded(pool.used, GRAIN), pool.threshold);
        pool.reserved = std::min(pool.reserved, kept);
    }
}

const Allocation *allocation_at(u64 address) {
    auto after = live.upper_bound(address);
    if (after == live.begin()) return nullptr;
    const Allocation &found = std::prev(after)->second;
    return address <= found.begin + found.bytes ? &found : nullptr;
}

static const u8 *first_other(const u8 *from, const u8 *end) {
    while (from < end && *from == POISON) ++from;
    return from < end ? from : nullptr;
}

bool unharmed(const Allocation &allocation, const char *after) {
    const u8 *begin = (const u8 *)here(allocation.begin), *end = begin + allocation.bytes;
    const u8 *pages = (const u8 *)here(allocation.pages);
    const u8 *bad = first_other(pages, begin);
    if (bad) {
        complain("%s: %zu bytes were written before allocation %llu of %llu bytes", after, (size_t)(begin - bad),
                 allocation.number, allocation.bytes);
        return false;
    }
    bad = first_other(end, pages + allocation.pages_bytes);
    if (!bad) return true;
    complain("%s: %zu bytes were written past the end of allocation %llu of %llu bytes", after, (size_t)(bad - end),
             allocation.number, allocation.bytes);
    return false;
}

// Where an address lies beside a block of memory.
static void beside(char *words, size_t room, u64 address, const Allocation &block, const char *kind) {
    if (address < block.begin) {
        snprintf(words, room, "%llu bytes before %s allocation %llu of %llu bytes", block.begin - address, kind,
                 block.number, block.bytes);
    } else {
        snprintf(words, room, "byte %llu of %s allocation %llu of %llu bytes", address - block.begin, kind, block.number,
                 block.bytes);
    }
}

void describe(char *words, size_t room, u64 address) {
    if (!is_of_device(address)) {
        snprintf(words, room, "no memory of the device");
        return;
    }
    for (auto old = freed.rbegin(); old != freed.rend(); ++old) {
        if (address >= old->pages && address < old->pages + old->pages_bytes) {
            return beside(words, room, address, *old, "freed");
        }
    }
    const Allocation *nearest = nullptr;
    auto after = live.upper_bound(address);
    if (after != live.end()) nearest = &after->second;
    if (after != live.begin()) {
        const Allocation &before = std::prev(after)->second;
        u64 past = address - before.begin - before.bytes;
        if (address < before.begin + before.bytes || !nearest || past <= nearest->begin - address) nearest = &before;
    }
    if (nearest) beside(words, room, address, *nearest, "live");
    else snprintf(words, room, "memory of the device that was never allocated");
}

void describe_place(char *words, size_t room, const void *place) {
    if (is_of_device((u64)place)) snprintf(words, room, "an address of the device that came by no argument");
    else describe(words, room, (u64)place - distance);
}
