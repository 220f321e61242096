// Attention in f32 arithmetic on ordinary cores, for any type of activations: for parity with the processor, and for
// head sizes that are no multiple of 8. Agrees with fused/attention.rs and attention/backward.rs.
//
// q and out: [tokens, heads · dim] with rows q_stride (out: heads · dim) apart; k, v: [tokens, kv_heads · dim] with rows
// k_stride, v_stride apart; lse, delta: [tokens, heads] f32. group = heads / kv_heads. Tiles of 32 by 32.
// Launch: 256 threads; dynamic shared memory as said (opt in above 48 KiB); grid as said.

#define PLAIN 32
#define PLAIN_THREADS 256
#define PLAIN_PITCH (HEAD_DIM + 1)
#define PLAIN_PARTS (HEAD_DIM / 16)
#define PLAIN_ROWS (PLAIN * PLAIN_PITCH)
#define PLAIN_SCORES (PLAIN * (PLAIN + 1))

// Fills a tile of rows, zeros where there is none and past `dim`.
template <typename F>
DEVICE void plain_rows(float *to, const act *from, u64 stride, u32 dim, F row) {
    for (u32 at = threadIdx.x; at < PLAIN * HEAD_DIM; at += PLAIN_THREADS) {
        u32 line = at / HEAD_DIM, column = at % HEAD_DIM, source = row(line);
        to[line * PLAIN_PITCH + column] =
            source != NOWHERE && column < dim ? wide(from[(u64)source * stride + column]) : 0.0f;
    }
}

// to[i][j] = Σ left[i]·right[j].
DEVICE void plain_products(float *to, const float *left, const float *right) {
    u32 y = threadIdx.x / 16 * 2, x = threadIdx.x % 16 * 2;
    float sums[2][2] = {};
    for (u32 at = 0; at < HEAD_DIM; ++at) {
        float l0 = left[y * PLAIN_PITCH + at], l1 = left[(y + 1) * PLAIN_PITCH + at];
        float r0 = right[x * PLAIN_PITCH + at], r1 = right[(x + 1) * PLAIN_PITCH + at];
        sums[0][0] = fmaf(l0, r0, sums[0][0]), sums[0][1] = fmaf(l0, r1, sums[0][1]);
        sums[1][0] = fmaf(l1, r0, sums[1][0]), sums[1][1] = fmaf(l1, r1, sums[1][1]);
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) to[(y + i) * (PLAIN + 1) + x + j] = sums[i][j];
    }
}

// sums[row] += Σ weights[row][i]·rows[i]; a thread has two rows and every sixteenth feature. `across_rows` takes
// weights[i][row] instead.
template <bool across_rows>
DEVICE void plain_mix(float (&sums)[2][PLAIN_PARTS], const float *weights, const float *rows) {
    u32 y = threadIdx.x / 16 * 2, x = threadIdx.x % 16;
    for (u32 at = 0; at < PLAIN; ++at) {
        float first = across_rows ? weights[at * (PLAIN + 1) + y] : weights[y * (PLAIN + 1) + at];
        float second = across_rows ? weights[at * (PLAIN + 1) + y + 1] : weights[(y + 1) * (PLAIN + 1) + at];
#pragma unroll
        for (int part = 0; part < PLAIN_PARTS; ++part) {
            float number = rows[at * PLAIN_PITCH + x + 16 * part];
            sums[0][part] = fmaf(first, number, sums[0][part]);
            sums[1][part] = fmaf(second, number, sums[1][part]);
        }
    }
}

