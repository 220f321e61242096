// Numbers out of quantized blocks, into a scratch for products or rows by number for an embedding. Agrees with
// fused/unpack.rs and weight/nf4.rs bit for bit in f32; in 16 bits the nearest number to that.
//
// A thread makes eight numbers that lie side by side. `rows` rows of `columns` numbers each (whole blocks) from row
// `first` on, or, where `ids` is not null, row ids[i] for each i; `known` is how many rows the matrix has. The result
// is contiguous, [rows, columns], on 16 bytes. Launch: 256 threads, min(⌈rows · columns / 2048⌉, 16 · multiprocessors)
// blocks, no dynamic shared memory. Bytes begin on an even address.
//
// Kernels: unpack_<format>. Arguments of all:
//     y, blocks, ids, rows, columns, first, known, scale, groups, dynamic, mean, word, place
// scale multiplies each number (an embedding's factor; 1 changes no bit). groups, dynamic, mean: NF4's alone, else null
// and 0: the largest magnitude of each group of 256 blocks of the matrix, the 256 values of `DYNAMIC`, the mean.

DEVICE float nf4_level(u32 code) {
    const float levels[16] = NF4_LEVELS;
    return levels[code];
}

template <typename Format>
DEVICE void unpack(act *y, const u8 *blocks, const u32 *ids, u32 rows, u32 columns, u32 first, u32 known, float scale,
                   Scales scales, u64 *word, u32 place) {
    // In shared memory, where sixteen levels lie in sixteen banks.
    if constexpr ((u32)Format::NUMBERS == (u32)NF4::NUMBERS) {
        __shared__ float levels[16];
        if (threadIdx.x < 16) levels[threadIdx.x] = nf4_level(threadIdx.x);
        meet_block();
        scales.levels = levels;
    }
    u32 eights = columns / 8;
    u64 blocks_of_row = columns / Format::NUMBERS, all = (u64)rows * eights;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    for (u64 part = thread; part < all; part += threads) {
        u32 row = (u32)(part / eights), column = (u32)(part % eights) * 8;
        u64 from = inside(ids ? ids[row] : first + row, known, word, place);
        u64 number = from * blocks_of_row + column / Format::NUMBERS;
        float numbers[8];
        Format::read(numbers, blocks + number * Format::BYTES, column % Format::NUMBERS, scales, number);
#pragma unroll
        for (int i = 0; i < 8; ++i) numbers[i] = times(numbers[i], scale);
        store(y + (u64)row * columns + column, numbers);
    }
}

#define UNPACK(name, Format)                                                                                           \
    KERNEL void unpack_##name(act *y, const u8 *blocks, const u32 *ids, u32 rows, u32 columns, u32 first, u32 known,   \
                              float scale, const float *groups, const float *dynamic, float mean, u64 *word,           \
                              u32 place) {                                                                             \
        Scales scales = {groups, dynamic, mean, nullptr};                                                              \
        unpack<Format>(y, blocks, ids, rows, columns, first, known, scale, scales, word, place);                       \
    }

UNPACK(q4_0, Q4_0)
UNPACK(q4_1, Q4_1)
UNPACK(q5_0, Q5_0)
UNPACK(q5_1, Q5_1)
UNPACK(q8_0, Q8_0)
UNPACK(q4_k, Q4_K)
UNPACK(q5_k, Q5_K)
UNPACK(q6_k, Q6_K)
UNPACK(nf4, NF4)
