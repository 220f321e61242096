// Attention in f32 arithmetic on ordinary cores, for any type of activations: for parity with the processor, and for
// head sizes that are no multiple of 8. Agrees with fused/attention.rs and attention/backward.rs.
//
// q and out: [tokens, heads · dim] with rows q_stride (out: heads · dim) apart; k, v: [tokens, kv_heads · dim] with rows
// k_stride, v_stride apart; lse, delta: [tokens, heads] f32. group = heads / kv_heads. Tiles of 32 by 32; of 16 by 16
// in the gradients past 160 features, since those of 32 do not fit into the shared memory of every processor.
// Launch: 256 threads; dynamic shared memory as said (opt in above 48 KiB); grid as said.

#define PLAIN 32
#define PLAIN_BACK (HEAD_DIM <= 160 ? 32 : 16)
#define PLAIN_THREADS 256
#define PLAIN_PITCH (HEAD_DIM + 1)
#define PLAIN_PARTS (HEAD_DIM / 16)
// Numbers of a tile of rows, and of one of scores. Of each 16 rows of a tile a thread has one.
#define PLAIN_ROWS(tile) ((tile) * PLAIN_PITCH)
#define PLAIN_SCORES(tile) ((tile) * ((tile) + 1))
#define PLAIN_OWN(tile) ((tile) / 16)

// Fills a tile of rows, zeros where there is none and past `dim`.
template <int TILE, typename F>
DEVICE void plain_rows(float *to, const act *from, u64 stride, u32 dim, F row) {
    for (u32 at = threadIdx.x; at < TILE * HEAD_DIM; at += PLAIN_THREADS) {
        u32 line = at / HEAD_DIM, column = at % HEAD_DIM, source = row(line);
        to[line * PLAIN_PITCH + column] =
            source != NOWHERE && column < dim ? wide(from[(u64)source * stride + column]) : 0.0f;
    }
}

// to[i][j] = Σ left[i]·right[j].
template <int TILE>
DEVICE void plain_products(float *to, const float *left, const float *right) {
    constexpr int OWN = PLAIN_OWN(TILE);
    u32 y = threadIdx.x / 16 * OWN, x = threadIdx.x % 16 * OWN;
    float sums[OWN][OWN] = {};
    for (u32 at = 0; at < HEAD_DIM; ++at) {
        float l[OWN], r[OWN];
#pragma unroll
        for (int i = 0; i < OWN; ++i) l[i] = left[(y + i) * PLAIN_PITCH + at], r[i] = right[(x + i) * PLAIN_PITCH + at];
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
#pragma unroll
            for (int j = 0; j < OWN; ++j) sums[i][j] = fmaf(l[i], r[j], sums[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
#pragma unroll
        for (int j = 0; j < OWN; ++j) to[(y + i) * (TILE + 1) + x + j] = sums[i][j];
    }
}

// sums[row] += Σ weights[row][i]·rows[i]; a thread has its rows and every sixteenth feature. `across_rows` takes
// weights[i][row] instead.
template <int TILE, bool across_rows>
DEVICE void plain_mix(float (&sums)[PLAIN_OWN(TILE)][PLAIN_PARTS], const float *weights, const float *rows) {
    constexpr int OWN = PLAIN_OWN(TILE);
    u32 y = threadIdx.x / 16 * OWN, x = threadIdx.x % 16;
    for (u32 at = 0; at < TILE; ++at) {
        float own[OWN];
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            own[i] = across_rows ? weights[at * (TILE + 1) + y + i] : weights[(y + i) * (TILE + 1) + at];
        }
#pragma unroll
        for (int part = 0; part < PLAIN_PARTS; ++part) {
            float number = rows[at * PLAIN_PITCH + x + 16 * part];
#pragma unroll
            for (int i = 0; i < OWN; ++i) sums[i][part] = fmaf(own[i], number, sums[i][part]);
        }
    }
}

// Writes a thread's rows of sums, times a factor each, at `row` + the row's place in the tile.
template <int TILE>
DEVICE void plain_write(act *to, const float (&sums)[PLAIN_OWN(TILE)][PLAIN_PARTS], u32 length, u32 dim, u64 stride,
                        u32 row, const float (&factors)[PLAIN_OWN(TILE)]) {
    constexpr int OWN = PLAIN_OWN(TILE);
    u32 y = threadIdx.x / 16 * OWN, x = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        if (y + i >= length) continue;
#pragma unroll
        for (int part = 0; part < PLAIN_PARTS; ++part) {
            u32 column = x + 16 * part;
            if (column < dim) to[(u64)(row + y + i) * stride + column] = narrow<act>(sums[i][part] * factors[i]);
        }
    }
}

