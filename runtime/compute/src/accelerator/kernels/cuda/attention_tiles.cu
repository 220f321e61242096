// Tiles of attention_plain.h on ordinary cores: rows of all features in shared memory, of each 16 rows of a tile a thread
// has one. Tiles of 32 by 32 scores; of 16 by 16 in the gradients past 160 features, since those of 32 do not fit into
// the shared memory of every processor. Dynamic shared memory (opt in above 48 KiB), with T = PLAIN or PLAIN_BACK:
// forward 4·(2·T·(HEAD_DIM+1) + T·(T+1)) bytes, gradients 4·(4·T·(HEAD_DIM+1) + 2·T·(T+1)).

#define PLAIN 32
#define PLAIN_BACK (HEAD_DIM <= 160 ? 32 : 16)
#define PLAIN_THREADS 256
#define PLAIN_PITCH (HEAD_DIM + 1)
#define SCORE_PITCH(tile) ((tile) + 1)
// Numbers of a tile of rows, and of one of scores.
#define PLAIN_ROWS(tile) ((tile) * PLAIN_PITCH)
#define PLAIN_SCORES(tile) ((tile) * SCORE_PITCH(tile))

// Factors by which rows of sums shrink: one a row.
#define SHRINK_NUMBERS PLAIN
#define SHRINK_AT(row) (row)

struct Tiles {
    float *queries, *seeds, *keys, *values, *weights, *slopes;
};

#define FORWARD_TILES(tiles)                                                                                           \
    SHARED_BYTES(tile_bytes);                                                                                          \
    float *rows_of_tiles = (float *)tile_bytes, *scores_of_tiles = rows_of_tiles + 2 * PLAIN_ROWS(PLAIN);              \
    Tiles tiles = {rows_of_tiles, nullptr, rows_of_tiles + PLAIN_ROWS(PLAIN), nullptr, scores_of_tiles, nullptr};
#define BACKWARD_TILES(tiles)                                                                                          \
    SHARED_BYTES(tile_bytes);                                                                                          \
    constexpr u32 size_of_tile = PLAIN_ROWS(PLAIN_BACK);                                                               \
    float *rows_of_tiles = (float *)tile_bytes, *scores_of_tiles = rows_of_tiles + 4 * size_of_tile;                   \
    Tiles tiles = {rows_of_tiles, rows_of_tiles + size_of_tile, rows_of_tiles + 2 * size_of_tile,                      \
                   rows_of_tiles + 3 * size_of_tile, scores_of_tiles, scores_of_tiles + PLAIN_SCORES(PLAIN_BACK)};

// Rows of a matrix by their numbers in shared memory, NOWHERE for none.
struct Rows {
    const act *from;
    u64 stride;
    u32 dim;
    const u32 *numbers;
};

// A thread's sums: its rows, and every sixteenth feature.
template <int TILE> struct TileSums {
    static constexpr int OWN = TILE / 16, PARTS = HEAD_DIM / 16;
    float at[OWN][PARTS];
};

template <int TILE> DEVICE TileSums<TILE> no_sums() { return {}; }

// Fills a tile of rows, zeros where there is none and past `dim`.
template <int TILE> DEVICE void keep_rows(float *to, Rows rows, Here here) {
    for (u32 at = here.index; at < TILE * HEAD_DIM; at += PLAIN_THREADS) {
        u32 line = at / HEAD_DIM, column = at % HEAD_DIM, source = rows.numbers[line];
        bool there = source != NOWHERE && column < rows.dim;
        to[line * PLAIN_PITCH + column] = there ? get(rows.from, (u64)source * rows.stride + column) : 0.0f;
    }
}

// to[i][j] = Σ left[i]·right[j], of two tiles of rows.
template <int TILE> DEVICE void tile_products(float *to, const float *left, Rows, const float *right, Rows, Here here) {
    constexpr int OWN = TILE / 16;
    u32 y = here.index / 16 * OWN, x = here.index % 16 * OWN;
    float sums[OWN][OWN] = {};
    sync_block();
    for (u32 at = 0; at < HEAD_DIM; ++at) {
        float l[OWN], r[OWN];
        UNROLL for (int i = 0; i < OWN; ++i) {
            l[i] = left[(y + i) * PLAIN_PITCH + at], r[i] = right[(x + i) * PLAIN_PITCH + at];
        }
        UNROLL for (int i = 0; i < OWN; ++i) {
            UNROLL for (int j = 0; j < OWN; ++j) sums[i][j] = fmaf(l[i], r[j], sums[i][j]);
        }
    }
    UNROLL for (int i = 0; i < OWN; ++i) {
        UNROLL for (int j = 0; j < OWN; ++j) to[(y + i) * SCORE_PITCH(TILE) + x + j] = sums[i][j];
    }
}

// Queries with keys into the weights, seeds with values into the slopes.
DEVICE void both_products(Tiles tiles, Rows queries, Rows seeds, Rows keys, Rows values, Here here) {
    tile_products<PLAIN_BACK>(tiles.weights, tiles.queries, queries, tiles.keys, keys, here);
    tile_products<PLAIN_BACK>(tiles.slopes, tiles.seeds, seeds, tiles.values, values, here);
}

// sums[row] += Σ weights[row][i]·rows[i]; with TURNED, weights[i][row].
template <int TILE, bool TURNED>
DEVICE void mix_rows(TileSums<TILE> &sums, const float *weights, const float *rows, Rows, Here here) {
    constexpr int OWN = TileSums<TILE>::OWN;
    u32 y = here.index / 16 * OWN, x = here.index % 16;
    for (u32 at = 0; at < TILE; ++at) {
        float own[OWN];
        UNROLL for (int i = 0; i < OWN; ++i) {
            own[i] = TURNED ? weights[at * SCORE_PITCH(TILE) + y + i] : weights[(y + i) * SCORE_PITCH(TILE) + at];
        }
        UNROLL for (int part = 0; part < TileSums<TILE>::PARTS; ++part) {
            float number = rows[at * PLAIN_PITCH + x + 16 * part];
            UNROLL for (int i = 0; i < OWN; ++i) sums.at[i][part] = fmaf(own[i], number, sums.at[i][part]);
        }
    }
}

DEVICE void shrink_sums(TileSums<PLAIN> &sums, const float *shrink, Here here) {
    constexpr int OWN = TileSums<PLAIN>::OWN;
    UNROLL for (int i = 0; i < OWN; ++i) {
        float factor = shrink[here.index / 16 * OWN + i];
        UNROLL for (int part = 0; part < TileSums<PLAIN>::PARTS; ++part) sums.at[i][part] *= factor;
    }
}

// Writes the sums of the tokens of a place, each row times a factor of its own.
template <int TILE>
DEVICE void write_tile(act *to, TileSums<TILE> sums, float *, const float *factors, TileEntry place, u32 dim, u64 stride,
                       Here here) {
    constexpr int OWN = TileSums<TILE>::OWN;
    u32 y = here.index / 16 * OWN, x = here.index % 16;
    UNROLL for (int i = 0; i < OWN; ++i) {
        if (y + i >= place.length) continue;
        UNROLL for (int part = 0; part < TileSums<TILE>::PARTS; ++part) {
            u32 column = x + 16 * part;
            if (column < dim) put(to, (place.row + y + i) * stride + column, sums.at[i][part] * factors[y + i]);
        }
    }
}
