// Attention forward and backward, for every type of activations: tiles of 32 queries by 32 keys, products of 8 by 8
// matrices of a SIMD group, all of it f32. Agrees with fused/attention.rs and attention/backward.rs.
//
// q and out: [tokens, heads · dim] with rows q_stride (out: heads · dim) apart; k, v: [tokens, kv_heads · dim] with rows
// k_stride, v_stride apart; lse, delta: [tokens, heads] f32. group = heads / kv_heads. Blocks of keys begin at multiples
// of 32 by position: a token's result has the same bits whether what it goes on from is shared or not.
//
// A group has 32 KiB of memory, too little for rows of 128 features: they pass through it in pieces of PIECE features,
// and what is summed for each feature stays in matrices of the SIMD groups. Launch: 256 threads, grid as said; the
// shared memory that a launch names is not used here.

#define PLAIN 32u
#define PLAIN_THREADS 256
#define PIECE (HEAD_DIM % 32 == 0 ? 32 : 16)
#define PIECES (HEAD_DIM / PIECE)
// Columns of 8 of a piece that one SIMD group sums: four SIMD groups a half, each with 8 rows.
#define SHARES (PIECE / 16)
#define ROW_PITCH (PIECE + 4)
#define SCORE_PITCH 36

// Rows of a tile by their numbers, features `begin` … `begin` + PIECE − 1, four side by side a thread; zeros where there is
// no row and past `dim`.
inline void stage(threadgroup float *to, device const act *from, u64 stride, u32 begin, u32 dim,
                  threadgroup const u32 *rows, Here here) {
    for (u32 at = here.worker * 4; at < PLAIN * PIECE; at += PLAIN_THREADS * 4) {
        u32 line = at / PIECE, column = at % PIECE, row = rows[line];
        u64 source = (u64)row * stride + begin + column;
        threadgroup float *spot = to + line * ROW_PITCH + column;
        if (row != NOWHERE && begin + column + 4 <= dim) {
            UNROLL for (u32 i = 0; i < 4; ++i) spot[i] = get(from, source + i);
        } else {
            for (u32 i = 0; i < 4; ++i) {
                spot[i] = row != NOWHERE && begin + column + i < dim ? get(from, source + i) : 0.0f;
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
    u32 y = warp / 2 * 8, x = warp % 2 * 16;
    UNROLL for (u32 i = 0; i < 2; ++i) simdgroup_store(sums[i], to + y * SCORE_PITCH + x + 8 * i, SCORE_PITCH);
}

// sums[i] += weights·rows for a piece of features; with `turned`, weightsᵀ·rows.
inline void mix_piece(thread simdgroup_float8x8 (&sums)[SHARES], threadgroup const float *weights, bool turned,
                      threadgroup const float *rows, u32 warp) {
    u32 y = warp / 2 * 8, x = warp % 2 * (PIECE / 2);
    for (u32 at = 0; at < PLAIN; at += 8) {
        simdgroup_float8x8 a, b;
        if (turned) {
            simdgroup_load(a, weights + at * SCORE_PITCH + y, SCORE_PITCH, 0, true);
        } else {
            simdgroup_load(a, weights + y * SCORE_PITCH + at, SCORE_PITCH);
        }
        UNROLL for (u32 i = 0; i < SHARES; ++i) {
            simdgroup_load(b, rows + at * ROW_PITCH + x + 8 * i, ROW_PITCH);
            simdgroup_multiply_accumulate(sums[i], a, b, sums[i]);
        }
    }
}

// Writes the sums of a piece by way of the group's memory, each row times a factor of its own.
inline void write_piece(device act *to, thread simdgroup_float8x8 (&sums)[SHARES], threadgroup float *by,
                        threadgroup const float *factors, u32 length, u32 begin, u32 dim, u64 stride, u32 row,
                        Here here) {
    u32 warp = here.worker / WARP, y = warp / 2 * 8, x = warp % 2 * (PIECE / 2);
    meet_block();
    UNROLL for (u32 i = 0; i < SHARES; ++i) simdgroup_store(sums[i], by + y * ROW_PITCH + x + 8 * i, ROW_PITCH);
    meet_block();
    for (u32 at = here.worker; at < PLAIN * PIECE; at += PLAIN_THREADS) {
        u32 line = at / PIECE, column = at % PIECE;
        if (line < length && begin + column < dim) {
            put(to, (u64)(row + line) * stride + begin + column, by[line * ROW_PITCH + column] * factors[line]);
        }
    }
}

// Rows of the tokens of a place, or of a block of keys on a path.
inline void own_rows(threadgroup u32 *rows, u32 row, u32 length, Here here) {
    if (here.worker < PLAIN) rows[here.worker] = here.worker < length ? row + here.worker : NOWHERE;
}
inline void path_rows(threadgroup u32 *rows, device const Span *path, u32 count, u32 start, Here here) {
    if (here.worker < PLAIN) rows[here.worker] = row_of(path, count, start + here.worker);
}

// Places: queries, QUERIES = 32. Grid: x places, y heads.
KERNEL(PLAIN_THREADS) attention_plain(device act *out [[buffer(0)]], device float *lse [[buffer(1)]],
                                      device const act *q [[buffer(2)]], device const act *k [[buffer(3)]],
                                      device const act *v [[buffer(4)]], device const TileEntry *places [[buffer(5)]],
                                      device const Span *spans [[buffer(6)]],
                                      constant u64 &q_stride [[buffer(7)]], constant u64 &k_stride [[buffer(8)]],
                                      constant u64 &v_stride [[buffer(9)]], constant u32 &heads [[buffer(10)]],
                                      constant u32 &group [[buffer(11)]], constant u32 &dim [[buffer(12)]],
                                      constant float &scale [[buffer(13)]], constant float &cap [[buffer(14)]],
                                      constant u32 &window [[buffer(15)]] WHERE) {
    SHARED float left[PLAIN * ROW_PITCH], right[PLAIN * ROW_PITCH], scores[PLAIN * SCORE_PITCH];
    // For each row: the largest score, the sum relative to it, and what it shrinks by; the last as 8 by 8 matrices of
    // which only the diagonals are not 0, since matrices are multiplied by matrices alone.
    SHARED float best[PLAIN], total[PLAIN], shrink[4 * 64];
    SHARED u32 query_rows[PLAIN], key_rows[PLAIN];
    Here here = HERE;
    Scoring scoring = {scale, cap, window};
    TileEntry place = place_at(places, here.block.x);
    device const Span *path = spans + place.path;
    u32 head = here.block.y, kv_head = head / group, warp = here.worker / WARP, lane = here.worker % WARP;
    own_rows(query_rows, place.row, place.length, here);
    if (here.worker < PLAIN) best[here.worker] = -infinite(), total[here.worker] = 0.0f;
    shrink[here.worker] = 0.0f;
    simdgroup_float8x8 sums[PIECES][SHARES];
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        UNROLL for (u32 i = 0; i < SHARES; ++i) sums[piece][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    u32 begin = first_key(place.first, window) / PLAIN * PLAIN, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN) {
        path_rows(key_rows, path, place.count, start, here);
        simdgroup_float8x8 products[2];
        UNROLL for (u32 i = 0; i < 2; ++i) products[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
            meet_block();
            stage(left, q + head * dim, q_stride, piece * PIECE, dim, query_rows, here);
            stage(right, k + kv_head * dim, k_stride, piece * PIECE, dim, key_rows, here);
            meet_block();
            score_piece(products, left, right, warp);
        }
        score_store(scores, products, warp);
        meet_block();
        for (u32 row = warp * 4; row < warp * 4 + 4; ++row) {
            float slope, score = scored(scores[row * SCORE_PITCH + lane], scoring, slope);
            if (!sees(place.first + row, start + lane, window)) score = -infinite();
            float high = score;
            for (u32 mask = WARP / 2; mask > 0; mask /= 2) high = fmax(high, across(high, mask));
            float before = best[row], now = fmax(before, high);
            float weight = score == -infinite() ? 0.0f : exp(score - now);
            float sum = warp_sum(weight), keep = before == -infinite() ? 0.0f : exp(before - now);
            scores[row * SCORE_PITCH + lane] = weight;
            meet_warp();
            if (lane == 0) {
                best[row] = now, total[row] = total[row] * keep + sum;
                shrink[row / 8 * 64 + row % 8 * 9] = keep;
            }
            meet_warp();
        }
        UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
            meet_block();
            stage(right, v + kv_head * dim, v_stride, piece * PIECE, dim, key_rows, here);
            meet_block();
            simdgroup_float8x8 keep;
            simdgroup_load(keep, shrink + warp / 2 * 64, 8);
            UNROLL for (u32 i = 0; i < SHARES; ++i) {
                simdgroup_float8x8 kept;
                simdgroup_multiply(kept, keep, sums[piece][i]);
                sums[piece][i] = kept;
            }
            mix_piece(sums[piece], scores, false, right, warp);
        }
        meet_block();
    }
    if (here.worker < place.length) {
        u64 row = place.row + here.worker;
        lse[row * heads + head] = best[here.worker] + log(total[here.worker]);
    }
    meet_block();
    if (here.worker < PLAIN) total[here.worker] = 1.0f / total[here.worker];
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        write_piece(out + head * dim, sums[piece], left, total, place.length, piece * PIECE, dim, (u64)heads * dim,
                    place.row, here);
    }
}

// delta[token][head] = Σ dout·out. A SIMD group for each. Grid: ⌈tokens · heads / 8⌉ groups of 256 threads. dout and out
// are [tokens, heads · dim], contiguous.
KERNEL(256) attention_delta(device float *delta [[buffer(0)]], device const act *dout [[buffer(1)]],
                            device const act *out [[buffer(2)]], constant u32 &tokens [[buffer(3)]],
                            constant u32 &heads [[buffer(4)]], constant u32 &dim [[buffer(5)]] WHERE) {
    Here here = HERE;
    u64 unit = (u64)here.block.x * (here.workers / WARP) + here.worker / WARP;
    if (unit >= (u64)tokens * heads) return;
    float sum = 0.0f;
    for (u32 at = here.worker % WARP; at < dim; at += WARP) {
        sum = fma(get(dout, unit * dim + at), get(out, unit * dim + at), sum);
    }
    sum = warp_sum(sum);
    if (here.worker % WARP == 0) delta[unit] = sum;
}

// Weights and slopes of a tile of scores, in place: p = exp(s − lse), ds = p·(dp − delta)·(slope of the cap). Row i of
// the tile is query `query` + i in row `row` + i, of which there are `queries`; column j is key `key` + j of `keys`.
inline void plain_slopes(threadgroup float *weights, threadgroup float *slopes, device const float *lse,
                         device const float *delta, u32 heads, u32 head, u32 row, u32 query, u32 queries, u32 key,
                         u32 keys, Scoring scoring, Here here) {
    for (u32 at = here.worker; at < PLAIN * PLAIN; at += PLAIN_THREADS) {
        u32 i = at / PLAIN, j = at % PLAIN, spot = i * SCORE_PITCH + j;
        float weight = 0.0f, slope = 0.0f;
        if (i < queries && j < keys && sees(query + i, key + j, scoring.window)) {
            u64 line = (u64)(row + i) * heads + head;
            float bend, score = scored(weights[spot], scoring, bend);
            weight = exp(score - lse[line]);
            slope = weight * (slopes[spot] - delta[line]) * bend;
        }
        weights[spot] = weight, slopes[spot] = slope;
    }
}

// The products of a tile: queries with keys into `weights`, seeds with values into `slopes`. The four pieces of rows are
// in `pieces`, one after another.
inline void both_products(threadgroup float *weights, threadgroup float *slopes, threadgroup float *pieces,
                          device const act *q, u64 q_stride, device const act *dout, u64 out_stride,
                          device const act *k, u64 k_stride, device const act *v, u64 v_stride, u32 dim,
                          threadgroup const u32 *query_rows, threadgroup const u32 *key_rows, Here here) {
    u32 warp = here.worker / WARP, size = PLAIN * ROW_PITCH;
    simdgroup_float8x8 scores[2], seeds[2];
    UNROLL for (u32 i = 0; i < 2; ++i) {
        scores[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        seeds[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    for (u32 begin = 0; begin < HEAD_DIM; begin += PIECE) {
        meet_block();
        stage(pieces, q, q_stride, begin, dim, query_rows, here);
        stage(pieces + size, dout, out_stride, begin, dim, query_rows, here);
        stage(pieces + 2 * size, k, k_stride, begin, dim, key_rows, here);
        stage(pieces + 3 * size, v, v_stride, begin, dim, key_rows, here);
        meet_block();
        score_piece(scores, pieces, pieces + 2 * size, warp);
        score_piece(seeds, pieces + size, pieces + 3 * size, warp);
    }
    score_store(weights, scores, warp);
    score_store(slopes, seeds, warp);
    meet_block();
}

// dq, [tokens, heads · dim] contiguous. Places: queries, QUERIES = 32. Grid: x places, y heads.
KERNEL(PLAIN_THREADS) attention_plain_dq(device act *dq [[buffer(0)]], device const act *dout [[buffer(1)]],
                                         device const act *q [[buffer(2)]], device const act *k [[buffer(3)]],
                                         device const act *v [[buffer(4)]], device const float *lse [[buffer(5)]],
                                         device const float *delta [[buffer(6)]],
                                         device const TileEntry *places [[buffer(7)]],
                                         device const Span *spans [[buffer(8)]],
                                         constant u64 &q_stride [[buffer(9)]], constant u64 &k_stride [[buffer(10)]],
                                         constant u64 &v_stride [[buffer(11)]], constant u32 &heads [[buffer(12)]],
                                         constant u32 &group [[buffer(13)]], constant u32 &dim [[buffer(14)]],
                                         constant float &scale [[buffer(15)]], constant float &cap [[buffer(16)]],
                                         constant u32 &window [[buffer(17)]] WHERE) {
    SHARED float pieces[4 * PLAIN * ROW_PITCH], weights[PLAIN * SCORE_PITCH], slopes[PLAIN * SCORE_PITCH];
    SHARED float factors[PLAIN];
    SHARED u32 query_rows[PLAIN], key_rows[PLAIN];
    Here here = HERE;
    Scoring scoring = {scale, cap, window};
    TileEntry place = place_at(places, here.block.x);
    device const Span *path = spans + place.path;
    u32 head = here.block.y, kv_head = head / group, warp = here.worker / WARP;
    u64 out_stride = (u64)heads * dim;
    own_rows(query_rows, place.row, place.length, here);
    if (here.worker < PLAIN) factors[here.worker] = scale;
    simdgroup_float8x8 sums[PIECES][SHARES];
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        UNROLL for (u32 i = 0; i < SHARES; ++i) sums[piece][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    u32 begin = first_key(place.first, window) / PLAIN * PLAIN, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN) {
        path_rows(key_rows, path, place.count, start, here);
        both_products(weights, slopes, pieces, q + head * dim, q_stride, dout + head * dim, out_stride,
                      k + kv_head * dim, k_stride, v + kv_head * dim, v_stride, dim, query_rows, key_rows, here);
        plain_slopes(weights, slopes, lse, delta, heads, head, place.row, place.first, place.length, start, PLAIN,
                     scoring, here);
        UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
            meet_block();
            stage(pieces, k + kv_head * dim, k_stride, piece * PIECE, dim, key_rows, here);
            meet_block();
            mix_piece(sums[piece], slopes, false, pieces, warp);
        }
        meet_block();
    }
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        write_piece(dq + head * dim, sums[piece], pieces, factors, place.length, piece * PIECE, dim, out_stride,
                    place.row, here);
    }
}

// dk and dv, [tokens, kv_heads · dim] contiguous: the sums over the heads of a group, in order, and over all queries
// that see the keys, those of the own sequence first. Places: keys, KEYS = 32. Grid: x places, y kv_heads.
KERNEL(PLAIN_THREADS) attention_plain_dkv(device act *dk [[buffer(0)]], device act *dv [[buffer(1)]],
                                          device const act *dout [[buffer(2)]], device const act *q [[buffer(3)]],
                                          device const act *k [[buffer(4)]], device const act *v [[buffer(5)]],
                                          device const float *lse [[buffer(6)]], device const float *delta [[buffer(7)]],
                                          device const TileEntry *places [[buffer(8)]],
                                          device const Span *spans [[buffer(9)]],
                                          constant u64 &q_stride [[buffer(10)]], constant u64 &k_stride [[buffer(11)]],
                                          constant u64 &v_stride [[buffer(12)]], constant u32 &heads [[buffer(13)]],
                                          constant u32 &group [[buffer(14)]], constant u32 &dim [[buffer(15)]],
                                          constant float &scale [[buffer(16)]], constant float &cap [[buffer(17)]],
                                          constant u32 &window [[buffer(18)]] WHERE) {
    SHARED float pieces[4 * PLAIN * ROW_PITCH], weights[PLAIN * SCORE_PITCH], slopes[PLAIN * SCORE_PITCH];
    // Twice: dk's, then dv's.
    SHARED float both_factors[2 * PLAIN];
    SHARED u32 query_rows[PLAIN], key_rows[PLAIN];
    Here here = HERE;
    Scoring scoring = {scale, cap, window};
    TileEntry place = place_at(places, here.block.x);
    u32 kv_head = here.block.y, kv_heads = heads / group, warp = here.worker / WARP;
    u64 out_stride = (u64)heads * dim, narrow_stride = (u64)kv_heads * dim;
    own_rows(key_rows, place.row, place.length, here);
    if (here.worker < 2 * PLAIN) both_factors[here.worker] = here.worker < PLAIN ? scale : 1.0f;
    simdgroup_float8x8 key_sums[PIECES][SHARES], value_sums[PIECES][SHARES];
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        UNROLL for (u32 i = 0; i < SHARES; ++i) {
            key_sums[piece][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            value_sums[piece][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (u32 number = place.path; number < place.path + place.count; ++number) {
            Span span = stretch_at(spans, number);
            u32 end = span.first + span.length;
            if (window != 0) end = least(end, place.first + place.length - 1 + window);
            for (u32 start = most(span.first, place.first); start < end; start += PLAIN) {
                u32 length = least(PLAIN, end - start), row = span.row + (start - span.first);
                own_rows(query_rows, row, length, here);
                both_products(weights, slopes, pieces, q + head * dim, q_stride, dout + head * dim, out_stride,
                              k + kv_head * dim, k_stride, v + kv_head * dim, v_stride, dim, query_rows, key_rows,
                              here);
                plain_slopes(weights, slopes, lse, delta, heads, head, row, start, length, place.first, place.length,
                             scoring, here);
                UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
                    meet_block();
                    stage(pieces, dout + head * dim, out_stride, piece * PIECE, dim, query_rows, here);
                    stage(pieces + PLAIN * ROW_PITCH, q + head * dim, q_stride, piece * PIECE, dim, query_rows, here);
                    meet_block();
                    mix_piece(value_sums[piece], weights, true, pieces, warp);
                    mix_piece(key_sums[piece], slopes, true, pieces + PLAIN * ROW_PITCH, warp);
                }
                meet_block();
            }
        }
    }
    meet_block();
    UNROLL for (u32 piece = 0; piece < PIECES; ++piece) {
        write_piece(dk + kv_head * dim, key_sums[piece], pieces, both_factors, place.length, piece * PIECE, dim,
                    narrow_stride, place.row, here);
        write_piece(dv + kv_head * dim, value_sums[piece], pieces, both_factors + PLAIN, place.length, piece * PIECE, dim,
                    narrow_stride, place.row, here);
    }
}
