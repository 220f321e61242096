// The language-model head without its logits: a tile of them is looked at and thrown away. Agrees with fused/head.rs,
// head/statistics.rs, head/backward.rs and head/slopes.rs.
//
// The host walks over the vocabulary in tiles, in order. For each, cuBLAS writes the products x = hidden·Wᵀ of `rows`
// hidden states with `words` rows of the head, f32, rows of the tile `pitch` numbers apart (pitch ≥ words; eights are
// fast), `first` being the first word's number. Then one of the kernels here, one block a row, and where there is one
// the second product. The logit of a product is z = factor·x, or height·tanh(factor·x) under a soft cap, with
//     factor = logit_scale · inverse_temperature, height = 0 without a cap;
//     factor = logit_scale / cap, height = cap · inverse_temperature with one.
// Statistics are merged tile by tile in the order of the stream, inside a tile in a fixed tree: no atomics.
//
// Launch of all: `rows` blocks (the grid's x axis) of HEAD_THREADS threads, no dynamic shared memory. Tiles of 8192 to
// 32768 words and 512 to 2048 rows keep both products large; a tile takes rows · pitch · 4 bytes.

#define HEAD_THREADS 512

// Which sums are wanted, as bits.
#define TAP_ENTROPY 1u
#define TAP_LOG_SUM_SQUARE 2u
#define TAP_MEAN 4u

// Sums over the words so far, with e = exp(z − largest): structure of arrays, [rows] each.
struct Sums {
    float *largest; // the largest logit
    float *target;  // the target's logit, not a number before its tile
    double *sum;    // Σ e
    double *square; // Σ e²
    double *weighted; // Σ e·(z − largest)
    double *plain;  // Σ z
};

// The same for some words of a row, in registers.
struct Part {
    float largest, sum, square, weighted, plain;
};

DEVICE Part no_words() {
    Part part = {-INFINITE, 0.0f, 0.0f, 0.0f, 0.0f};
    return part;
}

// The sums over the words of both. Nothing yet has −∞ as its largest, and 0 · ∞ would not be a number.
DEVICE Part merged(Part a, Part b) {
    Part high = a.largest >= b.largest ? a : b, low = a.largest >= b.largest ? b : a;
    if (low.largest == -INFINITE) {
        // 0, or what is not a number, which every sum must find.
        high.sum += low.sum;
        high.plain += low.plain;
        return high;
    }
    float gap = low.largest - high.largest, shrink = expf(gap);
    high.sum = fmaf(shrink, low.sum, high.sum);
    high.square = fmaf(shrink * shrink, low.square, high.square);
    high.weighted += shrink * (low.weighted + gap * low.sum);
    high.plain += low.plain;
    return high;
}

// One more word.
DEVICE void take(Part &part, float z, u32 taps) {
    if (z > part.largest) {
        float gap = part.largest - z, shrink = expf(gap);
        if (taps & TAP_ENTROPY) part.weighted = part.sum > 0.0f ? shrink * (part.weighted + gap * part.sum) : 0.0f;
        part.sum *= shrink;
        part.square *= shrink * shrink;
        part.largest = z;
    }
    float e = expf(z - part.largest);
    part.sum += e;
    if (taps & TAP_LOG_SUM_SQUARE) part.square = fmaf(e, e, part.square);
    if (taps & TAP_ENTROPY) part.weighted = fmaf(e, z - part.largest, part.weighted);
    part.plain += z;
}

DEVICE Part across_part(Part part, int mask) {
    Part other = {across(part.largest, mask), across(part.sum, mask), across(part.square, mask),
                  across(part.weighted, mask), across(part.plain, mask)};
    return other;
}

// The sums of all threads of a block, in thread 0.
DEVICE Part merged_block(Part part) {
    __shared__ Part parts[HEAD_THREADS / WARP];
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        Part other = across_part(part, mask);
        // The lower lane first, in both lanes.
        part = threadIdx.x & mask ? merged(other, part) : merged(part, other);
    }
    meet_block();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = part;
    meet_block();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / WARP; ++warp) part = merged(part, parts[warp]);
    }
    return part;
}

// The logit of a product, and the slope of the cap there.
DEVICE float bent(float x, float factor, float height, float &slope) {
    float z = factor * x;
    slope = 1.0f;
    if (height != 0.0f) {
        float curve = tanhf(z);
        slope = 1.0f - curve * curve;
        z = height * curve;
    }
    return z;
}

DEVICE Part look(const float *line, u32 words, float factor, float height, u32 taps) {
    Part part = no_words();
    along(words, words % 8 == 0 && even(line), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value];
        load(numbers, line + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) {
            float slope;
            take(part, bent(numbers[i], factor, height, slope), taps);
        }
    });
    return merged_block(part);
}

