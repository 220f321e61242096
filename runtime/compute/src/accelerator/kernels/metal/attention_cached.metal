// Attention of one new token a sequence to the keys and values kept so far, and what keeps them. Agrees with
// fused/attention/cached.rs; the CUDA text says how rows lie in pages.
//
// A sequence is cut into chunks of CHUNK tokens at fixed places, a group each, whose parts are merged in order: a result
// does not depend on the others in the batch. One library a HEAD_DIM and GROUP = heads / kv_heads.

#ifndef GROUP
#define GROUP 1
#endif

#define CHUNK 256u
#define CACHED_THREADS 128u
#define CACHED_WARPS 4u

// Query heads of a group of threads: the largest divisor of GROUP that is at most 8.
#define TOGETHER                                                                                                       \
    (GROUP % 8 == 0   ? 8                                                                                              \
     : GROUP % 7 == 0 ? 7                                                                                              \
     : GROUP % 6 == 0 ? 6                                                                                              \
     : GROUP % 5 == 0 ? 5                                                                                              \
     : GROUP % 4 == 0 ? 4                                                                                              \
     : GROUP % 3 == 0 ? 3                                                                                              \
     : GROUP % 2 == 0 ? 2                                                                                              \
                      : 1)

// Lanes that share a key, eight features each, and keys that a group meets at once.
#define KEY_LANES (HEAD_DIM <= 64 ? 8u : HEAD_DIM <= 128 ? 16u : 32u)
#define KEYS_AT_ONCE (CACHED_THREADS / KEY_LANES)

inline u64 cached_row(device const u32 *pages, bool paged, u32 pages_of, u32 page, u32 sequence, u32 token) {
    u64 number = (u64)sequence * pages_of + token / page;
    return (paged ? (u64)pages[number] : number) * page + token % page;
}

// Eight features of a row; zeros past `dim`.
inline void eight_features(thread float (&into)[8], device const act *from, u64 row, u32 column, u32 dim) {
    for (u32 i = 0; i < 8; ++i) into[i] = column + i < dim ? get(from, row + column + i) : 0.0f;
}

// mixes [batch, heads, chunks, dim] and levels [batch, heads, chunks, 2]: for each chunk Σ e·value, the largest score
// and Σ e, relative to it; f32. Chunks that no query sees are not written. q: [batch, heads · dim]; lengths: [batch],
// tokens of each sequence, the new one's own among them. Grid: x chunks = ⌈longest possible / 256⌉, y kv_heads · GROUP /
// TOGETHER, z batch. 128 threads.
KERNEL(CACHED_THREADS) attention_cached(device float *mixes [[buffer(0)]], device float *levels [[buffer(1)]],
                                        device const act *q [[buffer(2)]], device const act *keys [[buffer(3)]],
                                        device const act *values [[buffer(4)]], device const u32 *pages [[buffer(5)]],
                                        device const u32 *lengths [[buffer(6)]], constant u32 &pages_of [[buffer(7)]],
                                        constant u32 &page [[buffer(8)]], constant u32 &kv_heads [[buffer(9)]],
                                        constant u32 &dim [[buffer(10)]], constant float &scale [[buffer(11)]],
                                        constant float &cap [[buffer(12)]], constant u32 &window [[buffer(13)]] WHERE) {
    SHARED float queries[TOGETHER * HEAD_DIM], scores[TOGETHER * CHUNK];
    Here here = HERE;
    bool paged = THERE(5, pages);
    Scoring scoring = {scale, cap, window};
    u32 sequence = here.block.z, length = lengths[sequence], chunk = here.block.x, chunks = here.blocks.x;
    u32 begin = first_key(length - 1, window), start = chunk * CHUNK;
    if (start >= length || start + CHUNK <= begin) return;
    u32 parts = GROUP / TOGETHER, kv_head = here.block.y / parts;
    u32 heads = kv_heads * GROUP, head = kv_head * GROUP + here.block.y % parts * TOGETHER;
    u32 number = here.worker, slot = number / KEY_LANES, column = number % KEY_LANES * 8;
    u64 stride = (u64)kv_heads * dim;
    for (u32 at = number; at < TOGETHER * HEAD_DIM; at += CACHED_THREADS) {
        u32 own = at / HEAD_DIM, feature = at % HEAD_DIM;
        queries[at] = feature < dim ? get(q, ((u64)sequence * heads + head + own) * dim + feature) : 0.0f;
    }
    meet_block();

    for (u32 at = slot; at < CHUNK; at += KEYS_AT_ONCE) {
        u32 token = start + at;
        bool seen = token >= begin && token < length;
        float numbers[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (seen && column < HEAD_DIM) {
            u64 row = cached_row(pages, paged, pages_of, page, sequence, token) * stride + kv_head * dim;
            eight_features(numbers, keys, row, column, dim);
        }
        for (u32 own = 0; own < TOGETHER; ++own) {
            float sum = 0.0f;
            if (column < HEAD_DIM) {
                for (u32 i = 0; i < 8; ++i) sum = fma(queries[own * HEAD_DIM + column + i], numbers[i], sum);
            }
            for (u32 mask = KEY_LANES / 2; mask > 0; mask /= 2) sum += across(sum, mask);
            if (column == 0) {
                float slope, score = scored(sum, scoring, slope);
                scores[own * CHUNK + at] = seen ? score : -infinite();
            }
        }
    }
    meet_block();

    for (u32 own = number / WARP; own < TOGETHER; own += CACHED_WARPS) {
        float high = -infinite(), sum = 0.0f;
        for (u32 at = number % WARP; at < CHUNK; at += WARP) high = fmax(high, scores[own * CHUNK + at]);
        for (u32 mask = WARP / 2; mask > 0; mask /= 2) high = fmax(high, across(high, mask));
        for (u32 at = number % WARP; at < CHUNK; at += WARP) {
            float weight = exp(scores[own * CHUNK + at] - high);
            scores[own * CHUNK + at] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        if (number % WARP == 0) {
            u64 level = (((u64)sequence * heads + head + own) * chunks + chunk) * 2;
            levels[level] = high, levels[level + 1] = sum;
        }
    }
    meet_block();

    float sums[TOGETHER][8];
    UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
        UNROLL for (u32 i = 0; i < 8; ++i) sums[own][i] = 0.0f;
    }
    for (u32 at = slot; at < CHUNK; at += KEYS_AT_ONCE) {
        u32 token = start + at;
        if (token < begin || token >= length || column >= HEAD_DIM) continue;
        float numbers[8];
        u64 row = cached_row(pages, paged, pages_of, page, sequence, token) * stride + kv_head * dim;
        eight_features(numbers, values, row, column, dim);
        UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
            float weight = scores[own * CHUNK + at];
            UNROLL for (u32 i = 0; i < 8; ++i) sums[own][i] = fma(weight, numbers[i], sums[own][i]);
        }
    }
    UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
        UNROLL for (u32 i = 0; i < 8; ++i) {
            for (u32 mask = KEY_LANES; mask < WARP; mask *= 2) sums[own][i] += across(sums[own][i], mask);
        }
    }
    // SIMD group after SIMD group, into what held the queries.
    for (u32 warp = 0; warp < CACHED_WARPS; ++warp) {
        if (number / WARP == warp && number % WARP < KEY_LANES && column < HEAD_DIM) {
            UNROLL for (u32 own = 0; own < TOGETHER; ++own) {
                UNROLL for (u32 i = 0; i < 8; ++i) {
                    u32 spot = own * HEAD_DIM + column + i;
                    queries[spot] = warp == 0 ? sums[own][i] : queries[spot] + sums[own][i];
                }
            }
        }
        meet_block();
    }
    for (u32 at = number; at < TOGETHER * HEAD_DIM; at += CACHED_THREADS) {
        u32 own = at / HEAD_DIM, feature = at % HEAD_DIM;
        if (feature < dim) {
            mixes[(((u64)sequence * heads + head + own) * chunks + chunk) * dim + feature] = queries[at];
        }
    }
}

