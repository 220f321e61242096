// Memory for a method that lives through calls of a few hundred bytes: blocks in lists by their size, never given back
// to the system.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern unsigned char __heap_base;

// A block's size stands before it, as a power of two.
typedef struct block {
    size_t power;
    struct block *next;
} block;

static block *spare[32];
static uintptr_t end;

_Noreturn void abort(void) { __builtin_trap(); }

void *malloc(size_t size) {
    if (size > (size_t)1 << 30) abort();
    size_t power = 4;
    while (((size_t)1 << power) < size) power++;
    if (spare[power]) {
        block *found = spare[power];
        spare[power] = found->next;
        return found + 1;
    }
    if (!end) end = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
    block *made = (block *)end;
    end += sizeof(block) + ((size_t)1 << power);
    size_t pages = (end + 65535) / 65536, held = __builtin_wasm_memory_size(0);
    if (pages > held && __builtin_wasm_memory_grow(0, pages - held) == (size_t)-1) abort();
    made->power = power;
    return made + 1;
}

void free(void *old) {
    if (!old) return;
    block *given = (block *)old - 1;
    given->next = spare[given->power];
    spare[given->power] = given;
}

void *realloc(void *old, size_t size) {
    if (!old) return malloc(size);
    size_t held = (size_t)1 << ((block *)old - 1)->power;
    if (size <= held) return old;
    void *larger = malloc(size);
    memcpy(larger, old, held);
    free(old);
    return larger;
}

void *memcpy(void *to, const void *from, size_t size) {
    for (size_t at = 0; at < size; at++) ((unsigned char *)to)[at] = ((const unsigned char *)from)[at];
    return to;
}

int memcmp(const void *left, const void *right, size_t size) {
    const unsigned char *a = left, *b = right;
    for (size_t at = 0; at < size; at++)
        if (a[at] != b[at]) return a[at] - b[at];
    return 0;
}

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}
