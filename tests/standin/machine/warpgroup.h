// Products of warpgroups, in place of warpgroup.cuh: a warp multiplies its 16 rows when the product is issued.
//
// An address is a distance from the begin of the block's dynamic shared memory.
#pragma once

static inline u32 shared_address(const void *place) { return (u32)((const u8 *)place - emulated::dynamic); }
static inline void show_tensor_cores() { emulated::hidden[emulated::number_of()] = false; }
static inline void begin_products() {}
static inline void end_products() {}
template <int left> static inline void await_products() {}
template <int COUNT> static inline void keep(float (&)[COUNT][4]) {}

static inline u64 describe(const void *place, u32 leading, u32 stride) {
    if (shared_address(place) % 16) emulated::refuse("an operand of a warpgroup is not on 16 bytes");
    return (shared_address(place) >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}

namespace emulated {
// An operand that a descriptor names, as the manual of PTX has it, in rows of 128 bytes that are swizzled.
struct Operand {
    u32 begin, leading, stride;

    explicit Operand(u64 words)
        : begin((u32)(words & 0x3fff) << 4), leading((u32)(words >> 16 & 0x3fff) << 4), stride((u32)(words >> 32 & 0x3fff) << 4) {
        if (words >> 62 != 1) refuse("an operand of a warpgroup is not swizzled by 128 bytes");
        for (u32 thread = 0; thread < size.x; ++thread) {
            if (hidden[thread]) refuse("a product reads copies that its thread did not show to the tensor cores");
        }
    }
    template <typename T> float at(u32 distance) const {
        u32 place = begin + distance;
        place ^= (place >> 7 & 7) << 4;
        T number;
        memcpy(&number, dynamic + place, sizeof number);
        return wide(number);
    }
    // Number `k` of a row, where rows are features side by side.
    template <typename T> float of_row(u32 row, u32 k) const { return at<T>(row / 8 * stride + row % 8 * 128 + k * 2); }
    // Number `column` of row `k`, where rows are summed over.
    template <typename T> float of_column(u32 column, u32 k) const {
        return at<T>(k / 8 * stride + k % 8 * 128 + column / 64 * leading + column % 64 * 2);
    }
};

// sums += left · right of this thread's numbers, each sum in order and in f64: `left(side, k)` of its two rows.
template <int COUNT, typename Left, typename Right> static void add_products(float (&sums)[COUNT][4], Left left, Right right) {
    for (u32 n = 0; n < COUNT; ++n) {
        for (u32 i = 0; i < 4; ++i) {
            double sum = sums[n][i];
            for (u32 k = 0; k < 16; ++k) sum += (double)left(i / 2, k) * right(8 * n + current->index.x % 4 * 2 + i % 2, k);
            sums[n][i] = (float)sum;
        }
    }
}
} // namespace emulated

template <typename T, int COUNT> static inline void multiply_tiles(float (&sums)[COUNT][4], u64 left, u64 right, bool add) {
    emulated::Operand lefts(left), rights(right);
    if (!add) memset(sums, 0, sizeof sums);
    u32 row = emulated::current->index.x / 32 % 4 * 16 + emulated::current->index.x % 32 / 4;
    emulated::add_products(
        sums, [&](u32 side, u32 k) { return lefts.of_row<T>(row + 8 * side, k); },
        [&](u32 column, u32 k) { return rights.of_row<T>(column, k); });
}

template <typename T, int COUNT> static inline void multiply_weights(float (&sums)[COUNT][4], const u32 (&left)[4], u64 right) {
    using namespace emulated;
    Operand rights(right);
    // The four lanes of a row have four numbers each.
    Exchange &all = exchange_of(current->warp);
    u32 lane = current->index.x % 32;
    memcpy(all.left[lane], left, sizeof left);
    meet(exchange_numbers);
    float rows[2][16];
    for (u32 other = 0; other < 4; ++other) {
        for (u32 i = 0; i < 4; ++i) {
            u32 word = all.left[lane / 4 * 4 + other][i];
            float *to = &rows[i % 2][i / 2 * 8 + other * 2];
            to[0] = first_of<T>(word), to[1] = second_of<T>(word);
        }
    }
    add_products(
        sums, [&](u32 side, u32 k) { return rows[side][k]; },
        [&](u32 column, u32 k) { return rights.of_column<T>(column, k); });
}
