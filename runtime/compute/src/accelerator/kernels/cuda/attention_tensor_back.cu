// The gradients of attention on tensor cores, see attention_tensor.cu: `attention_delta` (attention_plain.h) first, then both
// of these in any order. By warpgroups, each of which has 64 rows, tiles are copied one ahead, and weights are made while other
// products run.

#if ACTIVATION != 0

// dq: [tokens, heads · dim] contiguous, as dout. Places: queries, QUERIES = DQ_QUERIES. Grid: x places, y heads.
// ATTENTION_THREADS threads.
// Dynamic shared memory: 4 · (HEAD_DIM + 8) · (DQ_QUERIES + DQ_KEYS) bytes; by warpgroups 4 · HEAD_DIM · (DQ_QUERIES +
// 2 · DQ_KEYS) + 1024.
KERNEL(ATTENTION_THREADS, DQ_BLOCKS) attention_dq(GLOBAL act *dq, GLOBAL const act *dout, GLOBAL const act *q,
                                                  GLOBAL const act *k, GLOBAL const act *v, GLOBAL const float *lse,
                                                  GLOBAL const float *delta, GLOBAL const TileEntry *places,
                                                  GLOBAL const Span *spans, NUMBER(u64) q_stride, NUMBER(u64) k_stride,
                                                  NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group,
                                                  NUMBER(u32) dim, NUMBER(float) scale, NUMBER(float) cap,
                                                  NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *queries = first_tile(shared), *seeds = queries + TILE_NUMBERS(DQ_QUERIES);
    act *keys = seeds + TILE_NUMBERS(DQ_QUERIES), *values = keys + BUFFERS * TILE_NUMBERS(DQ_KEYS);
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP, line = own_line();
    u64 stride = (u64)heads * dim;
    k += kv_head * dim, v += kv_head * dim;

    Walk key_walk = walk_along(spans + place.path, place.count), value_walk = key_walk;
    u32 begin = first_key(place.first, window) / DQ_KEYS * DQ_KEYS, end = place.first + place.length;
    fetch_rows<DQ_QUERIES>(queries, q + place.row * q_stride + head * dim, q_stride, dim, place.length);
    fetch_rows<DQ_QUERIES>(seeds, dout + place.row * stride + head * dim, stride, dim, place.length);
#if WARPGROUPS
    u32 count = (end - begin + DQ_KEYS - 1) / DQ_KEYS;
    auto fetch_tile = [&](u32 tile) {
        u32 start = begin + tile * DQ_KEYS, at = tile % 2 * TILE_NUMBERS(DQ_KEYS);
        if (tile < count) {
            fetch_positions<DQ_KEYS>(keys + at, k, k_stride, dim, key_walk, start);
            fetch_positions<DQ_KEYS>(values + at, v, v_stride, dim, value_walk, start);
        }
        end_group();
    };
    fetch_tile(0);
#else
    auto fetch_keys = [&](u32 start) {
        fetch_positions<DQ_KEYS>(keys, k, k_stride, dim, key_walk, start);
        end_group();
    };
    auto fetch_values = [&](u32 start) {
        fetch_positions<DQ_KEYS>(values, v, v_stride, dim, value_walk, start);
        end_group();
    };
    fetch_values(begin);
    fetch_keys(begin);
#endif
    float logs[2], deltas[2];
    UNROLL for (int side = 0; side < 2; ++side) {
        u32 row = line + lane / 4 + 8 * side;
        u64 at = (u64)(place.row + row) * heads + head;
        logs[side] = row < place.length ? -lse[at] * LOG2_E : 0.0f;
        deltas[side] = row < place.length ? delta[at] : 0.0f;
    }
    float sums[1][HEAD_DIM / 8][4] = {};
#if WARPGROUPS
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        for (u32 tile = 0; tile < count; ++tile) {
            u32 start = begin + tile * DQ_KEYS, at = tile % 2 * TILE_NUMBERS(DQ_KEYS);
            float weights[DQ_KEYS / 8][4], slopes[DQ_KEYS / 8][4];
            await_tiles<0>();
            start_scores<DQ_QUERIES, DQ_KEYS>(weights, queries, keys + at);
            start_scores<DQ_QUERIES, DQ_KEYS>(slopes, seeds, values + at);
            fetch_tile(tile + 1);
            await_products<1>();
            keep(weights);
            // Whether every query of the tile sees every key. Sums of rows past the last query are not written.
            bool whole = start + DQ_KEYS <= place.first + 1 && (window == 0 || place.first + DQ_QUERIES <= start + window);
            auto seen = [&](int n, int i) {
                return sees(place.first + line + lane / 4 + 8 * (i / 2), start + 8 * n + lane % 4 * 2 + i % 2, window);
            };
            // With a cap, its slopes are needed later.
            u32 lefts[DQ_KEYS / 16][4];
            if (!CAPPED && !whole) hide_products(weights, seen);
            if constexpr (!CAPPED) {
                UNROLL for (int n = 0; n < DQ_KEYS / 8; ++n) {
                    UNROLL for (int i = 0; i < 4; ++i) {
                        weights[n][i] = power_of_two(fmaf(weights[n][i], measure.unit, logs[i / 2]));
                    }
                }
            }
            await_products<0>();
            keep(slopes);
            if constexpr (CAPPED) {
                UNROLL for (int n = 0; n < DQ_KEYS / 8; ++n) {
                    UNROLL for (int i = 0; i < 4; ++i) {
                        weigh<true>(weights[n][i], slopes[n][i], whole || seen(n, i), logs[i / 2], deltas[i / 2], measure);
                    }
                }
            } else {
                UNROLL for (int n = 0; n < DQ_KEYS / 8; ++n) {
                    UNROLL for (int i = 0; i < 4; ++i) slopes[n][i] = weights[n][i] * (slopes[n][i] - deltas[i / 2]);
                }
            }
            pack_weights(lefts, slopes);
            start_mix<DQ_KEYS>(sums[0], lefts, keys + at);
            await_products<0>();
            keep(sums[0]);
        }
    });