// out, [batch, heads · dim], from the parts of the chunks, in their order. Grid: x heads, y batch; 128 threads.
KERNEL(CACHED_THREADS) attention_cached_merge(device act *out [[buffer(0)]], device const float *mixes [[buffer(1)]],
                                              device const float *levels [[buffer(2)]],
                                              device const u32 *lengths [[buffer(3)]],
                                              constant u32 &dim [[buffer(4)]], constant u32 &chunks [[buffer(5)]],
                                              constant u32 &window [[buffer(6)]] WHERE) {
    Here here = HERE;
    u32 head = here.block.x, heads = here.blocks.x, sequence = here.block.y, length = lengths[sequence];
    u32 first = first_key(length - 1, window) / CHUNK, end = divided_up(length, CHUNK);
    u64 unit = (u64)sequence * heads + head;
    device const float *level = levels + unit * chunks * 2;
    device const float *mix = mixes + unit * chunks * dim;
    float high = -infinite(), total = 0.0f;
    for (u32 chunk = first; chunk < end; ++chunk) high = fmax(high, level[2 * chunk]);
    for (u32 chunk = first; chunk < end; ++chunk) {
        total = fma(exp(level[2 * chunk] - high), level[2 * chunk + 1], total);
    }
    for (u32 feature = here.worker; feature < dim; feature += here.workers) {
        float sum = 0.0f;
        for (u32 chunk = first; chunk < end; ++chunk) {
            sum = fma(exp(level[2 * chunk] - high), mix[(u64)chunk * dim + feature], sum);
        }
        put(out, unit * dim + feature, sum / total);
    }
}

// Puts keys and values of some tokens into the cache: row i of k and v (k_stride, v_stride apart, `width` = kv_heads ·
// dim numbers) becomes token tokens[i] of sequence sequences[i]; tokens null means the last of its sequence by
// `lengths`, sequences null means i. What lies past a sequence's pages is a fault and is not written. Grid: x rows;
// 128 threads.
KERNEL(256) cache_append(device act *keys [[buffer(0)]], device act *values [[buffer(1)]],
                         device const act *k [[buffer(2)]], device const act *v [[buffer(3)]],
                         device const u32 *sequences [[buffer(4)]], device const u32 *tokens [[buffer(5)]],
                         device const u32 *lengths [[buffer(6)]], device const u32 *pages [[buffer(7)]],
                         constant u32 &pages_of [[buffer(8)]], constant u32 &page [[buffer(9)]],
                         constant u32 &width [[buffer(10)]], constant u64 &k_stride [[buffer(11)]],
                         constant u64 &v_stride [[buffer(12)]], FAULT_WORD word [[buffer(13)]],
                         constant u32 &place [[buffer(14)]] WHERE) {
    Here here = HERE;
    u32 row = here.block.x, sequence = THERE(4, sequences) ? sequences[row] : row;
    u32 token = THERE(5, tokens) ? tokens[row] : lengths[sequence] - 1;
    if (token / page >= pages_of) {
        if (here.worker == 0) fault(word, place, token);
        return;
    }
    u64 to = cached_row(pages, THERE(7, pages), pages_of, page, sequence, token) * width;
    for (u32 at = here.worker; at < width; at += here.workers) {
        put(keys, to + at, get(k, row * k_stride + at));
        put(values, to + at, get(v, row * v_stride + at));
    }
}
