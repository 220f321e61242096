// The language-model head without its logits: a tile of them is looked at and thrown away. Agrees with fused/head.rs,
// head/statistics.rs, head/backward.rs and head/logprob_gradients.rs.
//
// The host walks over the vocabulary in tiles, in order. For each, a product writes x = hidden·Wᵀ of `rows` hidden
// states with `words` rows of the head, f32, rows of the tile `pitch` numbers apart (pitch ≥ words; eights are
// fast), `first` being the first word's number. Then one of the kernels here, one block a row, and where there is one
// the second product. The logit of a product is z = factor·x, or height·tanh(factor·x) under a soft cap, with
//     factor = logit_scale · inverse_temperature, height = 0 without a cap;
//     factor = logit_scale / cap, height = cap · inverse_temperature with one.
// Statistics are merged tile by tile in the order of the stream, inside a tile in a fixed tree: no atomics.
//
// Launch of all: `rows` blocks (the grid's x axis) of HEAD_THREADS threads. Tiles of 8192 to
// 32768 words and 512 to 2048 rows keep both products large; a tile takes rows · pitch · 4 bytes.

#define HEAD_THREADS 512

// Which sums are wanted, as bits.
#define TAP_ENTROPY 1u
#define TAP_LOG_SUM_SQUARE 2u
#define TAP_MEAN 4u

// Sums over the words so far, with e = exp(z − largest): structure of arrays, [rows] each.
struct Sums {
    GLOBAL float *largest;   // the largest logit
    GLOBAL float *target;    // the target's logit, not a number before its tile
    GLOBAL Double *sum;      // Σ e
    GLOBAL Double *square;   // Σ e²
    GLOBAL Double *weighted; // Σ e·(z − largest)
    GLOBAL Double *plain;    // Σ z
};

// The same sums over some words of a row, in registers.
struct Part {
    float largest, sum, square, weighted, plain;
};

// Adds a word with logit z, and returns its e.
DEVICE float add_word(THREAD Part &part, float z, u32 taps) {
    float gap = z - part.largest, e = expf(gap);
    part.sum += e;
    if (taps & TAP_LOG_SUM_SQUARE) part.square = fmaf(e, e, part.square);
    if (taps & TAP_ENTROPY) part.weighted = fmaf(e, gap, part.weighted);
    part.plain += z;
    return e;
}

// The sums of all threads of a block, in every thread. All have the same `largest`. `parts`: WARP numbers.
DEVICE Part sum_block(Part part, u32 taps, LOCAL float *parts, Here here) {
    part.sum = block_sum(part.sum, parts, here);
    if (taps & TAP_LOG_SUM_SQUARE) part.square = block_sum(part.square, parts, here);
    if (taps & TAP_ENTROPY) part.weighted = block_sum(part.weighted, parts, here);
    if (taps & TAP_MEAN) part.plain = block_sum(part.plain, parts, here);
    return part;
}

// The logit of a product, and the slope of the cap there.
DEVICE float apply_soft_cap(float x, float factor, float height, THREAD float &slope) {
    float z = factor * x;
    slope = 1.0f;
    if (height != 0.0f) {
        float curve = tanhf(z);
        slope = 1.0f - curve * curve;
        z = height * curve;
    }
    return z;
}

// Begins the sums over a row of a tile: `largest` is the largest logit of the tile and of those before, in every thread.
DEVICE Part begin_part(GLOBAL const float *line, u32 words, float factor, float height, float before,
                       LOCAL float *parts, Here here) {
    float high = before;
    ALONG(at, N, words, are_aligned(line), here, {
        Numbers<N> numbers = load<N>(line + at);
        UNROLL for (int i = 0; i < N; ++i) {
            float slope;
            high = fmaxf(high, apply_soft_cap(numbers.at[i], factor, height, slope));
        }
    })
    Part part = {block_most(high, parts, here), 0.0f, 0.0f, 0.0f, 0.0f};
    return part;
}

