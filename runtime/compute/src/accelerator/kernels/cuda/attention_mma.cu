// Tiles of attention_tensor.cu for warps that multiply by themselves: mma m16n8k16, on every machine with tensor cores.

#if ACTIVATION != 0 && !WARPGROUPS

// Rows of a tile in shared memory: an odd number of 16 bytes apart, so that eight rows lie in different banks.
#define PITCH (HEAD_DIM + 8)
#define TILE_NUMBERS(rows) ((rows) * PITCH)
#define ROW_NUMBERS PITCH

DEVICE act *first_tile(u8 *shared) { return (act *)shared; }

// Where eight numbers of a row lie, from a multiple of eight on, in a tile of ROWS rows.
template <int ROWS> DEVICE act *spot_of(act *tile, u32 row, u32 feature) { return tile + row * PITCH + feature; }

// Waits until at most `left` groups of copies are under way, and for all threads.
template <int left> DEVICE void await_tiles() {
    await_groups<left>();
    sync_block();
}

// The left operand: rows `row` … row + 15, features `feature` … feature + 15.
DEVICE void load_left(u32 (&words)[4], const act *tile, u32 row, u32 feature) {
    u32 lane = threadIdx.x % WARP;
    load_matrices(words, tile + (row + lane % 16) * PITCH + feature + lane / 16 * 8);
}

// The right operand of left·tileᵀ for 16 rows of the tile: words 0, 1 for the first eight, 2, 3 for the others.
DEVICE void load_right_transposed(u32 (&words)[4], const act *tile, u32 row, u32 feature) {
    u32 lane = threadIdx.x % WARP;
    load_matrices(words, tile + (row + lane % 8 + lane / 16 * 8) * PITCH + feature + lane / 8 % 2 * 8);
}

// The right operand of left·tile for 16 rows of the tile (which are summed over) and 16 features: words 0, 1 for the
// first eight features, 2, 3 for the others.
DEVICE void load_right(u32 (&words)[4], const act *tile, u32 row, u32 feature) {
    u32 lane = threadIdx.x % WARP;
    load_matrices_transposed(words, tile + (row + lane % 16) * PITCH + feature + lane / 16 * 8);
}

// sums += left rows · right rowsᵀ over all features: the rows of the warp in each stack, COUNT right rows.
template <int STACK, int COUNT>
DEVICE void row_products(float (&sums)[STACK][COUNT / 8][4], const act *left, const act *right) {
    u32 line = own_line();
    UNROLL for (int feature = 0; feature < HEAD_DIM; feature += 16) {
        u32 lefts[STACK][4];
        UNROLL for (int s = 0; s < STACK; ++s) load_left(lefts[s], left, line + STACK_ROWS * s, feature);
        UNROLL for (int n = 0; n < COUNT / 16; ++n) {
            u32 rights[4];
            load_right_transposed(rights, right, 16 * n, feature);
            UNROLL for (int s = 0; s < STACK; ++s) {
                multiply<act>(sums[s][2 * n], lefts[s], rights[0], rights[1]);
                multiply<act>(sums[s][2 * n + 1], lefts[s], rights[2], rights[3]);
            }
        }
    }
}

// sums += weights · rows: weights as a product left them, COUNT rows, FEATURES features from `feature` on.
template <int STACK, int COUNT, int FEATURES>
DEVICE void mix_rows(float (&sums)[STACK][FEATURES / 8][4], const float (&weights)[STACK][COUNT / 8][4],
                     const act *rows, u32 feature) {
    UNROLL for (int n = 0; n < COUNT / 16; ++n) {
        u32 lefts[STACK][4];
        UNROLL for (int s = 0; s < STACK; ++s) pack_left(lefts[s], weights[s][2 * n], weights[s][2 * n + 1]);
        UNROLL for (int f = 0; f < FEATURES / 16; ++f) {
            u32 rights[4];
            load_right(rights, rows, 16 * n, feature + 16 * f);
            UNROLL for (int s = 0; s < STACK; ++s) {
                multiply<act>(sums[s][2 * f], lefts[s], rights[0], rights[1]);
                multiply<act>(sums[s][2 * f + 1], lefts[s], rights[2], rights[3]);
            }
        }
    }
}

#endif
