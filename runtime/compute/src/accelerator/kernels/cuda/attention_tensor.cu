// Attention on tensor cores: bf16 or f16 activations, sums in f32, no score matrix in memory. Agrees with
// fused/attention.rs and attention/backward.rs within the rounding of 16 bits.
//
// The running softmax of Milakov & Gimelshein, tile by tile as Dao et al. have it. Products are those of attention_mma.cu
// or attention_wgmma.cu; scores, weights and their gradients stay in registers, where what one product leaves is what the
// next takes.
//
// Strides and arguments as in attention_plain.h; besides: dim, all strides and `kv_head · dim` are multiples of 8, all
// pointers on 16 bytes. Dynamic shared memory as said; above 48 KiB the host opts in once a kernel.

#if ACTIVATION != 0

#define LN_2 0.69314718055994531f

// ---- tiles ----

// Starts to copy ROWS rows that lie one after another into a tile; zeros from row `length` on and past `dim`.
template <int ROWS> DEVICE void fetch_rows(act *to, const act *from, u64 stride, u32 dim, u32 length) {
    UNROLL for (u32 first = 0; first < ROWS * PIECES; first += ATTENTION_THREADS) {
        u32 at = first + threadIdx.x, line = at / PIECES, column = at % PIECES * 8;
        if (ROWS * PIECES % ATTENTION_THREADS != 0 && at >= ROWS * PIECES) break;
        bool there = line < length && column < dim;
        fetch(spot_of<ROWS>(to, line, column), there ? from + line * stride + column : from, there);
    }
}

// Starts to copy the rows of ROWS positions from `start` on into a tile; zeros where a path has none. `hint` as for
// `row_of`. Most tiles lie in one span.
template <int ROWS> DEVICE void fetch_positions(act *to, const act *from, u64 stride, u32 dim, const Span *path, u32 count,
                                                u32 &hint, u32 start) {
    u32 row = row_of(path, count, hint, start);
    if (row != NOWHERE && start + ROWS <= path[hint].first + path[hint].length) {
        return fetch_rows<ROWS>(to, from + row * stride, stride, dim, ROWS);
    }
    for (u32 at = threadIdx.x; at < ROWS * PIECES; at += ATTENTION_THREADS) {
        u32 line = at / PIECES, column = at % PIECES * 8, source = row_of(path, count, hint, start + line);
        bool there = source != NOWHERE && column < dim;
        fetch(spot_of<ROWS>(to, line, column), there ? from + source * stride + column : from, there);
    }
}

// Writes two numbers side by side.
DEVICE void put_pair(act *to, float first, float second) { *(u32 *)to = pack<act>(first, second); }
DEVICE void put_pair(float *to, float first, float second) { *(float2 *)to = make_float2(first, second); }

// Writes 16 rows of sums times a factor: a lane has numbers 2t, 2t + 1 of each eight, of rows g and g + 8.
template <int FEATURES, typename T>
DEVICE void write_rows(T *to, const float (&sums)[FEATURES / 8][4], u32 line, u32 length, u64 stride, u32 feature,
                       u32 dim, float factor0, float factor1) {
    u32 lane = threadIdx.x % WARP, low = line + lane / 4, column = feature + lane % 4 * 2;
    UNROLL for (int n = 0; n < FEATURES / 8; ++n) {
        if (column + 8 * n >= dim) continue;
        T *spot = to + column + 8 * n;
        if (low < length) put_pair(spot + low * stride, sums[n][0] * factor0, sums[n][1] * factor0);
        if (low + 8 < length) put_pair(spot + (low + 8) * stride, sums[n][2] * factor1, sums[n][3] * factor1);
    }
}

// How products become scores: `inner` goes into the soft cap, `unit` makes what is left a power of two.
struct Measure {
    float inner, unit, cap;
};

DEVICE Measure measure_of(Scoring scoring) {
    Measure measure;
    measure.inner = scoring.cap != 0.0f ? scoring.scale / scoring.cap : 1.0f;
    measure.unit = scoring.cap != 0.0f ? LOG2_E : scoring.scale * LOG2_E;
    measure.cap = scoring.cap;
    return measure;
}