// Takes a tile's sums into those of the row; thread 0. Returns the largest logit before.
DEVICE float absorb(Sums all, u32 row, Part here, bool begins, u32 taps) {
    float before = begins ? -INFINITE : all.largest[row];
    double sum = begins ? 0.0 : all.sum[row], square = 0.0, weighted = 0.0, plain = 0.0;
    if (!begins) {
        if (taps & TAP_LOG_SUM_SQUARE) square = all.square[row];
        if (taps & TAP_ENTROPY) weighted = all.weighted[row];
        if (taps & TAP_MEAN) plain = all.plain[row];
    }
    float largest = fmaxf(before, here.largest);
    // What is not yet there weighs nothing.
    double gap_old = (double)before - (double)largest, gap_new = (double)here.largest - (double)largest;
    double old_share = before == -INFINITE ? 0.0 : exp(gap_old), new_share = exp(gap_new);
    if (before == -INFINITE) gap_old = 0.0;
    all.largest[row] = largest;
    all.sum[row] = old_share * sum + new_share * (double)here.sum;
    if (taps & TAP_LOG_SUM_SQUARE) {
        all.square[row] = old_share * old_share * square + new_share * new_share * (double)here.square;
    }
    if (taps & TAP_ENTROPY) {
        all.weighted[row] = old_share * (weighted + gap_old * sum) +
                            new_share * ((double)here.weighted + gap_new * (double)here.sum);
    }
    if (taps & TAP_MEAN) all.plain[row] = plain + (double)here.plain;
    return before;
}

// The target's logit if it is in the tile; thread 0, before the tile is overwritten.
DEVICE void find_target(Sums all, u32 row, const float *line, const u32 *targets, u32 first, u32 words, bool begins,
                        float factor, float height, u32 vocabulary, u64 *word, u32 place) {
    u32 target = inside(targets[row], vocabulary, word, place);
    float slope;
    if (target >= first && target - first < words) {
        all.target[row] = bent(line[target - first], factor, height, slope);
    } else if (begins) {
        all.target[row] = __int_as_float(0x7fffffff);
    }
}

// Takes a tile into the sums; reads `tile`, writes the sums. begins is 1 for the first tile. head.rs `statistics`.
KERNEL void head_statistics(const float *tile, const u32 *targets, float *largest, float *target, double *sum,
                            double *square, double *weighted, double *plain, u32 rows, u32 words, u32 pitch, u32 first,
                            u32 vocabulary, float factor, float height, u32 taps, u32 begins, u64 *word, u32 place) {
    Sums all = {largest, target, sum, square, weighted, plain};
    u32 row = blockIdx.x;
    const float *line = tile + (u64)row * pitch;
    Part here = look(line, words, factor, height, taps);
    if (threadIdx.x != 0) return;
    find_target(all, row, line, targets, first, words, begins, factor, height, vocabulary, word, place);
    absorb(all, row, here, begins, taps);
}

// From the sums over the whole vocabulary to the taps, f32 [rows] each; any of the optional ones may be null.
// Grid: ⌈rows / 128⌉ blocks of 128 threads. head.rs `HeadTaps::push`.
KERNEL void head_finish(const float *largest, const float *target, const double *sum, const double *square,
                        const double *weighted, const double *plain, float *logprob, float *log_sum_exp, float *entropy,
                        float *log_sum_square, float *mean_logit, float *mean_logprob, float *top_one, u32 rows,
                        u32 vocabulary) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double log_sum = log(sum[row]), all = (double)largest[row] + log_sum;
    logprob[row] = (float)((double)target[row] - all);
    log_sum_exp[row] = (float)all;
    if (entropy) entropy[row] = (float)(log_sum - weighted[row] / sum[row]);
    if (log_sum_square) log_sum_square[row] = (float)(log(square[row]) - 2.0 * log_sum);
    if (mean_logit) mean_logit[row] = (float)(plain[row] / vocabulary);
    if (mean_logprob) mean_logprob[row] = (float)(plain[row] / vocabulary - all);
    if (top_one) top_one[row] = target[row] >= largest[row] ? 1.0f : 0.0f;
}

// Writes what `work` makes of a row of a tile. `to` may be `line` itself where activations are f32: a thread writes what
// it alone has read.
template <typename F> DEVICE void remake(act *to, const float *line, u32 words, F work) {
    along(words, words % 8 == 0 && even(line) && even(to), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value];
        load(numbers, line + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] = work(at + i, numbers[i]);
        store(to + at, numbers);
    });
}

