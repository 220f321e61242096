// Attention on tensor cores. See attention_common.cuh. By warpgroups, each of which has 64 queries, keys and values are copied a
// tile ahead, and the products of a tile run while the weights of the next are made.

#if ACTIVATION != 0

// out: [tokens, heads · dim] contiguous, lse: [tokens, heads] f32. Places: queries, QUERIES = FORWARD_QUERIES. Grid: x places,
// y heads. ATTENTION_THREADS threads. Dynamic shared memory: 2 · (HEAD_DIM + 8) · (FORWARD_QUERIES + 2 · FORWARD_KEYS) bytes;
// by warpgroups 2 · HEAD_DIM · (FORWARD_QUERIES + 4 · FORWARD_KEYS) + 1024.
KERNEL(ATTENTION_THREADS, FORWARD_BLOCKS) attention(GLOBAL act *out, GLOBAL float *lse, GLOBAL const act *q,
                                                    GLOBAL const act *k, GLOBAL const act *v,
                                                    GLOBAL const TileEntry *places, GLOBAL const Span *spans,
                                                    NUMBER(u64) q_stride, NUMBER(u64) k_stride, NUMBER(u64) v_stride,
                                                    NUMBER(u32) heads, NUMBER(u32) group, NUMBER(u32) dim,
                                                    NUMBER(float) scale, NUMBER(float) cap, NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *queries = first_tile(shared), *keys = queries + TILE_NUMBERS(FORWARD_QUERIES);
    act *values = keys + BUFFERS * TILE_NUMBERS(FORWARD_KEYS);
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP, line = own_line();
    k += kv_head * dim, v += kv_head * dim;

    // Keys and values each keep the span found last: the keys of a tile are copied one tile ahead of its values.
    Walk key_walk = walk_along(spans + place.path, place.count), value_walk = key_walk;
    u32 begin = first_key(place.first, window) / FORWARD_KEYS * FORWARD_KEYS, end = place.first + place.length;
    float sums[FORWARD_STACK][HEAD_DIM / 8][4] = {};
    float best[FORWARD_STACK][2], total[FORWARD_STACK][2];
    UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
        best[s][0] = best[s][1] = -INFINITE, total[s][0] = total[s][1] = 0.0f;
    }
#if WARPGROUPS
    u32 count = (end - begin + FORWARD_KEYS - 1) / FORWARD_KEYS;
    // Starts to copy the keys of a tile and the values of the one before: what meets the queries in one turn of the loop.
    auto fetch_tile = [&](u32 tile) {
        u32 start = begin + tile * FORWARD_KEYS;
        if (tile < count) {
            fetch_positions<FORWARD_KEYS>(keys + tile % 2 * TILE_NUMBERS(FORWARD_KEYS), k, k_stride, dim, key_walk, start);
        }
        if (tile > 0) {
            fetch_positions<FORWARD_KEYS>(values + (tile - 1) % 2 * TILE_NUMBERS(FORWARD_KEYS), v, v_stride, dim, value_walk,
                                          start - FORWARD_KEYS);
        }
        end_group();
    };
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        float scores[FORWARD_KEYS / 8][4], factor[2];
        u32 weights[FORWARD_KEYS / 16][4];
        auto soften_tile = [&](u32 tile) {
            u32 start = begin + tile * FORWARD_KEYS;
            // Whether every query of the tile sees every key.
            bool whole = start + FORWARD_KEYS <= place.first + 1 &&
                         (window == 0 || place.first + FORWARD_QUERIES <= start + window);
            bend_scores<CAPPED>(scores, place.first + line + lane / 4, start, window, whole, measure);
            soften(scores, best[0], total[0], factor, measure.unit);
        };

        fetch_rows<FORWARD_QUERIES>(queries, q + place.row * q_stride + head * dim, q_stride, dim, place.length);
        fetch_tile(0);
        await_tiles<0>();
        fetch_tile(1);
        start_scores<FORWARD_QUERIES, FORWARD_KEYS>(scores, queries, keys);
        await_products<0>();
        keep(scores);
        soften_tile(0);
        pack_weights(weights, scores);
        for (u32 tile = 1; tile < count; ++tile) {
            await_tiles<0>();
            start_scores<FORWARD_QUERIES, FORWARD_KEYS>(scores, queries, keys + tile % 2 * TILE_NUMBERS(FORWARD_KEYS));
            start_mix<FORWARD_KEYS>(sums[0], weights, values + (tile - 1) % 2 * TILE_NUMBERS(FORWARD_KEYS));
            fetch_tile(tile + 1);
            await_products<1>();
            keep(scores);
            soften_tile(tile);
            await_products<0>();
            keep(sums[0]);
            scale_sums(sums[0], factor);
            pack_weights(weights, scores);
        }
        await_tiles<0>();
        start_mix<FORWARD_KEYS>(sums[0], weights, values + (count - 1) % 2 * TILE_NUMBERS(FORWARD_KEYS));
        await_products<0>();
        keep(sums[0]);
    });
#else
    auto fetch_keys = [&](u32 start) {
        fetch_positions<FORWARD_KEYS>(keys, k, k_stride, dim, key_walk, start);
        end_group();
    };
    auto fetch_values = [&](u32 start) {
        fetch_positions<FORWARD_KEYS>(values, v, v_stride, dim, value_walk, start);
        end_group();
    };
    fetch_rows<FORWARD_QUERIES>(queries, q + place.row * q_stride + head * dim, q_stride, dim, place.length);
    fetch_keys(begin);
    fetch_values(begin);

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
#endif

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
