// Attention in f32 arithmetic for any type of activations. On CUDA for parity with the processor and for head sizes that
// are no multiple of 8; on Metal always. Agrees with fused/attention.rs and attention/backward.rs.
//
// q and out: [tokens, heads · dim] with rows q_stride (out: heads · dim) apart; k, v: [tokens, kv_heads · dim] with rows
// k_stride, v_stride apart; lse, delta: [tokens, heads] f32. group = heads / kv_heads. Tiles of PLAIN by PLAIN scores, of
// PLAIN_BACK by PLAIN_BACK in the gradients.
//
// Products of tiles and where their rows lie are in cuda/attention_tiles.cu and metal/attention_tiles.metal: `Tiles`, the
// block's memory of a kernel; `TileSums`, the sums of a thread; `keep_rows`, which CUDA copies a tile with, while Metal
// reads rows again in each product, in pieces; `tile_products`, `both_products`, `mix_rows`, `shrink_sums`, `write_tile`.
// A product waits first for what `keep_rows` copies. Launch: 256 threads; grid as said.

// The row number of each token of a tile, from row `row` on.
DEVICE void own_rows(LOCAL u32 *numbers, u32 tile, u32 row, u32 length, Here here) {
    if (here.index < tile) numbers[here.index] = here.index < length ? row + here.index : NOWHERE;
}

// The row number of each position from `start` on, on a path.
DEVICE void path_rows(LOCAL u32 *numbers, u32 tile, GLOBAL const Span *path, u32 count, u32 start, Here here) {
    u32 hint = 0;
    if (here.index < tile) numbers[here.index] = row_of(path, count, hint, start + here.index);
}

// The softmax so far of each row of a tile of scores, which become weights relative to the largest so far: `best` that
// score, `total` the sum of weights, `shrink` what earlier weights are multiplied by. Row i is query `query` + i, column j
// key `key` + j.
DEVICE void softmax_rows(LOCAL float *scores, LOCAL float *best, LOCAL float *total, LOCAL float *shrink, u32 query,
                         u32 key, Scoring scoring, Here here) {
    u32 warp = here.index / WARP, lane = here.index % WARP;
    for (u32 row = warp * 4; row < warp * 4 + 4; ++row) {
        LOCAL float *spot = scores + row * SCORE_PITCH(PLAIN) + lane;
        float slope, score = score_of(*spot, scoring, slope);
        if (!sees(query + row, key + lane, scoring.window)) score = -INFINITE;
        float before = best[row], now = fmaxf(before, warp_most(score));
        float weight = score == -INFINITE ? 0.0f : expf(score - now);
        float sum = warp_sum(weight), keep = before == -INFINITE ? 0.0f : expf(before - now);
        *spot = weight;
        sync_warp();
        if (lane == 0) best[row] = now, total[row] = total[row] * keep + sum, shrink[SHRINK_AT(row)] = keep;
        sync_warp();
    }
}

// Places: queries, QUERIES = PLAIN. Grid: x places, y heads.
KERNEL(PLAIN_THREADS) attention_plain(GLOBAL act *out, GLOBAL float *lse, GLOBAL const act *q, GLOBAL const act *k,
                                      GLOBAL const act *v, GLOBAL const TileEntry *places, GLOBAL const Span *spans,
                                      NUMBER(u64) q_stride, NUMBER(u64) k_stride, NUMBER(u64) v_stride,
                                      NUMBER(u32) heads, NUMBER(u32) group, NUMBER(u32) dim, NUMBER(float) scale,
                                      NUMBER(float) cap, NUMBER(u32) window WHERE) {
    FORWARD_TILES(tiles)
    SHARED float best[PLAIN], total[PLAIN], shrink[SHRINK_NUMBERS];
    SHARED u32 query_rows[PLAIN], key_rows[PLAIN];
    Here here = HERE;
    Scoring scoring = {scale, cap, window};
    TileEntry place = place_at(places, here.block.x);
    GLOBAL const Span *path = spans + place.path;
    u32 head = here.block.y, kv_head = head / group;
    Rows queries = {q + head * dim, q_stride, dim, query_rows}, keys = {k + kv_head * dim, k_stride, dim, key_rows};
    Rows values = {v + kv_head * dim, v_stride, dim, key_rows};
    own_rows(query_rows, PLAIN, place.row, place.length, here);
    if (here.index < PLAIN) best[here.index] = -INFINITE, total[here.index] = 0.0f;
    if (here.index < SHRINK_NUMBERS) shrink[here.index] = 0.0f;
    sync_block();
    keep_rows<PLAIN>(tiles.queries, queries, here);
    TileSums<PLAIN> sums = no_sums<PLAIN>();
    u32 begin = first_key(place.first, window) / PLAIN * PLAIN, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN) {
        path_rows(key_rows, PLAIN, path, place.count, start, here);
        sync_block();
        keep_rows<PLAIN>(tiles.keys, keys, here);
        tile_products<PLAIN>(tiles.weights, tiles.queries, queries, tiles.keys, keys, here);
        sync_block();
        keep_rows<PLAIN>(tiles.keys, values, here);
        softmax_rows(tiles.weights, best, total, shrink, place.first, start, scoring, here);
        sync_block();
        shrink_sums(sums, shrink, here);
        mix_rows<PLAIN, false>(sums, tiles.weights, tiles.keys, values, here);
        sync_block();
    }
    if (here.index < place.length) {
        lse[(u64)(place.row + here.index) * heads + head] = best[here.index] + logf(total[here.index]);
    }
    if (here.index < PLAIN) total[here.index] = 1.0f / total[here.index];
    sync_block();
    write_tile<PLAIN>(out + head * dim, sums, tiles.queries, total, place, dim, (u64)heads * dim, here);
}

