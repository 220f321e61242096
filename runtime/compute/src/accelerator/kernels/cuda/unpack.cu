// Numbers out of quantized blocks, into a scratch for products or rows by number for an embedding. Agrees with
// fused/unpack.rs and weight/nf4.rs bit for bit in f32; in 16 bits the nearest number to that.
//
// A thread makes eight numbers that lie side by side. `rows` rows of `columns` numbers each (whole blocks) from row
// `first` on, or, where `ids` is not null, row ids[i] for each i; `known` is how many rows the matrix has. The result
// is contiguous, [rows, columns], on 16 bytes. Launch: 256 threads, min(⌈rows · columns / 2048⌉, 16 · multiprocessors)
// blocks, no dynamic shared memory. Bytes begin on an even address.
//
// Kernels: unpack_<format>_f32 and unpack_<format>_act. Arguments of all:
//     to, blocks, ids, rows, columns, first, known, scale, groups, dynamic, mean, word, place
// scale multiplies each number (an embedding's factor; 1 changes no bit). groups, dynamic, mean: NF4's alone, else null
// and 0: the largest magnitude of each group of 256 blocks of the matrix, the 256 values of `DYNAMIC`, the mean.

// What the blocks of a matrix in NF4 share.
struct Scales {
    const float *groups, *dynamic;
    float mean;
    const float *levels; // in shared memory, where sixteen lie in sixteen banks
};

DEVICE float half_at(const u8 *bytes) {
    f16 half = {*(const u16 *)bytes};
    return wide(half);
}

// Eight bytes from an even address.
DEVICE void eight_bytes(u32 (&bytes)[8], const u8 *from) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        u32 pair = ((const u16 *)from)[i];
        bytes[2 * i] = pair & 255, bytes[2 * i + 1] = pair >> 8;
    }
}

DEVICE u32 word_at(const u8 *bytes) {
    return (u32)((const u16 *)bytes)[0] | (u32)((const u16 *)bytes)[1] << 16;
}

// As the processor rounds: no product is fused with a sum.
DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }

// Each format: bytes and numbers of a block, and how to read numbers at … at + 7 of it, `at` a multiple of 8.

struct Q4_0 {
    static constexpr u32 BYTES = 18, NUMBERS = 32;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8], shift = at < 16 ? 0 : 4;
        eight_bytes(bytes, block + 2 + at % 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) numbers[i] = times((float)((int)(bytes[i] >> shift & 15) - 8), scale);
    }
};

struct Q4_1 {
    static constexpr u32 BYTES = 20, NUMBERS = 32;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block), low = half_at(block + 2);
        u32 bytes[8], shift = at < 16 ? 0 : 4;
        eight_bytes(bytes, block + 4 + at % 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) numbers[i] = plus(times((float)(bytes[i] >> shift & 15), scale), low);
    }
};

struct Q5_0 {
    static constexpr u32 BYTES = 22, NUMBERS = 32;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8], shift = at < 16 ? 0 : 4, fifth = word_at(block + 2) >> at;
        eight_bytes(bytes, block + 6 + at % 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int number = (int)(bytes[i] >> shift & 15) - (fifth >> i & 1 ? 0 : 16);
            numbers[i] = times((float)number, scale);
        }
    }
};

struct Q5_1 {
    static constexpr u32 BYTES = 24, NUMBERS = 32;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block), low = half_at(block + 2);
        u32 bytes[8], shift = at < 16 ? 0 : 4, fifth = word_at(block + 4) >> at;
        eight_bytes(bytes, block + 8 + at % 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u32 number = (bytes[i] >> shift & 15) | (fifth >> i & 1) << 4;
            numbers[i] = plus(times((float)number, scale), low);
        }
    }
};

struct Q8_0 {
    static constexpr u32 BYTES = 34, NUMBERS = 32;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8];
        eight_bytes(bytes, block + 2 + at);
#pragma unroll
        for (int i = 0; i < 8; ++i) numbers[i] = times((float)(signed char)bytes[i], scale);
    }
};

// The scale and minimum of 32 numbers: those of the block times the 6-bit ones, of which twelve bytes hold eight of
// both.
DEVICE void scale_and_least(float &scale, float &low, const u8 *block, u32 part) {
    const u8 *packed = block + 4;
    u32 small_scale, small_least;
    if (part < 4) {
        small_scale = packed[part] & 63, small_least = packed[part + 4] & 63;
    } else {
        small_scale = (packed[part + 4] & 15) | packed[part - 4] >> 6 << 4;
        small_least = (u32)packed[part + 4] >> 4 | packed[part] >> 6 << 4;
    }
    scale = times(half_at(block), (float)small_scale);
    low = times(half_at(block + 2), (float)small_least);
}

