// Matrix products: result = factor · left · right, or added to what is there. Sums in f32 whatever the type; the result
// has the type of activations or f32.
//
// A side lies as [rows, depth] (left), [depth, columns] (right), or, turned, with rows and columns exchanged; its rows
// are `pitch` numbers apart, numbers of a row lie side by side. A group of 128 threads makes a tile of 64 by 64: each of
// its four SIMD groups 32 by 32, as sixteen 8 by 8 matrices, from two tiles of 16 steps of the depth in the group's
// memory, widened to f32 there. (Matrices of bf16 are Metal 3.1; those of f32 are as fast on these processors, and the
// widening keeps products exact.)

#define TILE 64u
#define DEPTH 16u
#define LEFT_PITCH (DEPTH + 4u)
#define RIGHT_PITCH (TILE + 4u)
// One for every eight numbers of a tile of TILE by DEPTH.
#define PRODUCT_THREADS 128

// Reads a tile of TILE · DEPTH numbers, eight side by side a thread: as memory lies, from line `first` of `lines` and
// place `begin` of `length` on, LENGTH places a line, zeros past both; number (line, place) goes to
// to[line · line_step + place · place_step].
template <u32 LENGTH>
void read_tile(threadgroup float *to, u32 line_step, u32 place_step, device const act *from, u64 pitch, u32 first,
               u32 lines, u32 begin, u32 length, Here here) {
    u32 line = here.index / (LENGTH / 8), place = here.index % (LENGTH / 8) * 8;
    u64 source = (first + line) * pitch + begin + place;
    threadgroup float *spot = to + line * line_step + place * place_step;
    if (first + line < lines && begin + place + 8 <= length) {
        UNROLL for (u32 i = 0; i < 8; ++i) spot[i * place_step] = get(from, source + i);
    } else {
        for (u32 i = 0; i < 8; ++i) {
            bool there = first + line < lines && begin + place + i < length;
            spot[i * place_step] = there ? get(from, source + i) : 0.0f;
        }
    }
}

