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
    constexpr u32 STEP = ATTENTION_THREADS / PIECES;
    u32 line = threadIdx.x / PIECES, column = threadIdx.x % PIECES * 8;
    if constexpr (ATTENTION_THREADS % PIECES == 0 && STEP % 8 == 0 && ROWS % STEP == 0) {
        // A thread copies the same column of every so many rows: its addresses differ by constants.
        act *spot = spot_of<ROWS>(to, line, column);
        from += line * stride + column;
        length = column < dim ? length : 0;
        UNROLL for (u32 row = 0; row < ROWS; row += STEP) {
            bool there = row + line < length;
            fetch(spot + row * ROW_NUMBERS, there ? from + row * stride : from, there);
        }
    } else {
        UNROLL for (u32 first = 0; first < ROWS * PIECES; first += ATTENTION_THREADS) {
            u32 at = first + threadIdx.x, line = at / PIECES, column = at % PIECES * 8;
            if (ROWS * PIECES % ATTENTION_THREADS != 0 && at >= ROWS * PIECES) break;
            bool there = line < length && column < dim;
            fetch(spot_of<ROWS>(to, line, column), there ? from + line * stride + column : from, there);
        }
    }
}

// A walk along a path by growing positions: the span found last, and its number.
struct Walk {
    const Span *path;
    u32 count, at;
    Span span;
};

DEVICE Walk walk_along(const Span *path, u32 count) {
    Walk walk = {path, count, 0, path[0]};
    return walk;
}

// Starts to copy the rows of ROWS positions from `start` on into a tile; zeros where a path has none. Most tiles lie in one
// span, whose place is known.
template <int ROWS> DEVICE void fetch_positions(act *to, const act *from, u64 stride, u32 dim, Walk &walk, u32 start) {
    while (start >= walk.span.first + walk.span.length && walk.at + 1 < walk.count) walk.span = walk.path[++walk.at];
    if (start >= walk.span.first && start + ROWS <= walk.span.first + walk.span.length) {
        return fetch_rows<ROWS>(to, from + (walk.span.row + start - walk.span.first) * stride, stride, dim, ROWS);
    }
    u32 hint = walk.at;
    for (u32 at = threadIdx.x; at < ROWS * PIECES; at += ATTENTION_THREADS) {
        u32 line = at / PIECES, column = at % PIECES * 8, source = row_of(walk.path, walk.count, hint, start + line);
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

// What a tile adds to a softmax that runs over tiles: turns scores of two rows of a lane into weights, and raises the
// largest score and the sum of weights of each row. `keep` is what earlier sums are to be multiplied with.
template <int EIGHTS>
DEVICE void soften(float (&scores)[EIGHTS][4], float (&best)[2], float (&total)[2], float (&keep)[2], float unit) {
    UNROLL for (int side = 0; side < 2; ++side) {
        float high = -INFINITE;
        UNROLL for (int n = 0; n < EIGHTS; ++n) {
            high = fmaxf(high, fmaxf(scores[n][2 * side], scores[n][2 * side + 1]));
        }
        float before = best[side], now = fmaxf(before, four_most(high));
        best[side] = now;
        // Nothing seen yet: any finite measure serves.
        float level = now == -INFINITE ? 0.0f : now * unit;
        // Exactly 1 where the tile changed nothing: one that hides all its keys must not change a bit.
        float factor = before == now ? 1.0f : power_of_two(before * unit - level), sum = 0.0f;
        UNROLL for (int n = 0; n < EIGHTS; ++n) {
            UNROLL for (int i = 0; i < 2; ++i) {
                float &score = scores[n][2 * side + i];
                score = power_of_two(fmaf(score, unit, -level));
                sum += score;
            }
        }
        total[side] = fmaf(total[side], factor, sum), keep[side] = factor;
    }
}

// Bends scores by the soft cap, and hides those of keys that a query does not see, unless `whole`: a lane's numbers, of
// queries `query` and query + 8, keys 2t and 2t + 1 of each eight from `key` on.
template <bool CAPPED, int EIGHTS>
DEVICE void bend_scores(float (&scores)[EIGHTS][4], u32 query, u32 key, u32 window, bool whole, Measure measure) {
    if (!CAPPED && whole) return;
    UNROLL for (int n = 0; n < EIGHTS; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) {
            float slope, &score = scores[n][i];
            score = bent_score<CAPPED>(score, measure, slope);
            if (!whole && !sees(query + 8 * (i / 2), key + 8 * n + threadIdx.x % 4 * 2 + i % 2, window)) score = -INFINITE;
        }
    }
}

template <int EIGHTS> DEVICE void scale_sums(float (&sums)[EIGHTS][4], const float (&factor)[2]) {
    UNROLL for (int n = 0; n < EIGHTS; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) sums[n][i] *= factor[i / 2];
    }
}

// log Σ exp of a row from its largest product and its sum of weights.
DEVICE float log_sum(float best, float total, Measure measure) { return fmaf(best * measure.unit, LN_2, logf(total)); }

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

// Hides products where `seen` says no: their weights are 0.
template <int EIGHTS, typename S> DEVICE void hide_products(float (&products)[EIGHTS][4], S seen) {
    UNROLL for (int n = 0; n < EIGHTS; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) {
            if (!seen(n, i)) products[n][i] = -INFINITE;
        }
    }
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

#endif
