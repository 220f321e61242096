// A product by panels: 16 rows by 4 columns at a time, from copies in f32 that lie in the order in which they are read.
#include "product.h"
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

typedef float Eight __attribute__((vector_size(32), aligned(4)));

static const size_t ROWS = 16, COLUMNS = 4;

static float number_at(const void *numbers, Kind kind, size_t at) {
    if (kind == F32) return ((const float *)numbers)[at];
    uint16_t bits = ((const uint16_t *)numbers)[at];
    if (kind == BF16) {
        uint32_t word = (uint32_t)bits << 16;
        float wide;
        memcpy(&wide, &word, 4);
        return wide;
    }
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}

static void set_number(void *numbers, Kind kind, size_t at, float value) {
    if (kind == F32) {
        ((float *)numbers)[at] = value;
        return;
    }
    uint16_t bits;
    if (kind == BF16) {
        uint32_t word;
        memcpy(&word, &value, 4);
        bits = value != value ? 0x7fff : (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
    } else {
        _Float16 half = (_Float16)value;
        memcpy(&bits, &half, 2);
    }
    ((uint16_t *)numbers)[at] = bits;
}

// Lines of the longer sort `lines` long, `wide` of them side by side, the last ones filled up with zeros.
static std::vector<float> panels(const Operand &from, size_t lines, size_t depth, size_t step, size_t along, size_t wide) {
    std::vector<float> to((lines + wide - 1) / wide * wide * depth);
    for (size_t line = 0; line < lines; ++line) {
        float *panel = &to[line / wide * wide * depth + line % wide];
        for (size_t at = 0; at < depth; ++at) {
            panel[at * wide] = number_at(from.numbers, from.kind, line * step + at * along);
        }
    }
    return to;
}

static void tile(float (&sums)[COLUMNS][ROWS], const float *a, const float *b, size_t depth) {
    Eight low[COLUMNS] = {}, high[COLUMNS] = {};
    for (size_t at = 0; at < depth; ++at) {
        Eight first = *(const Eight *)(a + at * ROWS), second = *(const Eight *)(a + at * ROWS + 8);
#pragma GCC unroll 4
        for (size_t j = 0; j < COLUMNS; ++j) {
            low[j] += first * b[at * COLUMNS + j];
            high[j] += second * b[at * COLUMNS + j];
        }
    }
    for (size_t j = 0; j < COLUMNS; ++j) {
        memcpy(sums[j], &low[j], sizeof low[j]);
        memcpy(sums[j] + 8, &high[j], sizeof high[j]);
    }
}

void multiply(size_t m, size_t n, size_t k, float alpha, Operand a, Operand b, float beta, void *c, Kind kind, size_t pitch) {
    std::vector<float> left = panels(a, m, k, a.row, a.column, ROWS), right = panels(b, n, k, b.column, b.row, COLUMNS);
    for (size_t column = 0; column < n; column += COLUMNS) {
        for (size_t row = 0; row < m; row += ROWS) {
            float sums[COLUMNS][ROWS];
            tile(sums, left.data() + row * k, right.data() + column * k, k);
            for (size_t j = 0; j < std::min(COLUMNS, n - column); ++j) {
                for (size_t i = 0; i < std::min(ROWS, m - row); ++i) {
                    size_t at = (column + j) * pitch + row + i;
                    float own = beta == 0.0f ? 0.0f : beta * number_at(c, kind, at);
                    set_number(c, kind, at, alpha * sums[j][i] + own);
                }
            }
        }
    }
}