template <typename T>
void product(device T *into, device const act *left, device const act *right, u32 rows, u32 columns, u32 depth,
             u64 into_pitch, u64 left_pitch, u64 right_pitch, bool left_turned, bool right_turned, float factor,
             bool adds, threadgroup float *lefts, threadgroup float *rights, Here here) {
    u32 first_row = here.block.y * TILE, first_column = here.block.x * TILE;
    u32 warp = here.index / WARP, lane = here.index % WARP, y = warp / 2 * 32, x = warp % 2 * 32;
    simdgroup_float8x8 sums[4][4];
    UNROLL for (u32 i = 0; i < 4; ++i) {
        UNROLL for (u32 j = 0; j < 4; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    for (u32 begin = 0; begin < depth; begin += DEPTH) {
        sync_shared();
        // lefts: [TILE][DEPTH], rights: [DEPTH][TILE]; memory is read along its own rows.
        if (left_turned) {
            read_tile<TILE>(lefts, 1, LEFT_PITCH, left, left_pitch, begin, depth, first_row, rows, here);
        } else {
            read_tile<DEPTH>(lefts, LEFT_PITCH, 1, left, left_pitch, first_row, rows, begin, depth, here);
        }
        if (right_turned) {
            read_tile<DEPTH>(rights, 1, RIGHT_PITCH, right, right_pitch, first_column, columns, begin, depth, here);
        } else {
            read_tile<TILE>(rights, RIGHT_PITCH, 1, right, right_pitch, begin, depth, first_column, columns, here);
        }
        sync_shared();
        UNROLL for (u32 at = 0; at < DEPTH; at += 8) {
            simdgroup_float8x8 a[4], b[4];
            UNROLL for (u32 i = 0; i < 4; ++i) simdgroup_load(a[i], lefts + (y + 8 * i) * LEFT_PITCH + at, LEFT_PITCH);
            UNROLL for (u32 j = 0; j < 4; ++j) simdgroup_load(b[j], rights + at * RIGHT_PITCH + x + 8 * j, RIGHT_PITCH);
            UNROLL for (u32 i = 0; i < 4; ++i) {
                UNROLL for (u32 j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
            }
        }
    }
    sync_shared();
    // Out by way of the group's memory, 8 by 8 for each SIMD group: who holds which number of a matrix is not said.
    threadgroup float *by = lefts + warp * 64;
    UNROLL for (u32 i = 0; i < 4; ++i) {
        UNROLL for (u32 j = 0; j < 4; ++j) {
            simdgroup_store(sums[i][j], by, 8);
            sync_warp();
            for (u32 at = lane; at < 64; at += WARP) {
                u32 row = first_row + y + 8 * i + at / 8, column = first_column + x + 8 * j + at % 8;
                if (row < rows && column < columns) {
                    u64 spot = row * into_pitch + column;
                    float number = factor * by[at];
                    put(into, spot, adds ? get((device const T *)into, spot) + number : number);
                }
            }
            sync_warp();
        }
    }
}

// Grid: x ⌈columns / 64⌉, y ⌈rows / 64⌉; 128 threads.
#define PRODUCT(name, T)                                                                                               \
    KERNEL(PRODUCT_THREADS) name(GLOBAL T *into, GLOBAL const act *left, GLOBAL const act *right, NUMBER(u32) rows,    \
                                 NUMBER(u32) columns, NUMBER(u32) depth, NUMBER(u64) into_pitch,                       \
                                 NUMBER(u64) left_pitch, NUMBER(u64) right_pitch, NUMBER(u32) left_turned,             \
                                 NUMBER(u32) right_turned, NUMBER(float) factor, NUMBER(u32) adds WHERE) {             \
        SHARED float lefts[TILE * LEFT_PITCH], rights[DEPTH * RIGHT_PITCH];                                            \
        product(into, left, right, rows, columns, depth, into_pitch, left_pitch, right_pitch, left_turned != 0,        \
                right_turned != 0, factor, adds != 0, lefts, rights, HERE);                                            \
    }

PRODUCT(product_act, act)
PRODUCT(product_f32, float)

#define FEW 8u

// A product of at most FEW rows against a turned right side, as in writing token by token: a SIMD group for a column,
// which reads its numbers once.
template <typename T>
void product_of_few(device T *into, device const act *left, device const act *right, u32 rows, u32 columns, u32 depth,
                    u64 into_pitch, u64 left_pitch, u64 right_pitch, float factor, bool adds, Here here) {
    u32 column = here.block.x * (here.threads / WARP) + here.index / WARP, lane = here.index % WARP;
    if (column >= columns) return;
    float sums[FEW];
    UNROLL for (u32 row = 0; row < FEW; ++row) sums[row] = 0.0f;
    for (u32 at = lane; at < depth; at += WARP) {
        float weight = get(right, column * right_pitch + at);
        UNROLL for (u32 row = 0; row < FEW; ++row) {
            if (row < rows) sums[row] = fma(get(left, row * left_pitch + at), weight, sums[row]);
        }
    }
    UNROLL for (u32 row = 0; row < FEW; ++row) {
        float sum = warp_sum(sums[row]);
        if (lane == 0 && row < rows) {
            u64 spot = row * into_pitch + column;
            put(into, spot, adds ? get((device const T *)into, spot) + factor * sum : factor * sum);
        }
    }
}

// Grid: x ⌈columns / 8⌉; 256 threads.
#define PRODUCT_OF_FEW(name, T)                                                                                        \
    KERNEL(256) name(GLOBAL T *into, GLOBAL const act *left, GLOBAL const act *right, NUMBER(u32) rows,                \
                     NUMBER(u32) columns, NUMBER(u32) depth, NUMBER(u64) into_pitch, NUMBER(u64) left_pitch,           \
                     NUMBER(u64) right_pitch, NUMBER(float) factor, NUMBER(u32) adds WHERE) {                          \
        product_of_few(into, left, right, rows, columns, depth, into_pitch, left_pitch, right_pitch, factor,           \
                       adds != 0, HERE);                                                                               \
    }

PRODUCT_OF_FEW(product_of_few_act, act)
PRODUCT_OF_FEW(product_of_few_f32, float)
