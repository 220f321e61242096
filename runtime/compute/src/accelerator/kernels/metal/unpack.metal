// Numbers out of quantized blocks, into a scratch for products or rows by number for an embedding. Agrees with
// fused/unpack.rs and weight/nf4.rs bit for bit in f32; in 16 bits the nearest number to that.
//
// A thread makes eight numbers that lie side by side. `rows` rows of `columns` numbers each (whole blocks) from row
// `first` on, or, where `ids` is not null, row ids[i] for each i; `known` is how many rows the matrix has. The result
// is contiguous, [rows, columns]. Launch: 256 threads, min(⌈rows · columns / 2048⌉, 16 · processors) groups. Bytes begin
// on an even address.
//
// Kernels: unpack_<format>_f32 and unpack_<format>_act. scale multiplies each number (an embedding's factor; 1 changes
// no bit). groups, dynamic, mean: NF4's alone, else null and 0: the largest magnitude of each group of 256 blocks of the
// matrix, the 256 values of `DYNAMIC`, the mean.

// What the blocks of a matrix in NF4 share.
struct Scales {
    device const float *groups;
    device const float *dynamic;
    float mean;
};

inline float half_at(device const u8 *bytes) { return wide_f16(*(device const u16 *)bytes); }

// Eight bytes from an even address.
inline void eight_bytes(thread u32 (&bytes)[8], device const u8 *from) {
    for (u32 i = 0; i < 4; ++i) {
        u32 two = ((device const u16 *)from)[i];
        bytes[2 * i] = two & 255u, bytes[2 * i + 1] = two >> 8;
    }
}

inline u32 word_at(device const u8 *bytes) {
    return (u32)((device const u16 *)bytes)[0] | (u32)((device const u16 *)bytes)[1] << 16;
}

inline float signed_byte(u32 byte) { return (float)((int)(byte ^ 128u) - 128); }

// Each format: bytes and numbers of a block, and how to read numbers at … at + 7 of it, `at` a multiple of 8.

struct Q4_0 {
    enum : u32 { BYTES = 18, NUMBERS = 32 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8], shift = at < 16 ? 0 : 4;
        eight_bytes(bytes, block + 2 + at % 16);
        for (u32 i = 0; i < 8; ++i) numbers[i] = times((float)((int)(bytes[i] >> shift & 15u) - 8), scale);
    }
};

struct Q4_1 {
    enum : u32 { BYTES = 20, NUMBERS = 32 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block), low = half_at(block + 2);
        u32 bytes[8], shift = at < 16 ? 0 : 4;
        eight_bytes(bytes, block + 4 + at % 16);
        for (u32 i = 0; i < 8; ++i) numbers[i] = plus(times((float)(bytes[i] >> shift & 15u), scale), low);
    }
};

struct Q5_0 {
    enum : u32 { BYTES = 22, NUMBERS = 32 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8], shift = at < 16 ? 0 : 4, fifth = word_at(block + 2) >> at;
        eight_bytes(bytes, block + 6 + at % 16);
        for (u32 i = 0; i < 8; ++i) {
            int number = (int)(bytes[i] >> shift & 15u) - ((fifth >> i & 1u) != 0 ? 0 : 16);
            numbers[i] = times((float)number, scale);
        }
    }
};

struct Q5_1 {
    enum : u32 { BYTES = 24, NUMBERS = 32 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block), low = half_at(block + 2);
        u32 bytes[8], shift = at < 16 ? 0 : 4, fifth = word_at(block + 4) >> at;
        eight_bytes(bytes, block + 8 + at % 16);
        for (u32 i = 0; i < 8; ++i) {
            u32 number = (bytes[i] >> shift & 15u) | (fifth >> i & 1u) << 4;
            numbers[i] = plus(times((float)number, scale), low);
        }
    }
};

struct Q8_0 {
    enum : u32 { BYTES = 34, NUMBERS = 32 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8];
        eight_bytes(bytes, block + 2 + at);
        for (u32 i = 0; i < 8; ++i) numbers[i] = times(signed_byte(bytes[i]), scale);
    }
};

// The scale and minimum of 32 numbers: those of the block times the 6-bit ones, of which twelve bytes hold eight of
// both.
inline void scale_and_least(thread float &scale, thread float &low, device const u8 *block, u32 part) {
    device const u8 *packed = block + 4;
    u32 small_scale, small_least;
    if (part < 4) {
        small_scale = packed[part] & 63u, small_least = packed[part + 4] & 63u;
    } else {
        small_scale = (packed[part + 4] & 15u) | (u32)packed[part - 4] >> 6 << 4;
        small_least = (u32)packed[part + 4] >> 4 | (u32)packed[part] >> 6 << 4;
    }
    scale = times(half_at(block), (float)small_scale);
    low = times(half_at(block + 2), (float)small_least);
}

struct Q4_K {
    enum : u32 { BYTES = 144, NUMBERS = 256 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale, low;
        scale_and_least(scale, low, block, at / 32);
        u32 bytes[8], shift = at / 32 % 2 * 4;
        eight_bytes(bytes, block + 16 + at / 64 * 32 + at % 32);
        for (u32 i = 0; i < 8; ++i) numbers[i] = minus(times(scale, (float)(bytes[i] >> shift & 15u)), low);
    }
};