// Adds a tile's sums to those of the row; thread 0. `before` is the row's largest logit without the tile.
DEVICE void merge_tile(Sums all, u32 row, float before, Part part, bool begins, u32 taps) {
    // What is not yet there weighs nothing.
    bool nothing_yet = before == -INFINITE;
    Factor gap = nothing_yet ? (Factor)0 : (Factor)before - (Factor)part.largest;
    Factor share = nothing_yet ? (Factor)0 : exp_of(gap);
    Double none = to_double(0.0f), sum = begins ? none : get(all.sum, row);
    all.largest[row] = part.largest;
    put(all.sum, row, plus(times(sum, share), part.sum));
    if (taps & TAP_LOG_SUM_SQUARE) {
        Double square = begins ? none : get(all.square, row);
        put(all.square, row, plus(times(square, share * share), part.square));
    }
    if (taps & TAP_ENTROPY) {
        Double weighted = begins ? none : get(all.weighted, row);
        put(all.weighted, row, plus(times(plus(weighted, times(sum, gap)), share), part.weighted));
    }
    if (taps & TAP_MEAN) put(all.plain, row, begins ? to_double(part.plain) : plus(get(all.plain, row), part.plain));
}

// Writes the target's logit if it is in the tile; thread 0, before the tile is overwritten.
DEVICE void find_target(Sums all, u32 row, GLOBAL const float *line, GLOBAL const u32 *targets, u32 first, u32 words,
                        bool begins, float factor, float height, u32 vocabulary, FAULT_WORD word) {
    u32 target = inside(targets[row], vocabulary, word);
    float slope;
    if (target >= first && target - first < words) {
        all.target[row] = apply_soft_cap(line[target - first], factor, height, slope);
    } else if (begins) {
        all.target[row] = float_of(0x7fffffffu);
    }
}

// Takes a tile into the sums; reads `tile`, writes the sums. begins is 1 for the first tile. head.rs `statistics`.
KERNEL(HEAD_THREADS) head_statistics(GLOBAL const float *tile, GLOBAL const u32 *targets, GLOBAL float *largest,
                                     GLOBAL float *target, GLOBAL Double *sum, GLOBAL Double *square,
                                     GLOBAL Double *weighted, GLOBAL Double *plain, NUMBER(u32) rows,
                                     NUMBER(u32) words, NUMBER(u32) pitch, NUMBER(u32) first, NUMBER(u32) vocabulary,
                                     NUMBER(float) factor, NUMBER(float) height, NUMBER(u32) taps, NUMBER(u32) begins,
                                     FAULT_WORD word WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    Sums all = {largest, target, sum, square, weighted, plain};
    u32 row = here.block.x;
    GLOBAL const float *line = tile + (u64)row * pitch;
    float before = begins != 0 ? -INFINITE : largest[row];
    Part part = begin_part(line, words, factor, height, before, parts, here);
    ALONG(at, N, words, are_aligned(line), here, {
        Numbers<N> numbers = load<N>(line + at);
        UNROLL for (int i = 0; i < N; ++i) {
            float slope;
            add_word(part, apply_soft_cap(numbers.at[i], factor, height, slope), taps);
        }
    })
    part = sum_block(part, taps, parts, here);
    if (here.index != 0) return;
    find_target(all, row, line, targets, first, words, begins != 0, factor, height, vocabulary, word);
    merge_tile(all, row, before, part, begins != 0, taps);
}