// delta[token][head] = Σ dout·out. Eight lanes for each. Grid: ⌈tokens · heads / 32⌉ blocks of 256 threads. dout and out are
// [tokens, heads · dim], contiguous; heads of a multiple of 8 on 16 bytes are faster. Serves attention_tensor.cu too.
KERNEL(256) attention_delta(GLOBAL float *delta, GLOBAL const act *dout, GLOBAL const act *out, NUMBER(u32) tokens,
                            NUMBER(u32) heads, NUMBER(u32) dim WHERE) {
    Here here = HERE;
    u64 unit = (u64)here.block.x * (here.threads / 8) + here.index / 8;
    u32 lane = here.index % 8, length = unit < (u64)tokens * heads ? dim : 0;
    GLOBAL const act *seeds = dout + (length > 0 ? unit * dim : 0), *sums = out + (length > 0 ? unit * dim : 0);
    float sum = 0.0f;
    if (dim % 8 == 0 && are_aligned(seeds, sums)) {
        for (u32 at = lane * 8; at < length; at += 64) {
            Numbers<8> seed = load<8>(seeds + at), one = load<8>(sums + at);
            UNROLL for (int i = 0; i < 8; ++i) sum = fmaf(seed.at[i], one.at[i], sum);
        }
    } else {
        for (u32 at = lane; at < length; at += 8) sum = fmaf(get(seeds, at), get(sums, at), sum);
    }
    // All lanes of a warp exchange, those past the last unit too.
    UNROLL for (u32 mask = 1; mask < 8; mask *= 2) sum += shuffle_xor(sum, mask);
    if (lane == 0 && length > 0) delta[unit] = sum;
}

// A tile of scores: queries in rows from `row` on, from position `query` on, and keys from position `key` on.
struct ScoreTile {
    u32 row, query, queries, key, keys;
};

// Weights and slopes of a tile of scores, in place: p = exp(s − lse), ds = p·(dp − delta)·(slope of the cap). 0 where a
// query does not see a key or there is none.
DEVICE void score_slopes(LOCAL float *weights, LOCAL float *slopes, GLOBAL const float *lse, GLOBAL const float *delta,
                         u32 heads, u32 head, ScoreTile tile, Scoring scoring, Here here) {
    sync_block();
    for (u32 at = here.index; at < PLAIN_BACK * PLAIN_BACK; at += PLAIN_THREADS) {
        u32 i = at / PLAIN_BACK, j = at % PLAIN_BACK, spot = i * SCORE_PITCH(PLAIN_BACK) + j;
        float weight = 0.0f, slope = 0.0f;
        if (i < tile.queries && j < tile.keys && sees(tile.query + i, tile.key + j, scoring.window)) {
            u64 line = (u64)(tile.row + i) * heads + head;
            float bend, score = score_of(weights[spot], scoring, bend);
            weight = expf(score - lse[line]);
            slope = weight * (slopes[spot] - delta[line]) * bend;
        }
        weights[spot] = weight, slopes[spot] = slope;
    }
    sync_block();
}

// dq, [tokens, heads · dim] contiguous. Places: queries, QUERIES = PLAIN_BACK. Grid: x places, y heads.
KERNEL(PLAIN_THREADS) attention_plain_dq(GLOBAL act *dq, GLOBAL const act *dout, GLOBAL const act *q,
                                         GLOBAL const act *k, GLOBAL const act *v, GLOBAL const float *lse,
                                         GLOBAL const float *delta, GLOBAL const TileEntry *places,
                                         GLOBAL const Span *spans, NUMBER(u64) q_stride, NUMBER(u64) k_stride,
                                         NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group, NUMBER(u32) dim,
                                         NUMBER(float) scale, NUMBER(float) cap, NUMBER(u32) window WHERE) {
    BACKWARD_TILES(tiles)
    SHARED float factors[PLAIN_BACK];
    SHARED u32 query_rows[PLAIN_BACK], key_rows[PLAIN_BACK];
    Here here = HERE;
    Scoring scoring = {scale, cap, window};
    TileEntry place = place_at(places, here.block.x);
    GLOBAL const Span *path = spans + place.path;
    u32 head = here.block.y, kv_head = head / group;
    u64 stride = (u64)heads * dim;
    Rows queries = {q + head * dim, q_stride, dim, query_rows}, seeds = {dout + head * dim, stride, dim, query_rows};
    Rows keys = {k + kv_head * dim, k_stride, dim, key_rows}, values = {v + kv_head * dim, v_stride, dim, key_rows};
    own_rows(query_rows, PLAIN_BACK, place.row, place.length, here);
    if (here.index < PLAIN_BACK) factors[here.index] = scale;
    sync_block();
    keep_rows<PLAIN_BACK>(tiles.queries, queries, here);
    keep_rows<PLAIN_BACK>(tiles.seeds, seeds, here);
    TileSums<PLAIN_BACK> sums = no_sums<PLAIN_BACK>();
    u32 begin = first_key(place.first, window) / PLAIN_BACK * PLAIN_BACK, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN_BACK) {
        path_rows(key_rows, PLAIN_BACK, path, place.count, start, here);
        sync_block();
        keep_rows<PLAIN_BACK>(tiles.keys, keys, here);
        keep_rows<PLAIN_BACK>(tiles.values, values, here);
        both_products(tiles, queries, seeds, keys, values, here);
        ScoreTile tile = {place.row, place.first, place.length, start, PLAIN_BACK};
        score_slopes(tiles.weights, tiles.slopes, lse, delta, heads, head, tile, scoring, here);
        mix_rows<PLAIN_BACK, false>(sums, tiles.slopes, tiles.keys, keys, here);
        sync_block();
    }
    write_tile<PLAIN_BACK>(dq + head * dim, sums, tiles.queries, factors, place, dim, stride, here);
}