// Products become the gradients of a loss by them, in the type of activations, `to` with rows pitch apart as `tile`.
// With seeds g of the log-probability, e of the entropy H and m of the mean log-probability (each [rows], or null):
//     dz = g·[word = target] + m/V − p·(g + m + e·H) − e·p·ln p,  dx = factor' · slope of the cap · dz,
// factor' = logit_scale · inverse_temperature. Second products: dhidden += dx·W, dW = dxᵀ·hidden. backward.rs.
KERNEL void head_gradient(act *to, const float *tile, const u32 *targets, const float *log_sum_exp,
                          const float *entropy, const float *seed_logprob, const float *seed_entropy,
                          const float *seed_mean, u32 rows, u32 words, u32 pitch, u32 first, u32 vocabulary,
                          float factor, float height, float outer_factor) {
    u32 row = blockIdx.x, target = targets[row] - first;
    float log_sum = log_sum_exp[row], hit = seed_logprob ? seed_logprob[row] : 0.0f;
    float curved = seed_entropy ? -seed_entropy[row] : 0.0f, even_share = seed_mean ? seed_mean[row] : 0.0f;
    float linear = -(hit + even_share - (seed_entropy ? curved * entropy[row] : 0.0f));
    even_share /= (float)vocabulary;
    remake(to + (u64)row * pitch, tile + (u64)row * pitch, words, [&](u32 at, float x) {
        float slope, z = bent(x, factor, height, slope), log_share = z - log_sum;
        float pull = fmaf(expf(log_share), fmaf(curved, log_share, linear), even_share);
        // A target before the tile wraps around to a number past every tile.
        if (at == target) pull += hit;
        return outer_factor * slope * pull;
    });
}

// Takes a tile into the sums and leaves in `to`, of the type of activations, rows pitch apart as those of `tile`, the
// weights e = exp(z − the largest so far), times the slope of the cap; scales what was pulled so far, pulls
// [rows, width] f32, to the new measure. The product that follows: pulls += weights·W (beta 1; `begins` clears them).
// slopes.rs `absorb`.
KERNEL void head_accumulate(act *to, const float *tile, const u32 *targets, float *pulls, float *largest, float *target,
                        double *sum, double *square, double *weighted, double *plain, u32 rows, u32 words, u32 pitch,
                        u32 first, u32 vocabulary, u32 width, float factor, float height, u32 taps, u32 begins,
                        u64 *word, u32 place) {
    __shared__ float measure, shrink;
    Sums all = {largest, target, sum, square, weighted, plain};
    u32 row = blockIdx.x;
    const float *line = tile + (u64)row * pitch;
    Part here = look(line, words, factor, height, taps);
    if (threadIdx.x == 0) {
        find_target(all, row, line, targets, first, words, begins, factor, height, vocabulary, word, place);
        float before = absorb(all, row, here, begins, taps);
        measure = fmaxf(before, here.largest);
        shrink = before == -INFINITE ? 0.0f : expf(before - measure);
    }
    // From here on `to` may overwrite the tile.
    meet_block();
    float level = measure, scale = shrink;
    remake(to + (u64)row * pitch, line, words, [&](u32, float x) {
        float slope, z = bent(x, factor, height, slope);
        return expf(z - level) * slope;
    });
    if (scale == 1.0f) return;
    float *pull = pulls + (u64)row * width;
    along(width, width % 8 == 0 && even(pull), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value];
        if (begins) {
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] = 0.0f;
        } else {
            load(numbers, pull + at);
#pragma unroll
            for (int i = 0; i < n.value; ++i) numbers[i] *= scale;
        }
        store(pull + at, numbers);
    });
}

// In place: pulls, [rows, width] f32, become the gradients of each row's log-probability by its hidden state:
//     factor' · (slope of the cap at the target · W[target] − pulls / sum).
// words: W[target] of every row, [rows, width] in the type of activations (`embed_…` or unpack.cu by the targets).
// Launch as the others. slopes.rs `slope`.
KERNEL void head_slopes(float *pulls, const act *words, const float *target, const double *sum, u32 rows, u32 width,
                        float height, float outer_factor) {
    u32 row = blockIdx.x;
    float curve = height != 0.0f ? target[row] / height : 0.0f;
    float hit = outer_factor * (1.0f - curve * curve), share = (float)((double)outer_factor / sum[row]);
    float *pull = pulls + (u64)row * width;
    const act *line = words + (u64)row * width;
    along(width, width % 8 == 0 && even(pull) && even(line), threadIdx.x, blockDim.x, [&](u32 at, auto n) {
        float numbers[n.value], own[n.value];
        load(numbers, pull + at);
        load(own, line + at);
#pragma unroll
        for (int i = 0; i < n.value; ++i) numbers[i] = fmaf(numbers[i], -share, hit * own[i]);
        store(pull + at, numbers);
    });
}

// In place: products become logits, for generation. Grid: as the others, over [rows, words]. head.rs `logits`.
KERNEL void head_soft_cap(float *tile, u32 rows, u32 words, u32 pitch, float factor, float height) {
    float *line = tile + (u64)blockIdx.x * pitch;
    for (u32 at = threadIdx.x; at < words; at += blockDim.x) {
        float slope;
        line[at] = bent(line[at], factor, height, slope);
    }
}
