// Attention on tensor cores: bf16 or f16 activations, sums in f32, no score matrix in memory. Agrees with
// fused/attention.rs and attention/backward.rs within the rounding of 16 bits.
//
// The running softmax of Milakov & Gimelshein, tile by tile as Dao et al. have it. Products are mma m16n8k16; scores,
// weights and their gradients stay in registers, where what one product leaves is what the next takes. The gradients
// are two kernels, by tiles of keys and by tiles of queries: each number is summed by one block alone, in order, so
// there are no atomics, at the price of computing the scores twice.
//
// Strides and arguments as in attention_plain.h; besides: dim, all strides and `kv_head · dim` are multiples of 8, all
// pointers on 16 bytes. Dynamic shared memory as said; above 48 KiB the host opts in once a kernel.

#if ACTIVATION != 0

#define LN_2 0.69314718055994531f

#define PIECES (HEAD_DIM / 8)
// Rows of a tile in shared memory: an odd number of 16 bytes apart, so that eight rows lie in different banks.
#define PITCH (HEAD_DIM + 8)

#define ATTENTION_WARPS 4
#define ATTENTION_THREADS (ATTENTION_WARPS * WARP)

// Forward: rows of 16 queries that a warp has, and keys of a tile.
#ifndef FORWARD_STACK
#define FORWARD_STACK (HEAD_DIM <= 128 ? 2 : 1)
#endif
#ifndef FORWARD_KEYS
// By measurement on an H200, see README.md; `registers.txt` has the spills.
#define FORWARD_KEYS (HEAD_DIM > 64 && HEAD_DIM <= 80 || HEAD_DIM == 128 ? 64 : 32)
#endif
#define FORWARD_QUERIES (16 * ATTENTION_WARPS * FORWARD_STACK)

// dq: queries of a tile (16 a warp), and keys.
#define DQ_QUERIES (16 * ATTENTION_WARPS)
#ifndef DQ_KEYS
#define DQ_KEYS 32
#endif

// dk and dv: keys of a tile (16 a warp), queries, and blocks that share the features of a tile.
#define DKV_KEYS (16 * ATTENTION_WARPS)
#ifndef DKV_QUERIES
// 16 at head size 256, where 32 would take more shared memory than small processors (8.6, 8.9, 12.0) let a block have.
#define DKV_QUERIES (HEAD_DIM == 128 ? 64 : HEAD_DIM < 256 ? 32 : 16)
#endif
#define DKV_SPLIT (HEAD_DIM <= 128 ? 1 : 2)
#define DKV_FEATURES (HEAD_DIM / DKV_SPLIT)
static_assert(DKV_FEATURES % 16 == 0, "HEAD_DIM past 128 is a multiple of 32");

// ---- tiles ----

// Starts to copy ROWS rows that lie one after another into a tile; zeros from row `length` on and past `dim`.
template <int ROWS> DEVICE void fetch_rows(act *to, const act *from, u64 stride, u32 dim, u32 length) {
    UNROLL for (u32 first = 0; first < ROWS * PIECES; first += ATTENTION_THREADS) {
        u32 at = first + threadIdx.x, line = at / PIECES, column = at % PIECES * 8;
        if (ROWS * PIECES % ATTENTION_THREADS != 0 && at >= ROWS * PIECES) break;
        bool there = line < length && column < dim;
        fetch(to + line * PITCH + column, there ? from + line * stride + column : from, there);
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
        fetch(to + line * PITCH + column, there ? from + source * stride + column : from, there);
    }
}

// The left operand: rows `row` … row + 15, features `feature` … feature + 15.
DEVICE void load_left(u32 (&words)[4], const act *tile, u32 row, u32 feature) {
    u32 lane = threadIdx.x % WARP;
    load_matrices(words, tile + (row + lane % 16) * PITCH + feature + lane / 16 * 8);
}

// The right operand of left·tileᵀ for 16 rows of the tile: words 0, 1 for the first eight, 2, 3 for the others.
DEVICE void load_right_transposed(u32 (&words)[4], const act *tile, u32 row, u32 feature) {
    u32 lane = threadIdx.x % WARP;
    load_matrices(words, tile + (row + lane % 8 + lane / 16 * 8) * PITCH + feature + lane / 8 % 2 * 8);
}

// The right operand of left·tile for 16 rows of the tile (which are summed over) and 16 features: words 0, 1 for the
// first eight features, 2, 3 for the others.
DEVICE void load_right(u32 (&words)[4], const act *tile, u32 row, u32 feature) {
    u32 lane = threadIdx.x % WARP;
    load_matrices_transposed(words, tile + (row + lane % 16) * PITCH + feature + lane / 16 * 8);
}

