// Attention of one new token a sequence to the keys and values kept so far, and what keeps them. Agrees with
// fused/attention/cached.rs.
//
// Keys and values of a layer lie in rows of kv_heads · dim numbers, `page` rows to a page. Token t of sequence b is row
// t % page of page pages[b][t / page]; with `pages` null a sequence has pages_of pages in a row: the cache is then
// [batch, pages_of · page, kv_heads · dim]. Sequences that begin alike may share whole pages.
//
// A sequence is cut into chunks of CHUNK tokens at fixed places, a block each, whose parts are merged in order: a result
// does not depend on the others in the batch. One module a HEAD_DIM (as attention.cuh) and GROUP = heads / kv_heads.

#ifndef GROUP
#define GROUP 1
#endif

#define CHUNK 256
#define CACHED_THREADS 128

// Query heads of a block: the largest divisor of GROUP that is at most 8.
__device__ constexpr int divisor_of(int group, int most) {
    return group % most == 0 ? most : divisor_of(group, most - 1);
}
constexpr int TOGETHER = divisor_of(GROUP, GROUP < 8 ? GROUP : 8);

// Lanes that share a key, eight features each, and keys that a block meets at once.
#define KEY_LANES (HEAD_DIM <= 64 ? 8 : HEAD_DIM <= 128 ? 16 : 32)
#define KEYS_AT_ONCE (CACHED_THREADS / KEY_LANES)

DEVICE u64 cached_row(const u32 *pages, u32 pages_of, u32 page, u32 sequence, u32 token) {
    u64 number = pages ? pages[(u64)sequence * pages_of + token / page] : (u64)sequence * pages_of + token / page;
    return number * page + token % page;
}

// Eight features of a row; zeros past `dim`.
DEVICE void eight_features(float (&into)[8], const act *row, u32 column, u32 dim) {
    if (column + 8 <= dim && even(row + column)) {
        load(into, row + column);
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) into[i] = column + i < dim ? wide(row[column + i]) : 0.0f;
    }
}

// mixes [batch, heads, chunks, dim] and levels [batch, heads, chunks, 2]: for each chunk Σ e·value, the largest score
// and Σ e, relative to it; f32. Chunks that no query sees are not written. q: [batch, heads · dim]; lengths: [batch],
// tokens of each sequence, the new one's own among them. Grid: x chunks = ⌈longest possible / 256⌉, y kv_heads · GROUP /
// TOGETHER, z batch. 128 threads, no dynamic shared memory (16 KiB static at head size 256).
KERNEL __launch_bounds__(CACHED_THREADS) void attention_cached(float *mixes, float *levels, const act *q,
                                                               const act *keys, const act *values, const u32 *pages,
                                                               const u32 *lengths, u32 pages_of, u32 page, u32 kv_heads,
                                                               u32 dim, float scale, float cap, u32 window) {
    __shared__ float queries[TOGETHER * HEAD_DIM], scores[TOGETHER][CHUNK];
    u32 sequence = blockIdx.z, length = lengths[sequence], chunk = blockIdx.x, chunks = gridDim.x;
    u32 begin = first_key(length - 1, window), start = chunk * CHUNK;
    if (start >= length || start + CHUNK <= begin) return;
    u32 parts = GROUP / TOGETHER, kv_head = blockIdx.y / parts;
    u32 heads = kv_heads * GROUP, head = kv_head * GROUP + blockIdx.y % parts * TOGETHER;
    u32 thread = threadIdx.x, slot = thread / KEY_LANES, column = thread % KEY_LANES * 8;
    u64 stride = (u64)kv_heads * dim;
    for (u32 at = thread; at < TOGETHER * HEAD_DIM; at += CACHED_THREADS) {
        u32 own = at / HEAD_DIM, feature = at % HEAD_DIM;
        queries[at] = feature < dim ? wide(q[((u64)sequence * heads + head + own) * dim + feature]) : 0.0f;
    }
    meet_block();

    for (u32 at = slot; at < CHUNK; at += KEYS_AT_ONCE) {
        u32 token = start + at;
        bool seen = token >= begin && token < length;
        float numbers[8] = {};
        if (seen && column < HEAD_DIM) {
            const act *row = keys + cached_row(pages, pages_of, page, sequence, token) * stride + kv_head * dim;
            eight_features(numbers, row, column, dim);
        }
#pragma unroll
        for (int own = 0; own < TOGETHER; ++own) {
            float sum = 0.0f;
            if (column < HEAD_DIM) {
#pragma unroll
                for (int i = 0; i < 8; ++i) sum = fmaf(queries[own * HEAD_DIM + column + i], numbers[i], sum);
            }
#pragma unroll
            for (int mask = KEY_LANES / 2; mask > 0; mask /= 2) sum += across(sum, mask);
            if (column == 0) {
                float score = sum * scale;
                if (cap != 0.0f) score = cap * tanhf(score / cap);
                scores[own][at] = seen ? score : -INFINITE;
            }
        }
    }
    meet_block();

    for (u32 own = thread / WARP; own < TOGETHER; own += CACHED_THREADS / WARP) {
        float high = -INFINITE, sum = 0.0f;
        for (u32 at = thread % WARP; at < CHUNK; at += WARP) high = fmaxf(high, scores[own][at]);
#pragma unroll
        for (int mask = WARP / 2; mask > 0; mask /= 2) high = fmaxf(high, across(high, mask));
        for (u32 at = thread % WARP; at < CHUNK; at += WARP) {
            float weight = expf(scores[own][at] - high);
            scores[own][at] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        if (thread % WARP == 0) {
            float *level = levels + (((u64)sequence * heads + head + own) * chunks + chunk) * 2;
            level[0] = high, level[1] = sum;
        }
    }
    meet_block();

    float sums[TOGETHER][8] = {};
    for (u32 at = slot; at < CHUNK; at += KEYS_AT_ONCE) {
        u32 token = start + at;
        if (token < begin || token >= length || column >= HEAD_DIM) continue;
        float numbers[8];
        const act *row = values + cached_row(pages, pages_of, page, sequence, token) * stride + kv_head * dim;
        eight_features(numbers, row, column, dim);
#pragma unroll
        for (int own = 0; own < TOGETHER; ++own) {
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[own][i] = fmaf(scores[own][at], numbers[i], sums[own][i]);
        }
    }
#pragma unroll
    for (int own = 0; own < TOGETHER; ++own) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
            for (int mask = KEY_LANES; mask < WARP; mask *= 2) sums[own][i] += across(sums[own][i], mask);
        }
    }
    // Warp after warp, into what held the queries.
    for (u32 warp = 0; warp < CACHED_THREADS / WARP; ++warp) {
        if (thread / WARP == warp && thread % WARP < KEY_LANES && column < HEAD_DIM) {
#pragma unroll
            for (int own = 0; own < TOGETHER; ++own) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float *spot = queries + own * HEAD_DIM + column + i;
                    *spot = warp == 0 ? sums[own][i] : *spot + sums[own][i];
                }
            }
        }
        meet_block();
    }
    for (u32 at = thread; at < TOGETHER * HEAD_DIM; at += CACHED_THREADS) {
        u32 own = at / HEAD_DIM, feature = at % HEAD_DIM;
        if (feature < dim) {
            mixes[(((u64)sequence * heads + head + own) * chunks + chunk) * dim + feature] = queries[at];
        }
    }
}