#else
    // Values are done with first, so the next ones come while the scores are made, and the next keys while the seeds
    // meet those values.
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        for (u32 start = begin; start < end; start += DQ_KEYS) {
            bool more = start + DQ_KEYS < end;
            float weights[1][DQ_KEYS / 8][4] = {}, slopes[1][DQ_KEYS / 8][4] = {};
            await_tiles<1>();
            row_products<1, DQ_KEYS>(slopes, seeds, values);
            await_tiles<0>();
            if (more) fetch_values(start + DQ_KEYS);
            row_products<1, DQ_KEYS>(weights, queries, keys);
            // Whether every query of the tile sees every key. Sums of rows past the last query are not written.
            bool whole = start + DQ_KEYS <= place.first + 1 && (window == 0 || place.first + DQ_QUERIES <= start + window);
            with_flag(whole, [&](auto all) {
                UNROLL for (int n = 0; n < DQ_KEYS / 8; ++n) {
                    UNROLL for (int i = 0; i < 4; ++i) {
                        u32 query = place.first + line + lane / 4 + 8 * (i / 2), key = start + 8 * n + lane % 4 * 2 + i % 2;
                        bool seen = decltype(all)::value || sees(query, key, window);
                        weigh<CAPPED>(weights[0][n][i], slopes[0][n][i], seen, logs[i / 2], deltas[i / 2], measure);
                    }
                }
            });
            mix_rows<1, DQ_KEYS, HEAD_DIM>(sums, slopes, keys, 0);
            sync_block();
            if (more) fetch_keys(start + DQ_KEYS);
        }
    });
#endif
    write_rows<HEAD_DIM>(dq + (u64)place.row * stride + head * dim, sums[0], line, place.length, stride, 0, dim, scale,
                         scale);
}