// sums += left rows · right rowsᵀ over all features: 16 · STACK rows from `row` on, COUNT right rows.
template <int STACK, int COUNT>
DEVICE void row_products(float (&sums)[STACK][COUNT / 8][4], const act *left, u32 row, const act *right) {
    UNROLL for (int feature = 0; feature < HEAD_DIM; feature += 16) {
        u32 lefts[STACK][4];
        UNROLL for (int s = 0; s < STACK; ++s) load_left(lefts[s], left, row + 16 * s, feature);
        UNROLL for (int n = 0; n < COUNT / 16; ++n) {
            u32 rights[4];
            load_right_transposed(rights, right, 16 * n, feature);
            UNROLL for (int s = 0; s < STACK; ++s) {
                multiply<act>(sums[s][2 * n], lefts[s], rights[0], rights[1]);
                multiply<act>(sums[s][2 * n + 1], lefts[s], rights[2], rights[3]);
            }
        }
    }
}

// sums += weights · rows: weights as a product left them, COUNT rows, FEATURES features from `feature` on.
template <int STACK, int COUNT, int FEATURES>
DEVICE void mix_rows(float (&sums)[STACK][FEATURES / 8][4], const float (&weights)[STACK][COUNT / 8][4],
                     const act *rows, u32 feature) {
    UNROLL for (int n = 0; n < COUNT / 16; ++n) {
        u32 lefts[STACK][4];
        UNROLL for (int s = 0; s < STACK; ++s) {
            const float(&low)[4] = weights[s][2 * n], (&high)[4] = weights[s][2 * n + 1];
            lefts[s][0] = pack<act>(low[0], low[1]), lefts[s][1] = pack<act>(low[2], low[3]);
            lefts[s][2] = pack<act>(high[0], high[1]), lefts[s][3] = pack<act>(high[2], high[3]);
        }
        UNROLL for (int f = 0; f < FEATURES / 16; ++f) {
            u32 rights[4];
            load_right(rights, rows, 16 * n, feature + 16 * f);
            UNROLL for (int s = 0; s < STACK; ++s) {
                multiply<act>(sums[s][2 * f], lefts[s], rights[0], rights[1]);
                multiply<act>(sums[s][2 * f + 1], lefts[s], rights[2], rights[3]);
            }
        }
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
    act *queries = (act *)shared, *keys = queries + FORWARD_QUERIES * PITCH, *values = keys + FORWARD_KEYS * PITCH;
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    const Span *path = spans + place.path;
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP;
    u32 line = threadIdx.x / WARP * 16 * FORWARD_STACK;
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
            await_groups<1>();
            sync_block();
            float scores[FORWARD_STACK][FORWARD_KEYS / 8][4] = {};
            row_products<FORWARD_STACK, FORWARD_KEYS>(scores, queries, line, keys);
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
                            u32 query = place.first + line + 16 * s + lane / 4 + 8 * (i / 2);
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
            await_groups<1>();
            sync_block();
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
        u32 row = line + 16 * s + lane / 4;
        float low = four_sum(total[s][0]), high = four_sum(total[s][1]);
        write_rows<HEAD_DIM>(to, sums[s], line + 16 * s, place.length, stride, 0, dim, 1.0f / low, 1.0f / high);
        if (lane % 4 == 0) {
            float *logs = lse + (u64)place.row * heads + head;
            if (row < place.length) logs[(u64)row * heads] = fmaf(best[s][0] * measure.unit, LN_2, logf(low));
            if (row + 8 < place.length) logs[(u64)(row + 8) * heads] = fmaf(best[s][1] * measure.unit, LN_2, logf(high));
        }
    }
}

// ---- gradients: `attention_delta` (attention_plain.h) first, then both of these in any order ----

// A weight from a product, and the gradient by the product over `scale`: p = 2^(s·unit + log_share) with log_share
// −lse·log₂e, ds = p·(dp − delta)·(slope of the cap).
template <bool CAPPED>
DEVICE void weigh(float &product, float &seed, bool seen, float log_share, float delta, Measure measure) {
    float slope, score = bent_score<CAPPED>(product, measure, slope);
    float weight = seen ? power_of_two(fmaf(score, measure.unit, log_share)) : 0.0f;
    seed = weight * (seed - delta);
    if constexpr (CAPPED) seed *= slope;
    product = weight;
}

