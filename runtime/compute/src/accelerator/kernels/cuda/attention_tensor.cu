// Attention on tensor cores, products by attention_mma.cu. See attention_common.cuh.

#if ACTIVATION != 0 && !WARPGROUPS

// out: [tokens, heads · dim] contiguous, lse: [tokens, heads] f32. Places: queries, QUERIES = FORWARD_QUERIES (128 up to
// head size 128, else 64). Grid: x places, y heads. 128 threads.
// Dynamic shared memory: 2 · (HEAD_DIM + 8) · (FORWARD_QUERIES + 2 · FORWARD_KEYS) bytes.
KERNEL(ATTENTION_THREADS) attention(GLOBAL act *out, GLOBAL float *lse, GLOBAL const act *q, GLOBAL const act *k,
                                    GLOBAL const act *v, GLOBAL const TileEntry *places, GLOBAL const Span *spans,
                                    NUMBER(u64) q_stride, NUMBER(u64) k_stride, NUMBER(u64) v_stride, NUMBER(u32) heads,
                                    NUMBER(u32) group, NUMBER(u32) dim, NUMBER(float) scale, NUMBER(float) cap,
                                    NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *queries = first_tile(shared), *keys = queries + TILE_NUMBERS(FORWARD_QUERIES);
    act *values = keys + TILE_NUMBERS(FORWARD_KEYS);
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP, line = own_line();
    k += kv_head * dim, v += kv_head * dim;

    // Keys and values each keep the span found last: the keys of a tile are copied one tile ahead of its values.
    Walk key_walk = walk_along(spans + place.path, place.count), value_walk = key_walk;
    auto fetch_keys = [&](u32 start) {
        fetch_positions<FORWARD_KEYS>(keys, k, k_stride, dim, key_walk, start);
        end_group();
    };
    auto fetch_values = [&](u32 start) {
        fetch_positions<FORWARD_KEYS>(values, v, v_stride, dim, value_walk, start);
        end_group();
    };

    u32 begin = first_key(place.first, window) / FORWARD_KEYS * FORWARD_KEYS, end = place.first + place.length;
    fetch_rows<FORWARD_QUERIES>(queries, q + place.row * q_stride + head * dim, q_stride, dim, place.length);
    fetch_keys(begin);
    fetch_values(begin);

    float sums[FORWARD_STACK][HEAD_DIM / 8][4] = {};
    float best[FORWARD_STACK][2], total[FORWARD_STACK][2];
    UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
        best[s][0] = best[s][1] = -INFINITE, total[s][0] = total[s][1] = 0.0f;
    }

    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        for (u32 start = begin; start < end; start += FORWARD_KEYS) {
            bool more = start + FORWARD_KEYS < end;
            await_tiles<1>();
            float scores[FORWARD_STACK][FORWARD_KEYS / 8][4] = {};
            row_products<FORWARD_STACK, FORWARD_KEYS>(scores, queries, keys);
            sync_block();
            if (more) {
                fetch_keys(start + FORWARD_KEYS);
            } else {
                end_group();
            }
            // Whether every query of the tile sees every key.
            bool whole = start + FORWARD_KEYS <= place.first + 1 &&
                         (window == 0 || place.first + FORWARD_QUERIES <= start + window);
            UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
                bend_scores<CAPPED>(scores[s], place.first + line + STACK_ROWS * s + lane / 4, start, window, whole, measure);
            }
            UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
                float keep[2];
                soften(scores[s], best[s], total[s], keep, measure.unit);
                scale_sums(sums[s], keep);
            }
            await_tiles<1>();
            mix_rows<FORWARD_STACK, FORWARD_KEYS, HEAD_DIM>(sums, scores, values, 0);
            sync_block();
            if (more) {
                fetch_values(start + FORWARD_KEYS);
            } else {
                end_group();
            }
        }
    });

    u64 stride = (u64)heads * dim;
    act *to = out + (u64)place.row * stride + head * dim;
    UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
        u32 row = line + STACK_ROWS * s + lane / 4;
        float low = four_sum(total[s][0]), high = four_sum(total[s][1]);
        write_rows<HEAD_DIM>(to, sums[s], line + STACK_ROWS * s, place.length, stride, 0, dim, 1.0f / low, 1.0f / high);
        if (lane % 4 == 0) {
            float *logs = lse + (u64)place.row * heads + head;
            if (row < place.length) logs[(u64)row * heads] = log_sum(best[s][0], low, measure);
            if (row + 8 < place.length) logs[(u64)(row + 8) * heads] = log_sum(best[s][1], high, measure);
        }
    }
}

#endif
