// How numbers lie in the blocks of each quantized format, for CUDA and for Metal. Agrees with fused/unpack.rs and
// weight/nf4.rs bit for bit.
//
// `dialect.h` says what the preludes define: DEVICE and MEMBER (before a function), GLOBAL, LOCAL and THREAD (the
// memory behind a pointer or a reference), UNROLL, `times`, `plus` and `minus` (each rounded by itself, as on the
// processor) and `half_at`.

// The sixteen levels of NF4: quantiles of a normal distribution.
#define NF4_LEVELS                                                                                                     \
    {-1.0f,         -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f, -0.091050036f, 0.0f,           \
     0.0795803f,    0.1609302f,  0.2461123f,   0.33791524f, 0.44070983f,  0.562617f,    0.72295684f,   1.0f}

// What the blocks of a matrix in NF4 share.
struct Scales {
    GLOBAL const float *groups;  // the largest magnitude of each group of 256 blocks
    GLOBAL const float *dynamic; // the 256 values of a magnitude in 8 bits
    float mean;                  // of all magnitudes
    LOCAL const float *levels;   // NF4_LEVELS
};

// Eight bytes from an even address.
DEVICE void eight_bytes(THREAD u32 (&bytes)[8], GLOBAL const u8 *from) {
    UNROLL for (u32 i = 0; i < 4; ++i) {
        u32 pair = ((GLOBAL const u16 *)from)[i];
        bytes[2 * i] = pair & 255u, bytes[2 * i + 1] = pair >> 8;
    }
}

DEVICE u32 word_at(GLOBAL const u8 *bytes) {
    return (u32)((GLOBAL const u16 *)bytes)[0] | (u32)((GLOBAL const u16 *)bytes)[1] << 16;
}

DEVICE float signed_byte(u32 byte) { return (float)((int)(byte ^ 128u) - 128); }

// Each format: bytes and numbers of a block, and how to read numbers at … at + 7 of it, `at` a multiple of 8.

// 32 numbers of four bits, with a fifth each in a word of their own if FIFTH: Q4_0 and Q5_0, whose numbers lie around 0,
// and with the least number beside the scale (LEAST) Q4_1 and Q5_1.
template <bool LEAST, bool FIFTH> struct Nibbles {
    enum : u32 { HEAD = LEAST ? 4 : 2, CODES = HEAD + (FIFTH ? 4 : 0), BYTES = CODES + 16, NUMBERS = 32 };
    MEMBER void read(THREAD float (&numbers)[8], GLOBAL const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block), low = LEAST ? half_at(block + 2) : 0.0f;
        u32 bytes[8], shift = at < 16 ? 0 : 4, fifths = FIFTH ? word_at(block + HEAD) >> at : 0;
        eight_bytes(bytes, block + CODES + at % 16);
        UNROLL for (u32 i = 0; i < 8; ++i) {
            int code = (int)((bytes[i] >> shift & 15u) | (fifths >> i & 1u) << 4) - (LEAST ? 0 : FIFTH ? 16 : 8);
            numbers[i] = times((float)code, scale);
            if (LEAST) numbers[i] = plus(numbers[i], low);
        }
    }
};

typedef Nibbles<false, false> Q4_0;
typedef Nibbles<true, false> Q4_1;
typedef Nibbles<false, true> Q5_0;
typedef Nibbles<true, true> Q5_1;

struct Q8_0 {
    enum : u32 { BYTES = 34, NUMBERS = 32 };
    MEMBER void read(THREAD float (&numbers)[8], GLOBAL const u8 *block, u32 at, Scales, u64) {
        float scale = half_at(block);
        u32 bytes[8];
        eight_bytes(bytes, block + 2 + at);
        UNROLL for (u32 i = 0; i < 8; ++i) numbers[i] = times(signed_byte(bytes[i]), scale);
    }
};

// The scale and minimum of 32 numbers: those of the block times the 6-bit ones, of which twelve bytes hold eight of
// both.
DEVICE void scale_and_least(THREAD float &scale, THREAD float &low, GLOBAL const u8 *block, u32 part) {
    GLOBAL const u8 *packed = block + 4;
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

// 256 numbers of four bits with a scale and a minimum for each 32, and with fifth bits in bytes of their own (FIFTH).
template <bool FIFTH> struct ScaledNibbles {
    enum : u32 { BYTES = FIFTH ? 176 : 144, NUMBERS = 256 };
    MEMBER void read(THREAD float (&numbers)[8], GLOBAL const u8 *block, u32 at, Scales, u64) {
        float scale, low;
        scale_and_least(scale, low, block, at / 32);
        u32 bytes[8], fifths[8] = {0, 0, 0, 0, 0, 0, 0, 0}, shift = at / 32 % 2 * 4;
        eight_bytes(bytes, block + (BYTES - 128) + at / 64 * 32 + at % 32);
        if (FIFTH) eight_bytes(fifths, block + 16 + at % 32);
        UNROLL for (u32 i = 0; i < 8; ++i) {
            u32 number = (bytes[i] >> shift & 15u) | (fifths[i] >> at / 32 & 1u) << 4;
            numbers[i] = minus(times(scale, (float)number), low);
        }
    }
};

typedef ScaledNibbles<false> Q4_K;
typedef ScaledNibbles<true> Q5_K;

struct Q6_K {
    enum : u32 { BYTES = 210, NUMBERS = 256 };
    MEMBER void read(THREAD float (&numbers)[8], GLOBAL const u8 *block, u32 at, Scales, u64) {
        u32 side = at / 128, quarter = at % 128 / 32;
        float scale = times(half_at(block + 208), signed_byte(block[192 + at / 16]));
        u32 low[8], high[8], shift = quarter / 2 * 4;
        eight_bytes(low, block + 64 * side + 32 * (quarter % 2) + at % 32);
        eight_bytes(high, block + 128 + 32 * side + at % 32);
        UNROLL for (u32 i = 0; i < 8; ++i) {
            int number = (int)((low[i] >> shift & 15u) | (high[i] >> (2 * quarter) & 3u) << 4) - 32;
            numbers[i] = times(scale, (float)number);
        }
    }
};

// 33 bytes: the byte of the magnitude, then the first half in the lower four bits, the second in the upper ones.
struct NF4 {
    enum : u32 { BYTES = 33, NUMBERS = 64 };
    MEMBER void read(THREAD float (&numbers)[8], GLOBAL const u8 *block, u32 at, Scales scales, u64 number) {
        float magnitude = plus(times(scales.dynamic[block[0]], scales.groups[number / 256]), scales.mean);
        u32 shift = at < 32 ? 0 : 4;
        UNROLL for (u32 i = 0; i < 8; ++i) {
            numbers[i] = times(scales.levels[(u32)block[1 + at % 32 + i] >> shift & 15u], magnitude);
        }
    }
};