// The same with one factor for all.
template <int TILE>
DEVICE void plain_write(act *to, const float (&sums)[PLAIN_OWN(TILE)][PLAIN_PARTS], u32 length, u32 dim, u64 stride,
                        u32 row, float factor) {
    float factors[PLAIN_OWN(TILE)];
#pragma unroll
    for (int i = 0; i < PLAIN_OWN(TILE); ++i) factors[i] = factor;
    plain_write<TILE>(to, sums, length, dim, stride, row, factors);
}

DEVICE float plain_bent(float product, Scoring scoring, float &slope) {
    float score = product * scoring.scale;
    slope = 1.0f;
    if (scoring.cap != 0.0f) {
        float curve = tanhf(score / scoring.cap);
        slope = 1.0f - curve * curve;
        score = scoring.cap * curve;
    }
    return score;
}

// Places: queries, QUERIES = 32. Grid: x places, y heads. Dynamic shared memory: 4·(2·32·(HEAD_DIM+1) + 32·33 + 96).
KERNEL void attention_plain(act *out, float *lse, const act *q, const act *k, const act *v, const TileEntry *places,
                            const Span *spans, u64 q_stride, u64 k_stride, u64 v_stride, u32 heads, u32 group,
                            u32 dim, float scale, float cap, u32 window) {
    SHARED_BYTES(shared);
    float *queries = (float *)shared, *keys = queries + PLAIN_ROWS(PLAIN), *scores = keys + PLAIN_ROWS(PLAIN);
    float *best = scores + PLAIN_SCORES(PLAIN), *total = best + PLAIN, *shrink = total + PLAIN;
    Scoring scoring = {scale, cap, window};
    TileEntry place = places[blockIdx.x];
    const Span *path = spans + place.path;
    u32 head = blockIdx.y, kv_head = head / group, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    plain_rows<PLAIN>(queries, q + head * dim, q_stride, dim,
                      [&](u32 line) { return line < place.length ? place.row + line : NOWHERE; });
    if (threadIdx.x < PLAIN) best[threadIdx.x] = -INFINITE, total[threadIdx.x] = 0.0f;
    float sums[PLAIN_OWN(PLAIN)][PLAIN_PARTS] = {};
    u32 begin = first_key(place.first, window) / PLAIN * PLAIN, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN) {
        u32 hint = 0;
        plain_rows<PLAIN>(keys, k + kv_head * dim, k_stride, dim,
                          [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        meet_block();
        plain_products<PLAIN>(scores, queries, keys);
        meet_block();
        hint = 0;
        plain_rows<PLAIN>(keys, v + kv_head * dim, v_stride, dim,
                          [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        for (u32 row = warp * 4; row < warp * 4 + 4; ++row) {
            float slope, score = plain_bent(scores[row * (PLAIN + 1) + lane], scoring, slope);
            if (!sees(place.first + row, start + lane, window)) score = -INFINITE;
            float high = score;
#pragma unroll
            for (int mask = WARP / 2; mask > 0; mask /= 2) high = fmaxf(high, across(high, mask));
            float before = best[row], now = fmaxf(before, high);
            float weight = score == -INFINITE ? 0.0f : expf(score - now);
            float sum = warp_sum(weight), keep = before == -INFINITE ? 0.0f : expf(before - now);
            scores[row * (PLAIN + 1) + lane] = weight;
            meet_warp();
            if (lane == 0) best[row] = now, shrink[row] = keep, total[row] = total[row] * keep + sum;
            meet_warp();
        }
        meet_block();
        u32 y = threadIdx.x / 16 * 2;
#pragma unroll
        for (int part = 0; part < PLAIN_PARTS; ++part) sums[0][part] *= shrink[y], sums[1][part] *= shrink[y + 1];
        plain_mix<PLAIN, false>(sums, scores, keys);
        meet_block();
    }
    u32 y = threadIdx.x / 16 * 2;
    float factors[] = {1.0f / total[y], 1.0f / total[y + 1]};
    plain_write<PLAIN>(out + head * dim, sums, place.length, dim, (u64)heads * dim, place.row, factors);
    if (threadIdx.x < place.length) {
        u64 row = place.row + threadIdx.x;
        lse[row * heads + head] = best[threadIdx.x] + logf(total[threadIdx.x]);
    }
}

// delta[token][head] = Σ dout·out. A warp for each. Grid: ⌈tokens · heads / 8⌉ blocks of 256 threads. dout and out are
// [tokens, heads · dim], contiguous. Serves attention_tensor.cu too.
KERNEL void attention_delta(float *delta, const act *dout, const act *out, u32 tokens, u32 heads, u32 dim) {
    u64 unit = (u64)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (unit >= (u64)tokens * heads) return;
    const act *seeds = dout + unit * dim, *results = out + unit * dim;
    float sum = 0.0f;
    for (u32 at = threadIdx.x % WARP; at < dim; at += WARP) sum = fmaf(wide(seeds[at]), wide(results[at]), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) delta[unit] = sum;
}

// Weights and slopes of a tile of scores, in place: p = exp(s − lse), ds = p·(dp − delta)·(slope of the cap). Row i of
// the tile is query `query` + i in row `row` + i, of which there are `queries`; column j is key `key` + j of `keys`.
DEVICE void plain_slopes(float *weights, float *slopes, const float *lse, const float *delta, u32 heads, u32 head,
                         u32 row, u32 query, u32 queries, u32 key, u32 keys, Scoring scoring) {
    for (u32 at = threadIdx.x; at < PLAIN_BACK * PLAIN_BACK; at += PLAIN_THREADS) {
        u32 i = at / PLAIN_BACK, j = at % PLAIN_BACK, spot = i * (PLAIN_BACK + 1) + j;
        float weight = 0.0f, slope = 0.0f;
        if (i < queries && j < keys && sees(query + i, key + j, scoring.window)) {
            u64 line = (u64)(row + i) * heads + head;
            float bend, score = plain_bent(weights[spot], scoring, bend);
            weight = expf(score - lse[line]);
            slope = weight * (slopes[spot] - delta[line]) * bend;
        }
        weights[spot] = weight, slopes[spot] = slope;
    }
}

// dq, [tokens, heads · dim] contiguous. Places: queries, QUERIES = T = PLAIN_BACK. Grid: x places, y heads. Dynamic
// shared memory: 4·(4·T·(HEAD_DIM+1) + 2·T·(T+1)).
KERNEL void attention_plain_dq(act *dq, const act *dout, const act *q, const act *k, const act *v, const float *lse,
                               const float *delta, const TileEntry *places, const Span *spans, u64 q_stride,
                               u64 k_stride, u64 v_stride, u32 heads, u32 group, u32 dim, float scale, float cap,
                               u32 window) {
    SHARED_BYTES(shared);
    constexpr u32 tile = PLAIN_ROWS(PLAIN_BACK);
    float *queries = (float *)shared, *seeds = queries + tile, *keys = seeds + tile;
    float *values = keys + tile, *weights = values + tile, *slopes = weights + PLAIN_SCORES(PLAIN_BACK);
    Scoring scoring = {scale, cap, window};
    TileEntry place = places[blockIdx.x];
    const Span *path = spans + place.path;
    u32 head = blockIdx.y, kv_head = head / group;
    auto own = [&](u32 line) { return line < place.length ? place.row + line : NOWHERE; };
    plain_rows<PLAIN_BACK>(queries, q + head * dim, q_stride, dim, own);
    plain_rows<PLAIN_BACK>(seeds, dout + head * dim, (u64)heads * dim, dim, own);
    float sums[PLAIN_OWN(PLAIN_BACK)][PLAIN_PARTS] = {};
    u32 begin = first_key(place.first, window) / PLAIN_BACK * PLAIN_BACK, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN_BACK) {
        u32 hint = 0;
        plain_rows<PLAIN_BACK>(keys, k + kv_head * dim, k_stride, dim,
                               [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        hint = 0;
        plain_rows<PLAIN_BACK>(values, v + kv_head * dim, v_stride, dim,
                               [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        meet_block();
        plain_products<PLAIN_BACK>(weights, queries, keys);
        plain_products<PLAIN_BACK>(slopes, seeds, values);
        meet_block();
        plain_slopes(weights, slopes, lse, delta, heads, head, place.row, place.first, place.length, start, PLAIN_BACK,
                     scoring);
        meet_block();
        plain_mix<PLAIN_BACK, false>(sums, slopes, keys);
        meet_block();
    }
    plain_write<PLAIN_BACK>(dq + head * dim, sums, place.length, dim, (u64)heads * dim, place.row, scale);
}

// dk and dv, [tokens, kv_heads · dim] contiguous: the sums over the heads of a group, in order, and over all queries
// that see the keys, those of the own sequence first. Places: keys, KEYS = PLAIN_BACK. Grid: x places, y kv_heads.
// Dynamic shared memory as attention_plain_dq.
KERNEL void attention_plain_dkv(act *dk, act *dv, const act *dout, const act *q, const act *k, const act *v,
                                const float *lse, const float *delta, const TileEntry *places, const Span *spans,
                                u64 q_stride, u64 k_stride, u64 v_stride, u32 heads, u32 group, u32 dim, float scale,
                                float cap, u32 window) {
    SHARED_BYTES(shared);
    constexpr u32 tile = PLAIN_ROWS(PLAIN_BACK);
    float *queries = (float *)shared, *seeds = queries + tile, *keys = seeds + tile;
    float *values = keys + tile, *weights = values + tile, *slopes = weights + PLAIN_SCORES(PLAIN_BACK);
    Scoring scoring = {scale, cap, window};
    TileEntry place = places[blockIdx.x];
    u32 kv_head = blockIdx.y, kv_heads = heads / group;
    auto own = [&](u32 line) { return line < place.length ? place.row + line : NOWHERE; };
    plain_rows<PLAIN_BACK>(keys, k + kv_head * dim, k_stride, dim, own);
    plain_rows<PLAIN_BACK>(values, v + kv_head * dim, v_stride, dim, own);
    float key_sums[PLAIN_OWN(PLAIN_BACK)][PLAIN_PARTS] = {}, value_sums[PLAIN_OWN(PLAIN_BACK)][PLAIN_PARTS] = {};
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (u32 number = place.path; number < place.path + place.count; ++number) {
            Span span = spans[number];
            u32 end = span.first + span.length;
            if (window != 0) end = least(end, place.first + place.length - 1 + window);
            for (u32 start = most(span.first, place.first); start < end; start += PLAIN_BACK) {
                u32 length = least(PLAIN_BACK, end - start), row = span.row + (start - span.first);
                auto line_of = [&](u32 line) { return line < length ? row + line : NOWHERE; };
                meet_block();
                plain_rows<PLAIN_BACK>(queries, q + head * dim, q_stride, dim, line_of);
                plain_rows<PLAIN_BACK>(seeds, dout + head * dim, (u64)heads * dim, dim, line_of);
                meet_block();
                plain_products<PLAIN_BACK>(weights, queries, keys);
                plain_products<PLAIN_BACK>(slopes, seeds, values);
                meet_block();
                plain_slopes(weights, slopes, lse, delta, heads, head, row, start, length, place.first, place.length,
                             scoring);
                meet_block();
                plain_mix<PLAIN_BACK, true>(value_sums, weights, seeds);
                plain_mix<PLAIN_BACK, true>(key_sums, slopes, queries);
            }
        }
    }
    plain_write<PLAIN_BACK>(dk + kv_head * dim, key_sums, place.length, dim, (u64)kv_heads * dim, place.row, scale);
    plain_write<PLAIN_BACK>(dv + kv_head * dim, value_sums, place.length, dim, (u64)kv_heads * dim, place.row, 1.0f);
}
