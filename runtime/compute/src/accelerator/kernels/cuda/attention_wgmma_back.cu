// The gradients of attention by warpgroups: as attention_tensor_back.cu, but each warpgroup of a block has 64 rows, tiles are
// copied one ahead, and weights are made while other products run. See attention_common.cuh.

#if ACTIVATION != 0 && WARPGROUPS

// Places: queries, QUERIES = DQ_QUERIES. Grid: x places, y heads. ATTENTION_THREADS threads.
// Dynamic shared memory: 4 · HEAD_DIM · (DQ_QUERIES + 2 · DQ_KEYS) + 1024 bytes.
KERNEL(ATTENTION_THREADS, DQ_BLOCKS) attention_dq(GLOBAL act *dq, GLOBAL const act *dout, GLOBAL const act *q, GLOBAL const act *k,
                                       GLOBAL const act *v, GLOBAL const float *lse, GLOBAL const float *delta,
                                       GLOBAL const TileEntry *places, GLOBAL const Span *spans, NUMBER(u64) q_stride,
                                       NUMBER(u64) k_stride, NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group,
                                       NUMBER(u32) dim, NUMBER(float) scale, NUMBER(float) cap,
                                       NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *queries = first_tile(shared), *seeds = queries + TILE_NUMBERS(DQ_QUERIES);
    act *keys = seeds + TILE_NUMBERS(DQ_QUERIES), *values = keys + 2 * TILE_NUMBERS(DQ_KEYS);
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP, line = own_line();
    u64 stride = (u64)heads * dim;
    k += kv_head * dim, v += kv_head * dim;
    u32 begin = first_key(place.first, window) / DQ_KEYS * DQ_KEYS, end = place.first + place.length;
    u32 count = (end - begin + DQ_KEYS - 1) / DQ_KEYS;

    Walk key_walk = walk_along(spans + place.path, place.count), value_walk = key_walk;
    auto fetch_tile = [&](u32 tile) {
        u32 start = begin + tile * DQ_KEYS, at = tile % 2 * TILE_NUMBERS(DQ_KEYS);
        if (tile < count) {
            fetch_positions<DQ_KEYS>(keys + at, k, k_stride, dim, key_walk, start);
            fetch_positions<DQ_KEYS>(values + at, v, v_stride, dim, value_walk, start);
        }
        end_group();
    };
    fetch_rows<DQ_QUERIES>(queries, q + place.row * q_stride + head * dim, q_stride, dim, place.length);
    fetch_rows<DQ_QUERIES>(seeds, dout + place.row * stride + head * dim, stride, dim, place.length);
    fetch_tile(0);
    float logs[2], deltas[2];
    UNROLL for (int side = 0; side < 2; ++side) {
        u32 row = line + lane / 4 + 8 * side;
        u64 at = (u64)(place.row + row) * heads + head;
        logs[side] = row < place.length ? -lse[at] * LOG2_E : 0.0f;
        deltas[side] = row < place.length ? delta[at] : 0.0f;
    }

    float sums[HEAD_DIM / 8][4] = {};
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
            start_mix<DQ_KEYS>(sums, lefts, keys + at);
            await_products<0>();
            keep(sums);
        }
    });
    write_rows<HEAD_DIM>(dq + (u64)place.row * stride + head * dim, sums, line, place.length, stride, 0, dim, scale, scale);
}

// Places: keys, KEYS = DKV_KEYS. Grid: x places, y kv_heads · ⌈group / share⌉. ATTENTION_THREADS threads. Otherwise as in
// attention_tensor_back.cu. Dynamic shared memory: 4 · HEAD_DIM · (DKV_KEYS + 2 · DKV_QUERIES) + 16 · DKV_QUERIES + 1024 bytes.
KERNEL(ATTENTION_THREADS, DKV_BLOCKS) attention_dkv(GLOBAL act *dk, GLOBAL act *dv, GLOBAL float *parts, NUMBER(u32) share,
                                        NUMBER(u32) tokens, GLOBAL const act *dout, GLOBAL const act *q,
                                        GLOBAL const act *k, GLOBAL const act *v, GLOBAL const float *lse,
                                        GLOBAL const float *delta, GLOBAL const TileEntry *places,
                                        GLOBAL const Span *spans, NUMBER(u64) q_stride, NUMBER(u64) k_stride,
                                        NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group, NUMBER(u32) dim,
                                        NUMBER(float) scale, NUMBER(float) cap, NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *keys = first_tile(shared), *values = keys + TILE_NUMBERS(DKV_KEYS);
    act *queries = values + TILE_NUMBERS(DKV_KEYS), *seeds = queries + 2 * TILE_NUMBERS(DKV_QUERIES);
    // −lse·log₂e and delta of the queries of a tile, of two tiles.
    float *numbers = (float *)(seeds + 2 * TILE_NUMBERS(DKV_QUERIES));
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 shares = (group + share - 1) / share, kv_head = blockIdx.y / shares, own_share = blockIdx.y % shares;
    u32 first_head = kv_head * group + own_share * share, heads_end = least(first_head + share, (kv_head + 1) * group);
    u32 lane = threadIdx.x % WARP, line = own_line(), thread = threadIdx.x;
    u64 stride = (u64)heads * dim;

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

    fetch_rows<DKV_KEYS>(keys, k + place.row * k_stride + kv_head * dim, k_stride, dim, place.length);
    fetch_rows<DKV_KEYS>(values, v + place.row * v_stride + kv_head * dim, v_stride, dim, place.length);
    Meeting now = {first_head, place.path, 0, 0, 0};
    enter(now, spans, place, window);
    bool going = settle(now, spans, place, window, heads_end);
    if (going) {
        float number;
        fetch_tile(now, 0, number);
        write_number(0, number);
    }
    end_group();

    float key_sums[HEAD_DIM / 8][4] = {}, value_sums[HEAD_DIM / 8][4] = {};
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
                start_mix<DKV_QUERIES>(value_sums, lefts, seeds + spot);
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
                start_mix<DKV_QUERIES>(value_sums, lefts, seeds + spot);
            }
            u32 rights[DKV_QUERIES / 16][4];
            pack_weights(rights, slopes);
            start_mix<DKV_QUERIES>(key_sums, rights, queries + spot);
            await_products<0>();
            keep(value_sums);
            keep(key_sums);
            if (more) write_number(half ^ 1, number);
            now = next, going = more;
        }
    });
    await_groups<0>();
    u64 narrow_stride = (u64)(heads / group) * dim, from = (u64)place.row * narrow_stride + kv_head * dim;
    if (parts != nullptr) {
        u64 size = tokens * narrow_stride;
        float *own = parts + own_share * 2 * size + from;
        write_rows<HEAD_DIM>(own, key_sums, line, place.length, narrow_stride, 0, dim, scale, scale);
        write_rows<HEAD_DIM>(own + size, value_sums, line, place.length, narrow_stride, 0, dim, 1.0f, 1.0f);
        return;
    }
    write_rows<HEAD_DIM>(dk + from, key_sums, line, place.length, narrow_stride, 0, dim, scale, scale);
    write_rows<HEAD_DIM>(dv + from, value_sums, line, place.length, narrow_stride, 0, dim, 1.0f, 1.0f);
}

#endif
