// Products of matrices by columns, as cuBLAS counts them: operands of 32 or 16 bits, sums in f32.
#pragma once
#include <cstddef>

// As cudaDataType numbers them.
enum Kind { F32 = 0, F16 = 2, BF16 = 14 };

// A matrix: number (i, j) of what the product takes of it lies at i · row + j · column.
struct Operand {
    const void *numbers;
    Kind kind;
    size_t row, column;
};

// c ← alpha · a · b + beta · c, m × k times k × n; c is not read if beta is 0.
void multiply(size_t m, size_t n, size_t k, float alpha, Operand a, Operand b, float beta, void *c, Kind kind, size_t pitch);