struct Q5_K {
    enum : u32 { BYTES = 176, NUMBERS = 256 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        float scale, low;
        scale_and_least(scale, low, block, at / 32);
        u32 bytes[8], fifths[8], shift = at / 32 % 2 * 4;
        eight_bytes(bytes, block + 48 + at / 64 * 32 + at % 32);
        eight_bytes(fifths, block + 16 + at % 32);
        for (u32 i = 0; i < 8; ++i) {
            u32 number = (bytes[i] >> shift & 15u) | (fifths[i] >> at / 32 & 1u) << 4;
            numbers[i] = minus(times(scale, (float)number), low);
        }
    }
};

struct Q6_K {
    enum : u32 { BYTES = 210, NUMBERS = 256 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales, u64) {
        u32 side = at / 128, quarter = at % 128 / 32;
        float scale = times(half_at(block + 208), signed_byte(block[192 + at / 16]));
        u32 low[8], high[8], shift = quarter / 2 * 4;
        eight_bytes(low, block + 64 * side + 32 * (quarter % 2) + at % 32);
        eight_bytes(high, block + 128 + 32 * side + at % 32);
        for (u32 i = 0; i < 8; ++i) {
            int number = (int)((low[i] >> shift & 15u) | (high[i] >> (2 * quarter) & 3u) << 4) - 32;
            numbers[i] = times(scale, (float)number);
        }
    }
};

// The levels of NF4: quantiles of a normal distribution.
constant float NF4_LEVELS[16] = {-1.0f,         -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f,
                                 -0.091050036f, 0.0f,        0.0795803f,   0.1609302f,  0.2461123f,   0.33791524f,
                                 0.44070983f,   0.562617f,   0.72295684f,  1.0f};

inline float nf4_level(u32 code) { return NF4_LEVELS[code]; }

// 33 bytes: the byte of the magnitude, then the first half in the lower four bits, the second in the upper ones.
struct NF4 {
    enum : u32 { BYTES = 33, NUMBERS = 64 };
    static void read(thread float (&numbers)[8], device const u8 *block, u32 at, Scales scales, u64 number) {
        float magnitude = plus(times(scales.dynamic[block[0]], scales.groups[number / 256]), scales.mean);
        u32 shift = at < 32 ? 0 : 4;
        for (u32 i = 0; i < 8; ++i) {
            numbers[i] = times(nf4_level((u32)block[1 + at % 32 + i] >> shift & 15u), magnitude);
        }
    }
};

template <typename Format, typename T>
void unpack(device T *to, device const u8 *blocks, device const u32 *ids, bool by_number, u32 rows, u32 columns,
            u32 first, u32 known, float scale, Scales scales, FAULT_WORD word, u32 place, Here here) {
    u32 eights = columns / 8;
    u64 blocks_of_row = columns / Format::NUMBERS, all = (u64)rows * eights, step = (u64)here.blocks.x * here.workers;
    for (u64 part = (u64)here.block.x * here.workers + here.worker; part < all; part += step) {
        u32 row = (u32)(part / eights), column = (u32)(part % eights) * 8;
        u64 from = inside(by_number ? ids[row] : first + row, known, word, place);
        u64 number = from * blocks_of_row + column / Format::NUMBERS;
        float numbers[8];
        Format::read(numbers, blocks + number * Format::BYTES, column % Format::NUMBERS, scales, number);
        u64 at = (u64)row * columns + column;
        for (u32 i = 0; i < 8; ++i) put(to, at + i, times(numbers[i], scale));
    }
}

#define UNPACK(name, Format, T)                                                                                        \
    KERNEL(256) name(device T *to [[buffer(0)]], device const u8 *blocks_of [[buffer(1)]],                             \
                     device const u32 *ids [[buffer(2)]], constant u32 &rows [[buffer(3)]],                            \
                     constant u32 &columns [[buffer(4)]], constant u32 &first [[buffer(5)]],                           \
                     constant u32 &known [[buffer(6)]], constant float &scale [[buffer(7)]],                           \
                     device const float *groups [[buffer(8)]], device const float *dynamic [[buffer(9)]],              \
                     constant float &mean [[buffer(10)]], FAULT_WORD word [[buffer(11)]],                              \
                     constant u32 &place [[buffer(12)]] WHERE) {                                                       \
        Here here = HERE;                                                                                              \
        Scales scales = {groups, dynamic, mean};                                                                       \
        unpack<Format>(to, blocks_of, ids, THERE(2, ids), rows, columns, first, known, scale, scales, word, place,     \
                       here);                                                                                          \
    }

UNPACK(unpack_q4_0_f32, Q4_0, float)
UNPACK(unpack_q4_0_act, Q4_0, act)
UNPACK(unpack_q4_1_f32, Q4_1, float)
UNPACK(unpack_q4_1_act, Q4_1, act)
UNPACK(unpack_q5_0_f32, Q5_0, float)
UNPACK(unpack_q5_0_act, Q5_0, act)
UNPACK(unpack_q5_1_f32, Q5_1, float)
UNPACK(unpack_q5_1_act, Q5_1, act)
UNPACK(unpack_q8_0_f32, Q8_0, float)
UNPACK(unpack_q8_0_act, Q8_0, act)
UNPACK(unpack_q4_k_f32, Q4_K, float)
UNPACK(unpack_q4_k_act, Q4_K, act)
UNPACK(unpack_q5_k_f32, Q5_K, float)
UNPACK(unpack_q5_k_act, Q5_K, act)
UNPACK(unpack_q6_k_f32, Q6_K, float)
UNPACK(unpack_q6_k_act, Q6_K, act)
UNPACK(unpack_nf4_f32, NF4, float)
UNPACK(unpack_nf4_act, NF4, act)