// dq: [tokens, heads · dim] contiguous, as dout. Places: queries, QUERIES = DQ_QUERIES (64). Grid: x places, y heads.
// 128 threads. Dynamic shared memory: 2 · (HEAD_DIM + 8) · 2 · (DQ_QUERIES + DQ_KEYS) bytes.
KERNEL(ATTENTION_THREADS) attention_dq(GLOBAL act *dq, GLOBAL const act *dout, GLOBAL const act *q, GLOBAL const act *k,
                                       GLOBAL const act *v, GLOBAL const float *lse, GLOBAL const float *delta,
                                       GLOBAL const TileEntry *places, GLOBAL const Span *spans, NUMBER(u64) q_stride,
                                       NUMBER(u64) k_stride, NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group,
                                       NUMBER(u32) dim, NUMBER(float) scale, NUMBER(float) cap,
                                       NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *queries = (act *)shared, *seeds = queries + DQ_QUERIES * PITCH;
    act *keys = seeds + DQ_QUERIES * PITCH, *values = keys + DQ_KEYS * PITCH;
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    const Span *path = spans + place.path;
    u32 head = blockIdx.y, kv_head = head / group, lane = threadIdx.x % WARP, line = threadIdx.x / WARP * 16;
    u64 stride = (u64)heads * dim;
    k += kv_head * dim, v += kv_head * dim;

    u32 key_hint = 0, value_hint = 0;
    auto fetch_keys = [&](u32 start) {
        fetch_positions<DQ_KEYS>(keys, k, k_stride, dim, path, place.count, key_hint, start);
        end_group();
    };
    auto fetch_values = [&](u32 start) {
        fetch_positions<DQ_KEYS>(values, v, v_stride, dim, path, place.count, value_hint, start);
        end_group();
    };
    u32 begin = first_key(place.first, window) / DQ_KEYS * DQ_KEYS, end = place.first + place.length;
    fetch_rows<DQ_QUERIES>(queries, q + place.row * q_stride + head * dim, q_stride, dim, place.length);
    fetch_rows<DQ_QUERIES>(seeds, dout + place.row * stride + head * dim, stride, dim, place.length);
    fetch_values(begin);
    fetch_keys(begin);
    float logs[2], deltas[2];
    UNROLL for (int side = 0; side < 2; ++side) {
        u32 row = line + lane / 4 + 8 * side;
        u64 at = (u64)(place.row + row) * heads + head;
        logs[side] = row < place.length ? -lse[at] * LOG2_E : 0.0f;
        deltas[side] = row < place.length ? delta[at] : 0.0f;
    }

    // Values are done with first, so the next ones come while the scores are made, and the next keys while the seeds
    // meet those values.
    float sums[1][HEAD_DIM / 8][4] = {};
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        for (u32 start = begin; start < end; start += DQ_KEYS) {
            bool more = start + DQ_KEYS < end;
            float weights[1][DQ_KEYS / 8][4] = {}, slopes[1][DQ_KEYS / 8][4] = {};
            await_groups<1>();
            sync_block();
            row_products<1, DQ_KEYS>(slopes, seeds, line, values);
            await_groups<0>();
            sync_block();
            if (more) fetch_values(start + DQ_KEYS);
            row_products<1, DQ_KEYS>(weights, queries, line, keys);
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
    write_rows<HEAD_DIM>(dq + (u64)place.row * stride + head * dim, sums[0], line, place.length, stride, 0, dim, scale,
                         scale);
}

// A tile of queries that meets a tile of keys: which head, which span, from which position on.
struct Meeting {
    u32 head, number, start, end, row;
};

// The queries of a span that see any key of a place.
DEVICE void enter(Meeting &meeting, const Span *spans, TileEntry place, u32 window) {
    Span span = spans[meeting.number];
    meeting.start = most(span.first, place.first), meeting.end = span.first + span.length;
    if (window != 0) meeting.end = least(meeting.end, place.first + place.length - 1 + window);
    meeting.row = span.row + (meeting.start - span.first);
}

// Goes on to the next tile that is not empty, this one included; false after the last head's last.
DEVICE bool settle(Meeting &meeting, const Span *spans, TileEntry place, u32 window, u32 heads_end) {
    while (meeting.start >= meeting.end) {
        if (++meeting.number == place.path + place.count) {
            meeting.number = place.path;
            if (++meeting.head == heads_end) return false;
        }
        enter(meeting, spans, place, window);
    }
    return true;
}

// dk and dv: [tokens, kv_heads · dim] contiguous: sums over the heads of a group, in order, and over all queries that
// see the keys, those of the own sequence first. Places: keys, KEYS = DKV_KEYS (64). Grid: x places, y heads / share, z
// DKV_SPLIT (1 up to head size 128, else 2). 128 threads. Scores are transposed here: their rows are keys.
// A block sums `share` heads of a group. Where that is the whole group, `parts` is null; else dk and dv are null and the
// sums go to parts, [group / share, 2, tokens, kv_heads · dim], dk before dv, to be added in order by `add_parts`.
// Dynamic shared memory: 2 · (HEAD_DIM + 8) · 2 · (DKV_KEYS + DKV_QUERIES) + 8 · DKV_QUERIES bytes.
KERNEL(ATTENTION_THREADS) attention_dkv(GLOBAL act *dk, GLOBAL act *dv, GLOBAL float *parts, NUMBER(u32) share,
                                        NUMBER(u32) tokens, GLOBAL const act *dout, GLOBAL const act *q,
                                        GLOBAL const act *k, GLOBAL const act *v, GLOBAL const float *lse,
                                        GLOBAL const float *delta, GLOBAL const TileEntry *places,
                                        GLOBAL const Span *spans, NUMBER(u64) q_stride, NUMBER(u64) k_stride,
                                        NUMBER(u64) v_stride, NUMBER(u32) heads, NUMBER(u32) group, NUMBER(u32) dim,
                                        NUMBER(float) scale, NUMBER(float) cap, NUMBER(u32) window WHERE) {
    SHARED_BYTES(shared);
    act *keys = (act *)shared, *values = keys + DKV_KEYS * PITCH;
    act *queries = values + DKV_KEYS * PITCH, *seeds = queries + DKV_QUERIES * PITCH;
    float *logs = (float *)(seeds + DKV_QUERIES * PITCH), *deltas = logs + DKV_QUERIES;
    Scoring scoring = {scale, cap, window};
    Measure measure = measure_of(scoring);
    TileEntry place = places[blockIdx.x];
    u32 first_head = blockIdx.y * share, heads_end = first_head + share, kv_head = first_head / group;
    u32 lane = threadIdx.x % WARP, line = threadIdx.x / WARP * 16, feature = blockIdx.z * DKV_FEATURES;
    u64 stride = (u64)heads * dim;

    auto fetch_queries = [&](Meeting at) {
        fetch_rows<DKV_QUERIES>(queries, q + at.row * q_stride + at.head * dim, q_stride, dim, at.end - at.start);
        end_group();
    };
    auto fetch_seeds = [&](Meeting at) {
        u32 length = at.end - at.start, thread = threadIdx.x;
        fetch_rows<DKV_QUERIES>(seeds, dout + at.row * stride + at.head * dim, stride, dim, length);
        end_group();
        if (thread < DKV_QUERIES) {
            u64 spot = (u64)(at.row + thread) * heads + at.head;
            logs[thread] = thread < length ? -lse[spot] * LOG2_E : 0.0f;
            deltas[thread] = thread < length ? delta[spot] : 0.0f;
        }
    };

    fetch_rows<DKV_KEYS>(keys, k + place.row * k_stride + kv_head * dim, k_stride, dim, place.length);
    fetch_rows<DKV_KEYS>(values, v + place.row * v_stride + kv_head * dim, v_stride, dim, place.length);
    Meeting now = {first_head, place.path, 0, 0, 0};
    enter(now, spans, place, window);
    bool going = settle(now, spans, place, window, heads_end);
    if (going) {
        fetch_seeds(now);
        fetch_queries(now);
    }

    // Seeds are done with first: the next ones come while the keys take theirs, the next queries while those seeds meet
    // the values.
    float key_sums[1][DKV_FEATURES / 8][4] = {}, value_sums[1][DKV_FEATURES / 8][4] = {};
    with_flag(cap != 0.0f, [&](auto capped) {
        constexpr bool CAPPED = decltype(capped)::value;
        while (going) {
            Meeting next = now;
            next.start += DKV_QUERIES, next.row += DKV_QUERIES;
            bool more = settle(next, spans, place, window, heads_end);
            float weights[1][DKV_QUERIES / 8][4] = {}, slopes[1][DKV_QUERIES / 8][4] = {};
            await_groups<1>();
            sync_block();
            row_products<1, DKV_QUERIES>(slopes, values, line, seeds);
            await_groups<0>();
            sync_block();
            row_products<1, DKV_QUERIES>(weights, keys, line, queries);
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
    u64 narrow_stride = (u64)(heads / group) * dim, from = (u64)place.row * narrow_stride + kv_head * dim;
    if (parts != nullptr) {
        u64 size = tokens * narrow_stride;
        float *own = parts + first_head % group / share * 2 * size + from;
        write_rows<DKV_FEATURES>(own, key_sums[0], line, place.length, narrow_stride, feature, dim, scale, scale);
        write_rows<DKV_FEATURES>(own + size, value_sums[0], line, place.length, narrow_stride, feature, dim, 1.0f, 1.0f);
        return;
    }
    write_rows<DKV_FEATURES>(dk + from, key_sums[0], line, place.length, narrow_stride, feature, dim, scale, scale);
    write_rows<DKV_FEATURES>(dv + from, value_sums[0], line, place.length, narrow_stride, feature, dim, 1.0f, 1.0f);
}

#endif