// Writes two rows of sums, times a factor each, at `row` + the row's place in the tile.
DEVICE void plain_write(act *to, const float (&sums)[2][PLAIN_PARTS], u32 length, u32 dim, u64 stride, u32 row,
                        float factor0, float factor1) {
    u32 y = threadIdx.x / 16 * 2, x = threadIdx.x % 16;
    for (int i = 0; i < 2; ++i) {
        if (y + i >= length) continue;
#pragma unroll
        for (int part = 0; part < PLAIN_PARTS; ++part) {
            u32 column = x + 16 * part;
            if (column < dim) to[(u64)(row + y + i) * stride + column] = narrow<act>(sums[i][part] * (i ? factor1 : factor0));
        }
    }
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
KERNEL void attention_plain(act *out, float *lse, const act *q, const act *k, const act *v, const Place *places,
                            const Stretch *stretches, u64 q_stride, u64 k_stride, u64 v_stride, u32 heads, u32 group,
                            u32 dim, float scale, float cap, u32 window) {
    SHARED_BYTES(shared);
    float *queries = (float *)shared, *keys = queries + PLAIN_ROWS, *scores = keys + PLAIN_ROWS;
    float *best = scores + PLAIN_SCORES, *total = best + PLAIN, *shrink = total + PLAIN;
    Scoring scoring = {scale, cap, window};
    Place place = places[blockIdx.x];
    const Stretch *path = stretches + place.path;
    u32 head = blockIdx.y, kv_head = head / group, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    plain_rows(queries, q + head * dim, q_stride, dim,
               [&](u32 line) { return line < place.length ? place.row + line : NOWHERE; });
    if (threadIdx.x < PLAIN) best[threadIdx.x] = -INFINITE, total[threadIdx.x] = 0.0f;
    float sums[2][PLAIN_PARTS] = {};
    u32 begin = first_key(place.first, window) / PLAIN * PLAIN, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN) {
        u32 hint = 0;
        plain_rows(keys, k + kv_head * dim, k_stride, dim,
                   [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        meet_block();
        plain_products(scores, queries, keys);
        meet_block();
        hint = 0;
        plain_rows(keys, v + kv_head * dim, v_stride, dim,
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
        plain_mix<false>(sums, scores, keys);
        meet_block();
    }
    u32 y = threadIdx.x / 16 * 2;
    plain_write(out + head * dim, sums, place.length, dim, (u64)heads * dim, place.row, 1.0f / total[y],
                1.0f / total[y + 1]);
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
    for (u32 at = threadIdx.x; at < PLAIN * PLAIN; at += PLAIN_THREADS) {
        u32 i = at / PLAIN, j = at % PLAIN, spot = i * (PLAIN + 1) + j;
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

// dq, [tokens, heads · dim] contiguous. Places: queries, QUERIES = 32. Grid: x places, y heads. Dynamic shared memory:
// 4·(4·32·(HEAD_DIM+1) + 2·32·33).
KERNEL void attention_plain_dq(act *dq, const act *dout, const act *q, const act *k, const act *v, const float *lse,
                               const float *delta, const Place *places, const Stretch *stretches, u64 q_stride,
                               u64 k_stride, u64 v_stride, u32 heads, u32 group, u32 dim, float scale, float cap,
                               u32 window) {
    SHARED_BYTES(shared);
    float *queries = (float *)shared, *seeds = queries + PLAIN_ROWS, *keys = seeds + PLAIN_ROWS;
    float *values = keys + PLAIN_ROWS, *weights = values + PLAIN_ROWS, *slopes = weights + PLAIN_SCORES;
    Scoring scoring = {scale, cap, window};
    Place place = places[blockIdx.x];
    const Stretch *path = stretches + place.path;
    u32 head = blockIdx.y, kv_head = head / group;
    auto own = [&](u32 line) { return line < place.length ? place.row + line : NOWHERE; };
    plain_rows(queries, q + head * dim, q_stride, dim, own);
    plain_rows(seeds, dout + head * dim, (u64)heads * dim, dim, own);
    float sums[2][PLAIN_PARTS] = {};
    u32 begin = first_key(place.first, window) / PLAIN * PLAIN, end = place.first + place.length;
    for (u32 start = begin; start < end; start += PLAIN) {
        u32 hint = 0;
        plain_rows(keys, k + kv_head * dim, k_stride, dim,
                   [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        hint = 0;
        plain_rows(values, v + kv_head * dim, v_stride, dim,
                   [&](u32 line) { return row_of(path, place.count, hint, start + line); });
        meet_block();
        plain_products(weights, queries, keys);
        plain_products(slopes, seeds, values);
        meet_block();
        plain_slopes(weights, slopes, lse, delta, heads, head, place.row, place.first, place.length, start, PLAIN,
                     scoring);
        meet_block();
        plain_mix<false>(sums, slopes, keys);
        meet_block();
    }
    plain_write(dq + head * dim, sums, place.length, dim, (u64)heads * dim, place.row, scale, scale);
}

// dk and dv, [tokens, kv_heads · dim] contiguous: the sums over the heads of a group, in order, and over all queries
// that see the keys, those of the own sequence first. Places: keys, KEYS = 32. Grid: x places, y kv_heads. Dynamic
// shared memory as attention_plain_dq.
KERNEL void attention_plain_dkv(act *dk, act *dv, const act *dout, const act *q, const act *k, const act *v,
                                const float *lse, const float *delta, const Place *places, const Stretch *stretches,
                                u64 q_stride, u64 k_stride, u64 v_stride, u32 heads, u32 group, u32 dim, float scale,
                                float cap, u32 window) {
    SHARED_BYTES(shared);
    float *queries = (float *)shared, *seeds = queries + PLAIN_ROWS, *keys = seeds + PLAIN_ROWS;
    float *values = keys + PLAIN_ROWS, *weights = values + PLAIN_ROWS, *slopes = weights + PLAIN_SCORES;
    Scoring scoring = {scale, cap, window};
    Place place = places[blockIdx.x];
    u32 kv_head = blockIdx.y, kv_heads = heads / group;
    auto own = [&](u32 line) { return line < place.length ? place.row + line : NOWHERE; };
    plain_rows(keys, k + kv_head * dim, k_stride, dim, own);
    plain_rows(values, v + kv_head * dim, v_stride, dim, own);
    float key_sums[2][PLAIN_PARTS] = {}, value_sums[2][PLAIN_PARTS] = {};
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (u32 number = place.path; number < place.path + place.count; ++number) {
            Stretch stretch = stretches[number];
            u32 end = stretch.first + stretch.length;
            if (window != 0) end = least(end, place.first + place.length - 1 + window);
            for (u32 start = most(stretch.first, place.first); start < end; start += PLAIN) {
                u32 length = least(PLAIN, end - start), row = stretch.row + (start - stretch.first);
                auto line_of = [&](u32 line) { return line < length ? row + line : NOWHERE; };
                meet_block();
                plain_rows(queries, q + head * dim, q_stride, dim, line_of);
                plain_rows(seeds, dout + head * dim, (u64)heads * dim, dim, line_of);
                meet_block();
                plain_products(weights, queries, keys);
                plain_products(slopes, seeds, values);
                meet_block();
                plain_slopes(weights, slopes, lse, delta, heads, head, row, start, length, place.first, place.length,
                             scoring);
                meet_block();
                plain_mix<true>(value_sums, weights, seeds);
                plain_mix<true>(key_sums, slopes, queries);
            }
        }
    }
    plain_write(dk + kv_head * dim, key_sums, place.length, dim, (u64)kv_heads * dim, place.row, scale, scale);
    plain_write(dv + kv_head * dim, value_sums, place.length, dim, (u64)kv_heads * dim, place.row, 1.0f, 1.0f);
}