struct Q4_K {
    static constexpr u32 BYTES = 144, NUMBERS = 256;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale, low;
        scale_and_least(scale, low, block, at / 32);
        u32 bytes[8], shift = at / 32 % 2 * 4;
        eight_bytes(bytes, block + 16 + at / 64 * 32 + at % 32);
#pragma unroll
        for (int i = 0; i < 8; ++i) numbers[i] = plus(times(scale, (float)(bytes[i] >> shift & 15)), -low);
    }
};

struct Q5_K {
    static constexpr u32 BYTES = 176, NUMBERS = 256;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        float scale, low;
        scale_and_least(scale, low, block, at / 32);
        u32 bytes[8], fifths[8], shift = at / 32 % 2 * 4;
        eight_bytes(bytes, block + 48 + at / 64 * 32 + at % 32);
        eight_bytes(fifths, block + 16 + at % 32);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u32 number = (bytes[i] >> shift & 15) | (fifths[i] >> at / 32 & 1) << 4;
            numbers[i] = plus(times(scale, (float)number), -low);
        }
    }
};

struct Q6_K {
    static constexpr u32 BYTES = 210, NUMBERS = 256;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales, u64) {
        u32 side = at / 128, quarter = at % 128 / 32;
        float scale = times(half_at(block + 208), (float)(signed char)block[192 + at / 16]);
        u32 low[8], high[8], shift = quarter / 2 * 4;
        eight_bytes(low, block + 64 * side + 32 * (quarter % 2) + at % 32);
        eight_bytes(high, block + 128 + 32 * side + at % 32);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int number = (int)((low[i] >> shift & 15) | (high[i] >> (2 * quarter) & 3) << 4) - 32;
            numbers[i] = times(scale, (float)number);
        }
    }
};

// The levels of NF4: quantiles of a normal distribution.
DEVICE float nf4_level(u32 code) {
    const float levels[16] = {-1.0f,          -0.6961928f,  -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f,
                              -0.091050036f,  0.0f,         0.0795803f,   0.1609302f,  0.2461123f,   0.33791524f,
                              0.44070983f,    0.562617f,    0.72295684f,  1.0f};
    return levels[code];
}

// 33 bytes: the byte of the magnitude, then the first half in the lower four bits, the second in the upper ones.
struct NF4 {
    static constexpr u32 BYTES = 33, NUMBERS = 64;
    static __device__ __forceinline__ void read(float (&numbers)[8], const u8 *block, u32 at, Scales scales, u64 number) {
        float magnitude = plus(times(scales.dynamic[block[0]], scales.groups[number / 256]), scales.mean);
        u32 shift = at < 32 ? 0 : 4;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            numbers[i] = times(scales.levels[(u32)block[1 + at % 32 + i] >> shift & 15], magnitude);
        }
    }
};

template <typename Format, typename T>
DEVICE void unpack(T *to, const u8 *blocks, const u32 *ids, u32 rows, u32 columns, u32 first, u32 known, float scale,
                   Scales scales, u64 *word, u32 place) {
    if constexpr (Format::NUMBERS == NF4::NUMBERS) {
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
        store(to + (u64)row * columns + column, numbers);
    }
}

#define UNPACK(name, Format)                                                                                          \
    KERNEL void unpack_##name##_f32(float *to, const u8 *blocks, const u32 *ids, u32 rows, u32 columns, u32 first,     \
                                    u32 known, float scale, const float *groups, const float *dynamic, float mean,     \
                                    u64 *word, u32 place) {                                                            \
        Scales scales = {groups, dynamic, mean, nullptr};                                                              \
        unpack<Format>(to, blocks, ids, rows, columns, first, known, scale, scales, word, place);                      \
    }                                                                                                                  \
    KERNEL void unpack_##name##_act(act *to, const u8 *blocks, const u32 *ids, u32 rows, u32 columns, u32 first,       \
                                    u32 known, float scale, const float *groups, const float *dynamic, float mean,     \
                                    u64 *word, u32 place) {                                                            \
        Scales scales = {groups, dynamic, mean, nullptr};                                                              \
        unpack<Format>(to, blocks, ids, rows, columns, first, known, scale, scales, word, place);                      \
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
