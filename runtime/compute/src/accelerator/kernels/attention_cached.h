// Attention of one new token a sequence to the keys and values kept so far, and what keeps them. Agrees with
// fused/attention/cached.rs.
//
// Keys and values of a layer lie in rows of kv_heads · dim numbers, `page` rows to a page. Token t of sequence b is row
// t % page of page pages[b][t / page]; with `pages` null a sequence has pages_of pages in a row: the cache is then
// [batch, pages_of · page, kv_heads · dim]. Sequences that begin alike may share whole pages.
//
// A sequence is cut into chunks of CHUNK tokens at fixed places, a block each, whose parts are merged in order: a result
// does not depend on the others in the batch. One module a HEAD_DIM (as attention.h) and GROUP = heads / kv_heads.

#ifndef GROUP
#define GROUP 1
#endif

#define CHUNK 256u
#define CACHED_THREADS 128u
#define CACHED_WARPS 4u

// Query heads of a block: the largest divisor of GROUP that is at most 8.
#define TOGETHER                                                                                                       \
    (GROUP % 8 == 0   ? 8                                                                                              \
     : GROUP % 7 == 0 ? 7                                                                                              \
     : GROUP % 6 == 0 ? 6                                                                                              \
     : GROUP % 5 == 0 ? 5                                                                                              \
     : GROUP % 4 == 0 ? 4                                                                                              \
     : GROUP % 3 == 0 ? 3                                                                                              \
     : GROUP % 2 == 0 ? 2                                                                                              \
                      : 1)

// Lanes that share a key, eight features each, and keys that a block meets at once.
#define KEY_LANES (HEAD_DIM <= 64 ? 8u : HEAD_DIM <= 128 ? 16u : 32u)
#define KEYS_AT_ONCE (CACHED_THREADS / KEY_LANES)

DEVICE u64 cached_row(GLOBAL const u32 *pages, bool paged, u32 pages_of, u32 page, u32 sequence, u32 token) {
    u64 number = (u64)sequence * pages_of + token / page;
    return (paged ? (u64)pages[number] : number) * page + token % page;
}

// Eight features of a row; zeros past `dim`.
DEVICE Numbers<8> eight_features(GLOBAL const act *row, u32 column, u32 dim) {
    if (column + 8 <= dim && are_aligned(row + column)) return load<8>(row + column);
    Numbers<8> numbers;
    UNROLL for (u32 i = 0; i < 8; ++i) numbers.at[i] = column + i < dim ? get(row, column + i) : 0.0f;
    return numbers;
}

// mixes [batch, heads, chunks, dim] and levels [batch, heads, chunks, 2]: for each chunk Σ e·value, the largest score
// and Σ e, relative to it; f32. Chunks that no query sees are not written. q: [batch, heads · dim]; lengths: [batch],
// tokens of each sequence, the new one's own among them. Grid: x chunks = ⌈longest possible / 256⌉, y kv_heads · GROUP /
// TOGETHER, z batch. 128 threads (16 KiB of the block's memory at head size 256).
KERNEL(CACHED_THREADS) attention_cached(GLOBAL float *mixes, GLOBAL float *levels, GLOBAL const act *q,
                                        GLOBAL const act *keys, GLOBAL const act *values, GLOBAL const u32 *pages,
                                        GLOBAL const u32 *lengths, NUMBER(u32) pages_of, NUMBER(u32) page,
                                        NUMBER(u32) kv_heads, NUMBER(u32) dim, NUMBER(float) scale, NUMBER(float) cap,
                                        NUMBER(u32) window WHERE) {
    SHARED float queries[TOGETHER * HEAD_DIM], scores[TOGETHER * CHUNK];
    Here here = HERE;
    bool paged = THERE(5, pages);
    Scoring scoring = {scale, cap, window};
    u32 sequence = here.block.z, length = lengths[sequence], chunk = here.block.x, chunks = here.blocks.x;
    u32 begin = first_key(length - 1, window), start = chunk * CHUNK;
    if (start >= length || start + CHUNK <= begin) return;
    u32 parts = GROUP / TOGETHER, kv_head = here.block.y / parts;
    u32 heads = kv_heads * GROUP, head = kv_head * GROUP + here.block.y % parts * TOGETHER;
    u32 slot = here.index / KEY_LANES, column = here.index % KEY_LANES * 8;
    u32 warp = here.index / WARP, lane = here.index % WARP;
    u64 stride = (u64)kv_heads * dim;
    for (u32 at = here.index; at < TOGETHER * HEAD_DIM; at += CACHED_THREADS) {
        u32 own = at / HEAD_DIM, feature = at % HEAD_DIM;
        queries[at] = feature < dim ? get(q, ((u64)sequence * heads + head + own) * dim + feature) : 0.0f;
    }
    sync_block();

    for (u32 at = slot; at < CHUNK; at += KEYS_AT_ONCE) {
        u32 token = start + at;
        bool seen = token >= begin && token < length;
        Numbers<8> numbers = {{0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}};
        if (seen && column < HEAD_DIM) {
            u64 row = cached_row(pages, paged, pages_of, page, sequence, token) * stride + kv_head * dim;
            numbers = eight_features(keys + row, column, dim);
        }
        UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
            float sum = 0.0f;
            if (column < HEAD_DIM) {
                LOCAL const float *query = queries + own * HEAD_DIM + column;
                UNROLL for (u32 i = 0; i < 8; ++i) sum = fmaf(query[i], numbers.at[i], sum);
            }
            UNROLL for (u32 mask = KEY_LANES / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
            if (column == 0) {
                float slope, score = score_of(sum, scoring, slope);
                scores[own * CHUNK + at] = seen ? score : -INFINITE;
            }
        }
    }
    sync_block();

    for (u32 own = warp; own < TOGETHER; own += CACHED_WARPS) {
        float high = -INFINITE, sum = 0.0f;
        for (u32 at = lane; at < CHUNK; at += WARP) high = fmaxf(high, scores[own * CHUNK + at]);
        high = warp_most(high);
        for (u32 at = lane; at < CHUNK; at += WARP) {
            float weight = expf(scores[own * CHUNK + at] - high);
            scores[own * CHUNK + at] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            GLOBAL float *level = levels + (((u64)sequence * heads + head + own) * chunks + chunk) * 2;
            level[0] = high, level[1] = sum;
        }
    }
    sync_block();

    float sums[TOGETHER][8];
    UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
        UNROLL for (u32 i = 0; i < 8; ++i) sums[own][i] = 0.0f;
    }
    for (u32 at = slot; at < CHUNK; at += KEYS_AT_ONCE) {
        u32 token = start + at;
        if (token < begin || token >= length || column >= HEAD_DIM) continue;
        u64 row = cached_row(pages, paged, pages_of, page, sequence, token) * stride + kv_head * dim;
        Numbers<8> numbers = eight_features(values + row, column, dim);
        UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
            float weight = scores[own * CHUNK + at];
            UNROLL for (u32 i = 0; i < 8; ++i) sums[own][i] = fmaf(weight, numbers.at[i], sums[own][i]);
        }
    }
    UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
        UNROLL for (u32 i = 0; i < 8; ++i) {
            UNROLL for (u32 mask = KEY_LANES; mask < WARP; mask *= 2) sums[own][i] += shuffle_xor(sums[own][i], mask);
        }
    }
    // Warp after warp, into what held the queries.
    for (u32 turn = 0; turn < CACHED_WARPS; ++turn) {
        if (warp == turn && lane < KEY_LANES && column < HEAD_DIM) {
            UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
                UNROLL for (u32 i = 0; i < 8; ++i) {
                    u32 spot = own * HEAD_DIM + column + i;
                    queries[spot] = turn == 0 ? sums[own][i] : queries[spot] + sums[own][i];
                }
            }
        }
        sync_block();
    }
    for (u32 at = here.index; at < TOGETHER * HEAD_DIM; at += CACHED_THREADS) {
        u32 own = at / HEAD_DIM, feature = at % HEAD_DIM;
        if (feature < dim) {
            mixes[(((u64)sequence * heads + head + own) * chunks + chunk) * dim + feature] = queries[at];
        }
    }
}