// From the sums over the whole vocabulary to the taps, f32 [rows] each; any of the optional ones may be null.
// Grid: ⌈rows / 128⌉ blocks of 128 threads. head.rs `HeadTaps::push`.
KERNEL(128) head_finish(GLOBAL const float *largest, GLOBAL const float *target, GLOBAL const Double *sum,
                        GLOBAL const Double *square, GLOBAL const Double *weighted, GLOBAL const Double *plain,
                        GLOBAL float *logprob, GLOBAL float *logsumexp, GLOBAL float *entropy,
                        GLOBAL float *log_sum_square, GLOBAL float *mean_logit, GLOBAL float *mean_logprob,
                        GLOBAL float *top_one, NUMBER(u32) rows, NUMBER(u32) vocabulary WHERE) {
    Here here = HERE;
    u32 row = here.block.x * here.threads + here.index;
    if (row >= rows) return;
    Double total = get(sum, row), log_sum = logarithm(total), all = plus(log_sum, largest[row]);
    logprob[row] = rounded(plus(negated(all), target[row]));
    logsumexp[row] = rounded(all);
    if (THERE(8, entropy)) entropy[row] = rounded(plus(log_sum, divided(get(weighted, row), negated(total))));
    if (THERE(9, log_sum_square)) {
        log_sum_square[row] = rounded(plus(logarithm(get(square, row)), times(log_sum, -2.0f)));
    }
    if (THERE(10, mean_logit)) mean_logit[row] = rounded(divided(get(plain, row), to_double((float)vocabulary)));
    if (THERE(11, mean_logprob)) {
        mean_logprob[row] = rounded(plus(divided(get(plain, row), to_double((float)vocabulary)), negated(all)));
    }
    if (THERE(12, top_one)) top_one[row] = target[row] >= largest[row] ? 1.0f : 0.0f;
}

// Products become the gradients of a loss by them, in the type of activations, `to` with rows pitch apart as `tile`; it
// may be `tile` where activations are f32: a thread writes what it alone has read. With seeds g of the log-probability,
// e of the entropy H and m of the mean log-probability (each [rows], or null):
//     dz = g·[word = target] + m/V − p·(g + m + e·H) − e·p·ln p,  dx = outer_factor · slope of the cap · dz,
// outer_factor = logit_scale · inverse_temperature. Second products: dhidden += dx·W, dW = dxᵀ·hidden. backward.rs.
KERNEL(HEAD_THREADS) head_gradient(GLOBAL act *to, GLOBAL const float *tile, GLOBAL const u32 *targets,
                                   GLOBAL const float *logsumexp, GLOBAL const float *entropy,
                                   GLOBAL const float *seed_logprob, GLOBAL const float *seed_entropy,
                                   GLOBAL const float *seed_mean, NUMBER(u32) rows, NUMBER(u32) words,
                                   NUMBER(u32) pitch, NUMBER(u32) first, NUMBER(u32) vocabulary, NUMBER(float) factor,
                                   NUMBER(float) height, NUMBER(float) outer_factor WHERE) {
    Here here = HERE;
    u32 row = here.block.x, target = targets[row] - first;
    GLOBAL const float *line = tile + (u64)row * pitch;
    GLOBAL act *out = to + (u64)row * pitch;
    float log_sum = logsumexp[row], hit = THERE(5, seed_logprob) ? seed_logprob[row] : 0.0f;
    float curved = THERE(6, seed_entropy) ? -seed_entropy[row] : 0.0f;
    float even_share = THERE(7, seed_mean) ? seed_mean[row] : 0.0f;
    float linear = -(hit + even_share - (THERE(6, seed_entropy) ? curved * entropy[row] : 0.0f));
    even_share /= (float)vocabulary;
    ALONG(at, N, words, are_aligned(line, out), here, {
        Numbers<N> numbers = load<N>(line + at);
        UNROLL for (u32 i = 0; i < N; ++i) {
            float slope, z = apply_soft_cap(numbers.at[i], factor, height, slope), log_share = z - log_sum;
            float pull = fmaf(expf(log_share), fmaf(curved, log_share, linear), even_share);
            // A target before the tile wraps around to a number past every tile.
            if (at + i == target) pull += hit;
            numbers.at[i] = outer_factor * slope * pull;
        }
        store(out + at, numbers);
    })
}