// dk and dv: [tokens, kv_heads · dim] contiguous: sums over the heads of a group, in order, and over all queries that
// see the keys, those of the own sequence first. Places: keys, KEYS = DKV_KEYS. Grid: x places, y kv_heads ·
// ⌈group / share⌉, z DKV_SPLIT (1 up to head size 128, else 2). ATTENTION_THREADS threads. Scores are transposed here: their rows are keys.
// A block sums `share` heads of a group, the last one of the group maybe fewer. Where that is the whole group, `parts` is
// null; else dk and dv are null and the sums go to parts, [⌈group / share⌉, 2, tokens, kv_heads · dim], dk before dv, to be
// added in order by `add_parts`.
// Dynamic shared memory: 4 · (HEAD_DIM + 8) · (DKV_KEYS + DKV_QUERIES) + 8 · DKV_QUERIES bytes; by warpgroups 4 · HEAD_DIM ·
// (DKV_KEYS + 2 · DKV_QUERIES) + 16 · DKV_QUERIES + 1024.
KERNEL(ATTENTION_THREADS, DKV_BLOCKS) attention_dkv(GLOBAL act *dk, GLOBAL act *dv, GLOBAL float *parts,
                                                    NUMBER(u32) share, NUMBER(u32) tokens, GLOBAL const act *dout,
                                                    GLOBAL const act *q, GLOBAL const act *k, GLOBAL const act *v,
                                                    GLOBAL const float *lse, GLOBAL const float *delta,
                                                    GLOBAL const TileEntry *places, GLOBAL const Span *spans,
                                                    NUMBER(u64) q_stride, NUMBER(u64) k_stride, NUMBER(u64) v_stride,
                                                    NUMBER(u32) heads, NUMBER(u32) group, NUMBER(u32) dim,
                                                    NUMBER(float) scale, NUMBER(float) cap, NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *keys = first_tile(shared), *values = keys + TILE_NUMBERS(DKV_KEYS);
    act *queries = values + TILE_NUMBERS(DKV_KEYS), *seeds = queries + BUFFERS * TILE_NUMBERS(DKV_QUERIES);
    // −lse·log₂e and delta of the queries of a tile.
    float *numbers = (float *)(seeds + BUFFERS * TILE_NUMBERS(DKV_QUERIES));
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 shares = (group + share - 1) / share, kv_head = blockIdx.y / shares, own_share = blockIdx.y % shares;
    u32 first_head = kv_head * group + own_share * share, heads_end = least(first_head + share, (kv_head + 1) * group);
    u32 thread = threadIdx.x, lane = thread % WARP, line = own_line(), feature = blockIdx.z * DKV_FEATURES;
    u64 stride = (u64)heads * dim;

    fetch_rows<DKV_KEYS>(keys, k + place.row * k_stride + kv_head * dim, k_stride, dim, place.length);
    fetch_rows<DKV_KEYS>(values, v + place.row * v_stride + kv_head * dim, v_stride, dim, place.length);
    Meeting now = {first_head, place.path, 0, 0, 0};
    enter(now, spans, place, window);
    bool going = settle(now, spans, place, window, heads_end);
    float key_sums[1][DKV_FEATURES / 8][4] = {}, value_sums[1][DKV_FEATURES / 8][4] = {};
#if WARPGROUPS
    // Numbers of a tile come one step later than its rows: a thread has read them when it has them to write.
    auto fetch_tile = [&](Meeting at, u32 half, float &number) {
        u32 length = at.end - at.start, spot = half * TILE_NUMBERS(DKV_QUERIES);
        fetch_rows<DKV_QUERIES>(queries + spot, q + at.row * q_stride + at.head * dim, q_stride, dim, length);
        fetch_rows<DKV_QUERIES>(seeds + spot, dout + at.row * stride + at.head * dim, stride, dim, length);
        if (thread < 2 * DKV_QUERIES) {
            u32 query = thread % DKV_QUERIES;
            const float *from = thread < DKV_QUERIES ? lse : delta;
            number = query < length ? from[(u64)(at.row + query) * heads + at.head] : 0.0f;
        }
    };
    auto write_number = [&](u32 half, float number) {
        if (thread < 2 * DKV_QUERIES) numbers[2 * DKV_QUERIES * half + thread] = thread < DKV_QUERIES ? -number * LOG2_E : number;
    };
    if (going) {
        float number;
        fetch_tile(now, 0, number);
        write_number(0, number);
    }
    end_group();
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        for (u32 half = 0; going; half ^= 1) {
            Meeting next = now;
            next.start += DKV_QUERIES, next.row += DKV_QUERIES;
            bool more = settle(next, spans, place, window, heads_end);
            u32 spot = half * TILE_NUMBERS(DKV_QUERIES);
            const float2 *logs = (const float2 *)(numbers + 2 * DKV_QUERIES * half) + lane % 4, *deltas = logs + DKV_QUERIES / 2;
            float weights[DKV_QUERIES / 8][4], slopes[DKV_QUERIES / 8][4], number = 0.0f;
            await_tiles<0>();
            start_scores<DKV_KEYS, DKV_QUERIES>(weights, keys, queries + spot);
            start_scores<DKV_KEYS, DKV_QUERIES>(slopes, values, seeds + spot);
            if (more) fetch_tile(next, half ^ 1, number);
            end_group();
            await_products<1>();
            keep(weights);
            // Whether every query of the tile sees every key. Rows past the end are zeros: padding queries add 0, sums of
            // padding keys are not written.
            bool whole = now.start + 1 >= place.first + DKV_KEYS &&
                         (window == 0 || now.start + DKV_QUERIES <= place.first + window);
            auto seen = [&](int n, int i) {
                return sees(now.start + 8 * n + lane % 4 * 2 + i % 2, place.first + line + lane / 4 + 8 * (i / 2), window);
            };
            u32 lefts[DKV_QUERIES / 16][4];
            if constexpr (!CAPPED) {
                if (!whole) hide_products(weights, seen);
                UNROLL for (int n = 0; n < DKV_QUERIES / 8; ++n) {
                    float2 log = logs[4 * n];
                    UNROLL for (int i = 0; i < 4; ++i) {
                        weights[n][i] = power_of_two(fmaf(weights[n][i], measure.unit, i % 2 ? log.y : log.x));
                    }
                }
                pack_weights(lefts, weights);
                start_mix<DKV_QUERIES>(value_sums[0], lefts, seeds + spot);
                await_products<1>();
                keep(slopes);
                UNROLL for (int n = 0; n < DKV_QUERIES / 8; ++n) {
                    float2 delta = deltas[4 * n];
                    UNROLL for (int i = 0; i < 4; ++i) slopes[n][i] = weights[n][i] * (slopes[n][i] - (i % 2 ? delta.y : delta.x));
                }
            } else {
                await_products<0>();
                keep(slopes);
                UNROLL for (int n = 0; n < DKV_QUERIES / 8; ++n) {
                    float2 log = logs[4 * n], delta = deltas[4 * n];
                    UNROLL for (int i = 0; i < 4; ++i) {
                        weigh<true>(weights[n][i], slopes[n][i], whole || seen(n, i), i % 2 ? log.y : log.x,
                                    i % 2 ? delta.y : delta.x, measure);
                    }
                }
                pack_weights(lefts, weights);
                start_mix<DKV_QUERIES>(value_sums[0], lefts, seeds + spot);
            }
            u32 rights[DKV_QUERIES / 16][4];
            pack_weights(rights, slopes);
            start_mix<DKV_QUERIES>(key_sums[0], rights, queries + spot);
            await_products<0>();
            keep(value_sums[0]);
            keep(key_sums[0]);
            if (more) write_number(half ^ 1, number);
            now = next, going = more;
        }
    });
    await_groups<0>();