// out, [batch, heads · dim], from the parts of the chunks, in their order. Grid: x heads, y batch; 128 threads.
KERNEL(CACHED_THREADS) attention_cached_merge(GLOBAL act *out, GLOBAL const float *mixes, GLOBAL const float *levels,
                                              GLOBAL const u32 *lengths, NUMBER(u32) dim, NUMBER(u32) chunks,
                                              NUMBER(u32) window WHERE) {
    Here here = HERE;
    u32 head = here.block.x, heads = here.blocks.x, sequence = here.block.y, length = lengths[sequence];
    u32 first = first_key(length - 1, window) / CHUNK, end = div_ceil(length, CHUNK);
    u64 unit = (u64)sequence * heads + head;
    GLOBAL const float *level = levels + unit * chunks * 2, *mix = mixes + unit * chunks * dim;
    float high = -INFINITE, total = 0.0f;
    for (u32 chunk = first; chunk < end; ++chunk) high = fmaxf(high, level[2 * chunk]);
    for (u32 chunk = first; chunk < end; ++chunk) {
        total = fmaf(expf(level[2 * chunk] - high), level[2 * chunk + 1], total);
    }
    for (u32 feature = here.index; feature < dim; feature += here.threads) {
        float sum = 0.0f;
        for (u32 chunk = first; chunk < end; ++chunk) {
            sum = fmaf(expf(level[2 * chunk] - high), mix[(u64)chunk * dim + feature], sum);
        }
        put(out, unit * dim + feature, sum / total);
    }
}

// Puts keys and values of some tokens into the cache: row i of k and v (k_stride, v_stride apart, `width` = kv_heads ·
// dim numbers) becomes token tokens[i] of sequence sequences[i]; tokens null means the last of its sequence by
// `lengths`, sequences null means i. What lies past a sequence's pages is a fault and is not written. Grid: x rows;
// 128 threads.
KERNEL(256) cache_append(GLOBAL act *keys, GLOBAL act *values, GLOBAL const act *k, GLOBAL const act *v,
                         GLOBAL const u32 *sequences, GLOBAL const u32 *tokens, GLOBAL const u32 *lengths,
                         GLOBAL const u32 *pages, NUMBER(u32) pages_of, NUMBER(u32) page,
                         NUMBER(u32) width, NUMBER(u64) k_stride, NUMBER(u64) v_stride, FAULT_WORD word WHERE) {
    Here here = HERE;
    u32 row = here.block.x, sequence = THERE(4, sequences) ? sequences[row] : row;
    u32 token = THERE(5, tokens) ? tokens[row] : lengths[sequence] - 1;
    if (token / page >= pages_of) {
        if (here.index == 0) fault(word, token);
        return;
    }
    u64 to = cached_row(pages, THERE(7, pages), pages_of, page, sequence, token) * width;
    for (u32 at = here.index; at < width; at += here.threads) {
        put(keys, to + at, get(k, row * k_stride + at));
        put(values, to + at, get(v, row * v_stride + at));
    }
}
