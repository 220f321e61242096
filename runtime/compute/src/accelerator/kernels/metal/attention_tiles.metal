// Tiles of attention_plain.h: 32 queries by 32 keys, products of 8 by 8 matrices of a SIMD group, all of it f32.
//
// A group has 32 KiB of memory, too little for rows of 128 features: they pass through it in pieces of PIECE features,
// and what is summed for each feature stays in matrices of the SIMD groups. The shared memory that a launch names is not
// used here.

#define PLAIN 32u
#define PLAIN_BACK PLAIN
#define PLAIN_THREADS 256
#define PIECE (HEAD_DIM % 32 == 0 ? 32 : 16)
#define PIECES (HEAD_DIM / PIECE)
// Columns of 8 of a piece that one SIMD group sums: four SIMD groups a half, each with 8 rows.
#define SHARES (PIECE / 16)
#define ROW_PITCH (PIECE + 4)
#define SCORE_PITCH(tile) 36

// Factors by which rows of sums shrink: 8 by 8 matrices of which only the diagonals are not 0, since matrices are
// multiplied by matrices alone.
#define SHRINK_NUMBERS 256
#define SHRINK_AT(row) ((row) / 8 * 64 + (row) % 8 * 9)

// Pieces of rows, and scores.
struct Tiles {
    threadgroup float *queries, *seeds, *keys, *values, *weights, *slopes;
};

#define FORWARD_TILES(tiles)                                                                                           \
    SHARED float left_piece[PLAIN * ROW_PITCH], right_piece[PLAIN * ROW_PITCH], tile_scores[PLAIN * SCORE_PITCH(PLAIN)]; \
    Tiles tiles = {left_piece, nullptr, right_piece, nullptr, tile_scores, nullptr};
#define BACKWARD_TILES(tiles)                                                                                          \
    SHARED float query_piece[PLAIN * ROW_PITCH], seed_piece[PLAIN * ROW_PITCH], key_piece[PLAIN * ROW_PITCH];          \
    SHARED float value_piece[PLAIN * ROW_PITCH], tile_weights[PLAIN * SCORE_PITCH(PLAIN)];                             \
    SHARED float tile_slopes[PLAIN * SCORE_PITCH(PLAIN)];                                                              \
    Tiles tiles = {query_piece, seed_piece, key_piece, value_piece, tile_weights, tile_slopes};

// Rows of a matrix by their numbers in the group's memory, NOWHERE for none.
struct Rows {
    device const act *from;
    u64 stride;
    u32 dim;
    threadgroup const u32 *numbers;
};

// The sums of a SIMD group, piece by piece.
template <u32 TILE> struct TileSums {
    simdgroup_float8x8 at[PIECES][SHARES];
};

