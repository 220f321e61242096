// The part of the C library that generated bindings call; `memory.c` has it.
#pragma once
#include <stddef.h>

void *malloc(size_t size);
void *realloc(void *old, size_t size);
void free(void *old);
_Noreturn void abort(void);
