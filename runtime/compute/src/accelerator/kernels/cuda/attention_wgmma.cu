// Tiles of attention_tensor.cu for warpgroups: the four warps of a block multiply together (wgmma, compute capability 9.0),
// and the tensor cores read tiles from shared memory, without a load of registers by each warp.
//
// A tile is cut into columns of 64 features, one after another, where a row has 128 bytes; the 16 bytes number c of row r
// lie at c ^ (r % 8) of them, and eight rows begin on a boundary of 1024 bytes: what PTX calls swizzling by 128 bytes.

#if ACTIVATION != 0 && WARPGROUPS

#define TILE_NUMBERS(rows) ((rows) * HEAD_DIM)
#define COLUMN_NUMBERS 64
#define ATOM_BYTES 1024

// Fits where the tiles of attention_mma.cu do: those have 16 bytes more for each of at least 64 rows.
DEVICE act *first_tile(u8 *shared) {
    return (act *)(shared + (ATOM_BYTES - shared_address(shared) % ATOM_BYTES) % ATOM_BYTES);
}

template <int ROWS> DEVICE act *spot_of(act *tile, u32 row, u32 feature) {
    u32 column = feature / COLUMN_NUMBERS, piece = feature % COLUMN_NUMBERS / 8;
    return tile + column * ROWS * COLUMN_NUMBERS + row * COLUMN_NUMBERS + (piece ^ row % 8) * 8;
}

template <int left> DEVICE void await_tiles() {
    await_groups<left>();
    show_tensor_cores();
    sync_block();
}

// 64 rows (a stack) of a tile of ROWS rows, 16 features: an operand whose features are summed over.
template <int ROWS> DEVICE u64 describe_rows(const act *tile, u32 row, u32 feature) {
    u32 column = feature / COLUMN_NUMBERS, within = feature % COLUMN_NUMBERS;
    return describe(tile + column * ROWS * COLUMN_NUMBERS + row * COLUMN_NUMBERS + within, 16, ATOM_BYTES);
}

// 16 rows of a tile of ROWS rows, all features: a right operand whose rows are summed over.
template <int ROWS> DEVICE u64 describe_features(const act *tile, u32 row) {
    return describe(tile + row * COLUMN_NUMBERS, ROWS * COLUMN_NUMBERS * 2, ATOM_BYTES);
}

template <int STACK, int COUNT>
DEVICE void row_products(float (&sums)[STACK][COUNT / 8][4], const act *left, const act *right) {
    begin_products();
    UNROLL for (int s = 0; s < STACK; ++s) {
        UNROLL for (int feature = 0; feature < HEAD_DIM; feature += 16) {
            multiply_tiles<act>(sums[s], describe_rows<STACK * STACK_ROWS>(left, STACK_ROWS * s, feature),
                                describe_rows<COUNT>(right, 0, feature));
        }
    }
    end_products();
    await_products<0>();
    UNROLL for (int s = 0; s < STACK; ++s) keep(sums[s]);
}

template <int STACK, int COUNT, int FEATURES>
DEVICE void mix_rows(float (&sums)[STACK][FEATURES / 8][4], const float (&weights)[STACK][COUNT / 8][4],
                     const act *rows, u32) {
    u32 lefts[STACK][COUNT / 16][4];
    UNROLL for (int s = 0; s < STACK; ++s) {
        UNROLL for (int n = 0; n < COUNT / 16; ++n) pack_left(lefts[s][n], weights[s][2 * n], weights[s][2 * n + 1]);
        keep(sums[s]);
    }
    begin_products();
    UNROLL for (int s = 0; s < STACK; ++s) {
        UNROLL for (int n = 0; n < COUNT / 16; ++n) {
            multiply_weights<act>(sums[s], lefts[s][n], describe_features<COUNT>(rows, 16 * n));
        }
    }
    end_products();
    await_products<0>();
    UNROLL for (int s = 0; s < STACK; ++s) keep(sums[s]);
}

#endif