// The hyperbolic tangent by two fast instructions, off by 10⁻⁷ at most; for scores on their way to 16 bits.
DEVICE float fast_tanh(float x) {
    return 1.0f - 2.0f * reciprocal(1.0f + power_of_two(2.0f * LOG2_E * x));
}

// The score, still to be multiplied with `unit`, and the slope of the cap, if there is one.
template <bool CAPPED> DEVICE float bent_score(float product, Measure measure, float &slope) {
    slope = 1.0f;
    if constexpr (!CAPPED) return product;
    float curve = fast_tanh(product * measure.inner);
    slope = 1.0f - curve * curve;
    return measure.cap * curve;
}

// A flag that is known when what takes it is compiled.
template <bool VALUE> struct Flag {
    static constexpr bool value = VALUE;
};
// Runs `work`, which is compiled once for a flag that is true and once for one that is false.
template <typename F> DEVICE void with_flag(bool flag, F work) {
    if (flag) {
        work(Flag<true>());
    } else {
        work(Flag<false>());
    }
}

// The largest, or the sum, of the four lanes that share a row.
DEVICE float four_most(float value) {
    value = fmaxf(value, shuffle_xor(value, 1));
    return fmaxf(value, shuffle_xor(value, 2));
}
DEVICE float four_sum(float value) {
    value += shuffle_xor(value, 1);
    return value + shuffle_xor(value, 2);
}

// ---- forward ----

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
    const Span *path = spans + place.path;
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP, line = own_line();
    k += kv_head * dim, v += kv_head * dim;

    // Keys and values each keep the span found last: the keys of a tile are copied one tile ahead of its values.
    u32 key_hint = 0, value_hint = 0;
    auto fetch_keys = [&](u32 start) {
        fetch_positions<FORWARD_KEYS>(keys, k, k_stride, dim, path, place.count, key_hint, start);
        end_group();
    };
    auto fetch_values = [&](u32 start) {
        fetch_positions<FORWARD_KEYS>(values, v, v_stride, dim, path, place.count, value_hint, start);
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
            if (CAPPED || !whole) {
                UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
                    UNROLL for (int n = 0; n < FORWARD_KEYS / 8; ++n) {
                        UNROLL for (int i = 0; i < 4; ++i) {
                            u32 query = place.first + line + STACK_ROWS * s + lane / 4 + 8 * (i / 2);
                            float slope, &score = scores[s][n][i];
                            score = bent_score<CAPPED>(score, measure, slope);
                            if (!whole && !sees(query, start + 8 * n + lane % 4 * 2 + i % 2, window)) score = -INFINITE;
                        }
                    }
                }
            }
            UNROLL for (int s = 0; s < FORWARD_STACK; ++s) {
                UNROLL for (int side = 0; side < 2; ++side) {
                    float high = -INFINITE;
                    UNROLL for (int n = 0; n < FORWARD_KEYS / 8; ++n) {
                        high = fmaxf(high, fmaxf(scores[s][n][2 * side], scores[s][n][2 * side + 1]));
                    }
                    float before = best[s][side], now = fmaxf(before, four_most(high));
                    best[s][side] = now;
                    // Nothing seen yet: any finite measure serves.
                    float level = now == -INFINITE ? 0.0f : now * measure.unit;
                    // Exactly 1 where the tile changed nothing: one that hides all its keys must not change a bit.
                    float keep = before == now ? 1.0f : power_of_two(before * measure.unit - level), sum = 0.0f;
                    UNROLL for (int n = 0; n < FORWARD_KEYS / 8; ++n) {
                        UNROLL for (int i = 0; i < 2; ++i) {
                            float &score = scores[s][n][2 * side + i];
                            score = power_of_two(fmaf(score, measure.unit, -level));
                            sum += score;
                        }
                    }
                    total[s][side] = fmaf(total[s][side], keep, sum);
                    UNROLL for (int n = 0; n < HEAD_DIM / 8; ++n) {
                        sums[s][n][2 * side] *= keep, sums[s][n][2 * side + 1] *= keep;
                    }
                }
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
            if (row < place.length) logs[(u64)row * heads] = fmaf(best[s][0] * measure.unit, LN_2, logf(low));
            if (row + 8 < place.length) logs[(u64)(row + 8) * heads] = fmaf(best[s][1] * measure.unit, LN_2, logf(high));
        }
    }
}

#endif