template <u32 TILE> TileSums<TILE> no_sums() {
    TileSums<TILE> sums;
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        UNROLL for (u32 i = 0; i < SHARES; ++i) sums.at[piece][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    return sums;
}

// Products read rows themselves.
template <u32 TILE> void keep_rows(threadgroup float *, Rows, Here) {}

// Features `begin` … `begin` + PIECE − 1 of the rows of a tile, four side by side a thread; zeros where there is no row
// and past `dim`.
inline void stage(threadgroup float *to, Rows rows, u32 begin, Here here) {
    for (u32 at = here.index * 4; at < PLAIN * PIECE; at += PLAIN_THREADS * 4) {
        u32 line = at / PIECE, column = begin + at % PIECE, row = rows.numbers[line];
        u64 source = (u64)row * rows.stride + column;
        threadgroup float *spot = to + line * ROW_PITCH + at % PIECE;
        if (row != NOWHERE && column + 4 <= rows.dim) {
            UNROLL for (u32 i = 0; i < 4; ++i) spot[i] = get(rows.from, source + i);
        } else {
            for (u32 i = 0; i < 4; ++i) {
                spot[i] = row != NOWHERE && column + i < rows.dim ? get(rows.from, source + i) : 0.0f;
            }
        }
    }
}

// sums[i] += left·rightᵀ for a piece: a SIMD group has 8 rows and two of the four columns of 8.
inline void score_piece(thread simdgroup_float8x8 (&sums)[2], threadgroup const float *left,
                        threadgroup const float *right, u32 warp) {
    u32 y = warp / 2 * 8, x = warp % 2 * 16;
    for (u32 at = 0; at < PIECE; at += 8) {
        simdgroup_float8x8 a, b;
        simdgroup_load(a, left + y * ROW_PITCH + at, ROW_PITCH);
        UNROLL for (u32 i = 0; i < 2; ++i) {
            simdgroup_load(b, right + (x + 8 * i) * ROW_PITCH + at, ROW_PITCH, 0, true);
            simdgroup_multiply_accumulate(sums[i], a, b, sums[i]);
        }
    }
}

inline void score_store(threadgroup float *to, thread simdgroup_float8x8 (&sums)[2], u32 warp) {
    u32 y = warp / 2 * 8, x = warp % 2 * 16, pitch = SCORE_PITCH(PLAIN);
    UNROLL for (u32 i = 0; i < 2; ++i) simdgroup_store(sums[i], to + y * pitch + x + 8 * i, pitch);
}

// to[i][j] = Σ left[i]·right[j].
template <u32 TILE>
void tile_products(threadgroup float *to, threadgroup float *left_piece, Rows left, threadgroup float *right_piece,
                   Rows right, Here here) {
    simdgroup_float8x8 sums[2];
    UNROLL for (u32 i = 0; i < 2; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (u32 begin = 0; begin < HEAD_DIM; begin += PIECE) {
        sync_block();
        stage(left_piece, left, begin, here);
        stage(right_piece, right, begin, here);
        sync_block();
        score_piece(sums, left_piece, right_piece, here.index / WARP);
    }
    score_store(to, sums, here.index / WARP);
}

// Queries with keys into the weights, seeds with values into the slopes.
inline void both_products(Tiles tiles, Rows queries, Rows seeds, Rows keys, Rows values, Here here) {
    tile_products<PLAIN>(tiles.weights, tiles.queries, queries, tiles.keys, keys, here);
    tile_products<PLAIN>(tiles.slopes, tiles.seeds, seeds, tiles.values, values, here);
}

// sums[row] += Σ weights[row][i]·rows[i]; with TURNED, weights[i][row]. A SIMD group has 8 rows, and half the features of
// a piece.
template <u32 TILE, bool TURNED>
void mix_rows(thread TileSums<TILE> &sums, threadgroup const float *weights, threadgroup float *rows_piece, Rows rows,
              Here here) {
    u32 warp = here.index / WARP, y = warp / 2 * 8, x = warp % 2 * (PIECE / 2), pitch = SCORE_PITCH(TILE);
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        sync_block();
        stage(rows_piece, rows, piece * PIECE, here);
        sync_block();
        for (u32 at = 0; at < PLAIN; at += 8) {
            simdgroup_float8x8 a, b;
            simdgroup_load(a, weights + (TURNED ? at * pitch + y : y * pitch + at), pitch, 0, TURNED);
            UNROLL for (u32 i = 0; i < SHARES; ++i) {
                simdgroup_load(b, rows_piece + at * ROW_PITCH + x + 8 * i, ROW_PITCH);
                simdgroup_multiply_accumulate(sums.at[piece][i], a, b, sums.at[piece][i]);
            }
        }
    }
}

inline void shrink_sums(thread TileSums<PLAIN> &sums, threadgroup const float *shrink, Here here) {
    simdgroup_float8x8 factors;
    simdgroup_load(factors, shrink + here.index / WARP / 2 * 64, 8);
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        UNROLL for (u32 i = 0; i < SHARES; ++i) {
            simdgroup_float8x8 shrunk;
            simdgroup_multiply(shrunk, factors, sums.at[piece][i]);
            sums.at[piece][i] = shrunk;
        }
    }
}

// Writes the sums of the tokens of a place by way of the group's memory, each row times a factor of its own.
template <u32 TILE>
void write_tile(device act *to, thread TileSums<TILE> &sums, threadgroup float *by, threadgroup const float *factors,
                TileEntry place, u32 dim, u64 stride, Here here) {
    u32 warp = here.index / WARP, y = warp / 2 * 8, x = warp % 2 * (PIECE / 2);
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        sync_block();
        UNROLL for (u32 i = 0; i < SHARES; ++i) {
            simdgroup_store(sums.at[piece][i], by + y * ROW_PITCH + x + 8 * i, ROW_PITCH);
        }
        sync_block();
        for (u32 at = here.index; at < PLAIN * PIECE; at += PLAIN_THREADS) {
            u32 line = at / PIECE, column = piece * PIECE + at % PIECE;
            if (line < place.length && column < dim) {
                put(to, (place.row + line) * stride + column, by[line * ROW_PITCH + at % PIECE] * factors[line]);
            }
        }
    }
}
