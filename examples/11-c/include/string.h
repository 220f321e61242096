// The part of the C library that generated bindings call; `memory.c` has it.
#pragma once
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t size);
int memcmp(const void *left, const void *right, size_t size);
size_t strlen(const char *text);