#else
    float *logs = numbers, *deltas = logs + DKV_QUERIES;
    auto fetch_queries = [&](Meeting at) {
        fetch_rows<DKV_QUERIES>(queries, q + at.row * q_stride + at.head * dim, q_stride, dim, at.end - at.start);
        end_group();
    };
    auto fetch_seeds = [&](Meeting at) {
        u32 length = at.end - at.start;
        fetch_rows<DKV_QUERIES>(seeds, dout + at.row * stride + at.head * dim, stride, dim, length);
        end_group();
        if (thread < DKV_QUERIES) {
            u64 spot = (u64)(at.row + thread) * heads + at.head;
            logs[thread] = thread < length ? -lse[spot] * LOG2_E : 0.0f;
            deltas[thread] = thread < length ? delta[spot] : 0.0f;
        }
    };
    if (going) {
        fetch_seeds(now);
        fetch_queries(now);
    }

    // Seeds are done with first: the next ones come while the keys take theirs, the next queries while those seeds meet
    // the values.
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        while (going) {
            Meeting next = now;
            next.start += DKV_QUERIES, next.row += DKV_QUERIES;
            bool more = settle(next, spans, place, window, heads_end);
            float weights[1][DKV_QUERIES / 8][4] = {}, slopes[1][DKV_QUERIES / 8][4] = {};
            await_tiles<1>();
            row_products<1, DKV_QUERIES>(slopes, values, seeds);
            await_tiles<0>();
            row_products<1, DKV_QUERIES>(weights, keys, queries);
            // Whether every query of the tile sees every key. Rows past the end are zeros: padding queries add 0, sums of
            // padding keys are not written.
            bool whole = now.start + 1 >= place.first + DKV_KEYS &&
                         (window == 0 || now.start + DKV_QUERIES <= place.first + window);
            with_flag(whole, [&](auto all) {
                UNROLL for (int n = 0; n < DKV_QUERIES / 8; ++n) {
                    UNROLL for (int i = 0; i < 4; ++i) {
                        u32 key = place.first + line + lane / 4 + 8 * (i / 2), at = 8 * n + lane % 4 * 2 + i % 2;
                        bool seen = decltype(all)::value || sees(now.start + at, key, window);
                        weigh<CAPPED>(weights[0][n][i], slopes[0][n][i], seen, logs[at], deltas[at], measure);
                    }
                }
            });
            mix_rows<1, DKV_QUERIES, DKV_FEATURES>(value_sums, weights, seeds, feature);
            sync_block();
            if (more) fetch_seeds(next);
            mix_rows<1, DKV_QUERIES, DKV_FEATURES>(key_sums, slopes, queries, feature);
            sync_block();
            if (more) fetch_queries(next);
            now = next, going = more;
        }
    });
#endif
    u64 narrow_stride = (u64)(heads / group) * dim, from = (u64)place.row * narrow_stride + kv_head * dim;
    if (parts != nullptr) {
        u64 size = tokens * narrow_stride;
        float *own = parts + own_share * 2 * size + from;
        write_rows<DKV_FEATURES>(own, key_sums[0], line, place.length, narrow_stride, feature, dim, scale, scale);
        write_rows<DKV_FEATURES>(own + size, value_sums[0], line, place.length, narrow_stride, feature, dim, 1.0f, 1.0f);
        return;
    }
    write_rows<DKV_FEATURES>(dk + from, key_sums[0], line, place.length, narrow_stride, feature, dim, scale, scale);
    write_rows<DKV_FEATURES>(dv + from, value_sums[0], line, place.length, narrow_stride, feature, dim, 1.0f, 1.0f);
}

#endif