// out, [batch, heads · dim], from the parts of the chunks, in their order. Grid: x heads, y batch; 128 threads.
KERNEL void attention_cached_merge(act *out, const float *mixes, const float *levels, const u32 *lengths, u32 dim,
                                   u32 chunks, u32 window) {
    u32 head = blockIdx.x, heads = gridDim.x, sequence = blockIdx.y, length = lengths[sequence];
    u32 first = first_key(length - 1, window) / CHUNK, end = divided_up(length, CHUNK);
    u64 unit = (u64)sequence * heads + head;
    const float *level = levels + unit * chunks * 2, *mix = mixes + unit * chunks * dim;
    float high = -INFINITE, total = 0.0f;
    for (u32 chunk = first; chunk < end; ++chunk) high = fmaxf(high, level[2 * chunk]);
    for (u32 chunk = first; chunk < end; ++chunk) {
        total = fmaf(expf(level[2 * chunk] - high), level[2 * chunk + 1], total);
    }
    for (u32 feature = threadIdx.x; feature < dim; feature += blockDim.x) {
        float sum = 0.0f;
        for (u32 chunk = first; chunk < end; ++chunk) {
            sum = fmaf(expf(level[2 * chunk] - high), mix[(u64)chunk * dim + feature], sum);
        }
        out[unit * dim + feature] = narrow<act>(sum / total);
    }
}

// Puts keys and values of some tokens into the cache: row i of k and v (k_stride, v_stride apart, `width` = kv_heads ·
// dim numbers) becomes token tokens[i] of sequence sequences[i]; tokens null means the last of its sequence by
// `lengths`, sequences null means i. What lies past a sequence's pages is a fault and is not written. Grid: x rows;
// 128 threads.
KERNEL void cache_append(act *keys, act *values, const act *k, const act *v, const u32 *sequences, const u32 *tokens,
                         const u32 *lengths, const u32 *pages, u32 pages_of, u32 page, u32 width, u64 k_stride,
                         u64 v_stride, u64 *word, u32 place) {
    u32 row = blockIdx.x, sequence = sequences ? sequences[row] : row;
    u32 token = tokens ? tokens[row] : lengths[sequence] - 1;
    if (token / page >= pages_of) {
        if (threadIdx.x == 0) fault(word, place, token);
        return;
    }
    u64 to = cached_row(pages, pages_of, page, sequence, token) * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        keys[to + at] = k[row * k_stride + at];
        values[to + at] = v[row * v_stride + at];
    }
}