// dk and dv, [tokens, kv_heads · dim] contiguous: the sums over the heads of a group, in order, and over all queries
// that see the keys, those of the own sequence first. Places: keys, KEYS = PLAIN_BACK. Grid: x places, y kv_heads.
KERNEL(PLAIN_THREADS) attention_plain_dkv(GLOBAL act *dk, GLOBAL act *dv, GLOBAL const act *dout, GLOBAL const act *q,
                                          GLOBAL const act *k, GLOBAL const act *v, GLOBAL const float *lse,
                                          GLOBAL const float *delta, GLOBAL const TileEntry *places,
                                          GLOBAL const Span *spans, NUMBER(u64) q_stride, NUMBER(u64) k_stride,
                                          NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group,
                                          NUMBER(u32) dim, NUMBER(float) scale, NUMBER(float) cap,
                                          NUMBER(u32) window WHERE) {
    BACKWARD_TILES(tiles)
    // Twice: dk's, then dv's.
    SHARED float both_factors[2 * PLAIN_BACK];
    SHARED u32 query_rows[PLAIN_BACK], key_rows[PLAIN_BACK];
    Here here = HERE;
    Scoring scoring = {scale, cap, window};
    TileEntry place = place_at(places, here.block.x);
    u32 kv_head = here.block.y;
    u64 stride = (u64)heads * dim, narrow_stride = (u64)(heads / group) * dim;
    Rows keys = {k + kv_head * dim, k_stride, dim, key_rows}, values = {v + kv_head * dim, v_stride, dim, key_rows};
    own_rows(key_rows, PLAIN_BACK, place.row, place.length, here);
    if (here.index < 2 * PLAIN_BACK) both_factors[here.index] = here.index < PLAIN_BACK ? scale : 1.0f;
    sync_block();
    keep_rows<PLAIN_BACK>(tiles.keys, keys, here);
    keep_rows<PLAIN_BACK>(tiles.values, values, here);
    TileSums<PLAIN_BACK> key_sums = no_sums<PLAIN_BACK>(), value_sums = no_sums<PLAIN_BACK>();
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        Rows queries = {q + head * dim, q_stride, dim, query_rows};
        Rows seeds = {dout + head * dim, stride, dim, query_rows};
        for (u32 number = place.path; number < place.path + place.count; ++number) {
            Span span = span_at(spans, number);
            u32 end = span.first + span.length;
            if (window != 0) end = least(end, place.first + place.length - 1 + window);
            for (u32 start = most(span.first, place.first); start < end; start += PLAIN_BACK) {
                u32 length = least(PLAIN_BACK, end - start), row = span.row + (start - span.first);
                own_rows(query_rows, PLAIN_BACK, row, length, here);
                sync_block();
                keep_rows<PLAIN_BACK>(tiles.queries, queries, here);
                keep_rows<PLAIN_BACK>(tiles.seeds, seeds, here);
                both_products(tiles, queries, seeds, keys, values, here);
                ScoreTile tile = {row, start, length, place.first, place.length};
                score_slopes(tiles.weights, tiles.slopes, lse, delta, heads, head, tile, scoring, here);
                mix_rows<PLAIN_BACK, true>(value_sums, tiles.weights, tiles.seeds, seeds, here);
                mix_rows<PLAIN_BACK, true>(key_sums, tiles.slopes, tiles.queries, queries, here);
                sync_block();
            }
        }
    }
    write_tile<PLAIN_BACK>(dk + kv_head * dim, key_sums, tiles.queries, both_factors, place, dim, narrow_stride, here);
    write_tile<PLAIN_BACK>(dv + kv_head * dim, value_sums, tiles.queries, both_factors + PLAIN_BACK, place, dim,
                           narrow_stride, here);
}
