// Tiles of attention for warpgroups: the four warps of each multiply together (wgmma, compute capability 9.0),
// and the tensor cores read tiles from shared memory, without a load of registers by each warp.
//
// A tile is cut into columns of 64 features, one after another, where a row has 128 bytes; the 16 bytes number c of row r
// lie at c ^ (r % 8) of them, and eight rows begin on a boundary of 1024 bytes: what PTX calls swizzling by 128 bytes.

#if ACTIVATION != 0 && WARPGROUPS

#define TILE_NUMBERS(rows) ((rows) * HEAD_DIM)
#define COLUMN_NUMBERS 64
// Between rows of a column, by multiples of eight rows.
#define ROW_NUMBERS COLUMN_NUMBERS
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

// The first row of this warpgroup.
DEVICE u32 group_line() { return threadIdx.x / (4 * WARP) * 64; }

// Starts sums = left · rightᵀ over all features: the 64 rows of this warpgroup in a left tile of ROWS rows, all COUNT rows of
// the right tile. Ends a group of products.
template <int ROWS, int COUNT>
DEVICE void start_scores(float (&sums)[COUNT / 8][4], const act *left, const act *right) {
    keep(sums);
    begin_products();
    UNROLL for (int feature = 0; feature < HEAD_DIM; feature += 16) {
        multiply_tiles<act>(sums, describe_rows<ROWS>(left, group_line(), feature), describe_rows<COUNT>(right, 0, feature),
                            feature > 0);
    }
    end_products();
}

// Starts sums += weights · rows, all COUNT rows of a tile. Ends a group of products. Until it is awaited the weights stay.
template <int COUNT>
DEVICE void start_mix(float (&sums)[HEAD_DIM / 8][4], const u32 (&weights)[COUNT / 16][4], const act *rows) {
    keep(sums);
    begin_products();
    UNROLL for (int n = 0; n < COUNT / 16; ++n) {
        multiply_weights<act>(sums, weights[n], describe_features<COUNT>(rows, 16 * n));
    }
    end_products();
}

// Numbers of 64 rows, as a product left them, become the left operand of another.
template <int EIGHTS> DEVICE void pack_weights(u32 (&words)[EIGHTS / 2][4], const float (&numbers)[EIGHTS][4]) {
    UNROLL for (int n = 0; n < EIGHTS / 2; ++n) pack_left(words[n], numbers[2 * n], numbers[2 * n + 1]);
}

#endif