// Takes a tile into the sums and leaves in `to`, of the type of activations, rows pitch apart as those of `tile`, the
// weights e = exp(z − the largest so far), times the slope of the cap; scales what was pulled so far, pulls
// [rows, width] f32, to the new measure. The product that follows: pulls += weights·W (beta 1; `begins` clears them).
// logprob_gradients.rs `accumulate_row`.
KERNEL(HEAD_THREADS) head_accumulate(GLOBAL act *to, GLOBAL const float *tile, GLOBAL const u32 *targets,
                                     GLOBAL float *pulls, GLOBAL float *largest, GLOBAL float *target,
                                     GLOBAL Double *sum, GLOBAL Double *square, GLOBAL Double *weighted,
                                     GLOBAL Double *plain, NUMBER(u32) rows, NUMBER(u32) words, NUMBER(u32) pitch,
                                     NUMBER(u32) first, NUMBER(u32) vocabulary, NUMBER(u32) width,
                                     NUMBER(float) factor, NUMBER(float) height, NUMBER(u32) taps, NUMBER(u32) begins,
                                     FAULT_WORD word WHERE) {
    SHARED float parts[WARP];
    Here here = HERE;
    Sums all = {largest, target, sum, square, weighted, plain};
    u32 row = here.block.x;
    GLOBAL const float *line = tile + (u64)row * pitch;
    GLOBAL act *out = to + (u64)row * pitch;
    float before = begins != 0 ? -INFINITE : largest[row];
    if (here.index == 0) {
        find_target(all, row, line, targets, first, words, begins != 0, factor, height, vocabulary, word);
    }
    // All threads meet in here: from then on `to` may overwrite the tile.
    Part part = begin_part(line, words, factor, height, before, parts, here);
    ALONG(at, N, words, are_aligned(line, out), here, {
        Numbers<N> numbers = load<N>(line + at);
        UNROLL for (int i = 0; i < N; ++i) {
            float slope, z = apply_soft_cap(numbers.at[i], factor, height, slope);
            numbers.at[i] = slope * add_word(part, z, taps);
        }
        store(out + at, numbers);
    })
    part = sum_block(part, taps, parts, here);
    if (here.index == 0) merge_tile(all, row, before, part, begins != 0, taps);
    float scale = before == -INFINITE ? 0.0f : expf(before - part.largest);
    if (scale == 1.0f) return;
    GLOBAL float *pull = pulls + (u64)row * width;
    ALONG(at, N, width, are_aligned(pull), here, {
        Numbers<N> numbers;
        if (begins != 0) {
            UNROLL for (int i = 0; i < N; ++i) numbers.at[i] = 0.0f;
        } else {
            numbers = scaled(load<N>(pull + at), scale);
        }
        store(pull + at, numbers);
    })
}

// In place: pulls, [rows, width] f32, become the gradients of each row's log-probability by its hidden state:
//     outer_factor · (slope of the cap at the target · W[target] − pulls / sum).
// words: W[target] of every row, [rows, width] in the type of activations (`embed_…` or unpack.h by the targets).
// logprob_gradients.rs `write_logprob_gradient`.
KERNEL(HEAD_THREADS) head_logprob_gradients(GLOBAL float *pulls, GLOBAL const act *words, GLOBAL const float *target,
                                            GLOBAL const Double *sum, NUMBER(u32) rows, NUMBER(u32) width,
                                            NUMBER(float) height, NUMBER(float) outer_factor WHERE) {
    Here here = HERE;
    u32 row = here.block.x;
    float curve = height != 0.0f ? target[row] / height : 0.0f;
    float hit = outer_factor * (1.0f - curve * curve);
    float share = rounded(divided(to_double(outer_factor), get(sum, row)));
    GLOBAL float *pull = pulls + (u64)row * width;
    GLOBAL const act *line = words + (u64)row * width;
    ALONG(at, N, width, are_aligned(pull, line), here, {
        store(pull + at, fused(-share, load<N>(pull + at), scaled(load<N>(line + at), hit)));
    })
}

// In place: products become logits, for generation. Grid: as the others, over [rows, words]. head.rs `logits`.
KERNEL(HEAD_THREADS) head_soft_cap(GLOBAL float *tile, NUMBER(u32) rows, NUMBER(u32) words, NUMBER(u32) pitch,
                                   NUMBER(float) factor, NUMBER(float) height WHERE) {
    Here here = HERE;
    GLOBAL float *line = tile + (u64)here.block.x * pitch;
    for (u32 at = here.index; at < words; at += here.threads) {
        float slope;
        line[at] = apply_soft_cap(line[at], factor, height, slope);
    }
}
