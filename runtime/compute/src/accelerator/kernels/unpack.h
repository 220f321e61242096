// Numbers out of quantized blocks, into a scratch for products or rows by number for an embedding. Agrees with
// fused/unpack.rs and weight/nf4.rs bit for bit in f32; in 16 bits the nearest number to that.
//
// A thread makes eight numbers that lie side by side. `rows` rows of `columns` numbers each (whole blocks) from row
// `first` on, or, where `ids` is not null, row ids[i] for each i; `known` is how many rows the matrix has. The result
// is contiguous, [rows, columns], on 16 bytes. Launch: 256 threads, min(⌈rows · columns / 2048⌉, 16 · multiprocessors)
// blocks. Bytes begin on an even address.
//
// Kernels: unpack_<format>. scale multiplies each number (an embedding's factor; 1 changes no bit). groups, dynamic,
// mean: NF4's alone, else null and 0: the largest magnitude of each group of 256 blocks of the matrix, the 256 values of
// `DYNAMIC`, the mean.

DEVICE float nf4_level(u32 code) {
    const float levels[16] = NF4_LEVELS;
    return levels[code];
}

template <typename Format>
DEVICE void unpack(GLOBAL act *y, GLOBAL const u8 *blocks, GLOBAL const u32 *ids, bool by_number, u32 rows, u32 columns,
                   u32 first, u32 known, float scale, Scales scales, FAULT_WORD word, Here here) {
    u32 eights = columns / 8;
    u64 blocks_of_row = columns / Format::NUMBERS, all = (u64)rows * eights, step = (u64)here.blocks.x * here.threads;
    for (u64 part = (u64)here.block.x * here.threads + here.index; part < all; part += step) {
        u32 row = (u32)(part / eights), column = (u32)(part % eights) * 8;
        u64 from = inside(by_number ? ids[row] : first + row, known, word);
        u64 number = from * blocks_of_row + column / Format::NUMBERS;
        float numbers[8];
        Format::read(numbers, blocks + number * Format::BYTES, column % Format::NUMBERS, scales, number);
        Numbers<8> results;
        UNROLL for (int i = 0; i < 8; ++i) results.at[i] = times(numbers[i], scale);
        store(y + (u64)row * columns + column, results);
    }
}

// The levels of NF4 lie in the block's memory, in sixteen banks.
#define UNPACK(name, Format)                                                                                           \
    KERNEL(256) name(GLOBAL act *y, GLOBAL const u8 *blocks, GLOBAL const u32 *ids, NUMBER(u32) rows,                  \
                     NUMBER(u32) columns, NUMBER(u32) first, NUMBER(u32) known, NUMBER(float) scale,                   \
                     GLOBAL const float *groups, GLOBAL const float *dynamic, NUMBER(float) mean, FAULT_WORD word      \
                         WHERE) {                                                                                      \
        SHARED float levels[16];                                                                                       \
        Here here = HERE;                                                                                              \
        if (here.index < 16) levels[here.index] = nf4_level(here.index);                                               \
        sync_block();                                                                                                  \
        Scales scales = {groups, dynamic, mean, levels};                                                               \
        unpack<Format>(y, blocks, ids, THERE(2, ids), rows, columns, first, known, scale, scales, word, here);         \
    }

UNPACK(unpack_q4_0, Q4_0)
UNPACK(unpack_q4_1, Q4_1)
UNPACK(unpack_q5_0, Q5_0)
UNPACK(unpack_q5_1, Q5_1)
UNPACK(unpack_q8_0, Q8_0)
UNPACK(unpack_q4_k, Q4_K)
UNPACK(unpack_q5_k, Q5_K)
UNPACK(unpack_q6_k, Q6_K)
UNPACK(unpack_nf4, NF4)
