// The language-model head without its logits: a tile of them is looked at and thrown away. Agrees with fused/head.rs,
// head/statistics.rs, head/backward.rs and head/slopes.rs; the CUDA text says more.
//
// The host walks over the vocabulary in tiles, in order: products x = hidden·Wᵀ of `rows` hidden states with `words` rows
// of the head, f32, rows of the tile `pitch` numbers apart, `first` being the first word's number. The logit of a product
// is z = factor·x, or height·tanh(factor·x) under a soft cap. Sums over the vocabulary are pairs. Launch of all: `rows`
// groups (the grid's x axis) of HEAD_THREADS threads.

#define HEAD_THREADS 512
#define HEAD_WARPS 16

// Which sums are wanted, as bits.
#define TAP_ENTROPY 1u
#define TAP_LOG_SUM_SQUARE 2u
#define TAP_MEAN 4u

// Sums over the words so far, with e = exp(z − largest): structure of arrays, [rows] each.
struct Sums {
    device float *largest;  // the largest logit
    device float *target;   // the target's logit, not a number before its tile
    device Pair *sum;       // Σ e
    device Pair *square;    // Σ e²
    device Pair *weighted;  // Σ e·(z − largest)
    device Pair *plain;     // Σ z
};

// The same for some words of a row, in registers.
struct Part {
    float largest, sum, square, weighted, plain;
};

// The sums over the words of both. Nothing yet has −∞ as its largest, and 0 · ∞ would not be a number.
inline Part merged(Part a, Part b) {
    bool first = a.largest >= b.largest;
    Part high = first ? a : b, low = first ? b : a;
    if (low.largest == -infinite()) {
        // 0, or what is not a number, which every sum must find.
        high.sum += low.sum;
        high.plain += low.plain;
        return high;
    }
    float gap = low.largest - high.largest, shrink = exp(gap);
    high.sum = fma(shrink, low.sum, high.sum);
    high.square = fma(shrink * shrink, low.square, high.square);
    high.weighted += shrink * (low.weighted + gap * low.sum);
    high.plain += low.plain;
    return high;
}

// One more word.
inline void take(thread Part &part, float z, u32 taps) {
    if (z > part.largest) {
        float gap = part.largest - z, shrink = exp(gap);
        if (taps & TAP_ENTROPY) part.weighted = part.sum > 0.0f ? shrink * (part.weighted + gap * part.sum) : 0.0f;
        part.sum *= shrink;
        part.square *= shrink * shrink;
        part.largest = z;
    }
    float e = exp(z - part.largest);
    part.sum += e;
    if (taps & TAP_LOG_SUM_SQUARE) part.square = fma(e, e, part.square);
    if (taps & TAP_ENTROPY) part.weighted = fma(e, z - part.largest, part.weighted);
    part.plain += z;
}

// The sums of all threads of a group, in thread 0. `parts`: 5 · HEAD_WARPS numbers of the group's memory.
inline Part merged_block(Part part, threadgroup float *parts, Here here) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        Part other = {across(part.largest, mask), across(part.sum, mask), across(part.square, mask),
                      across(part.weighted, mask), across(part.plain, mask)};
        // The lower lane first, in both lanes.
        bool upper = (here.worker & mask) != 0;
        part = merged(upper ? other : part, upper ? part : other);
    }
    meet_block();
    u32 warp = here.worker / WARP;
    if (here.worker % WARP == 0) {
        parts[warp] = part.largest, parts[HEAD_WARPS + warp] = part.sum, parts[2 * HEAD_WARPS + warp] = part.square;
        parts[3 * HEAD_WARPS + warp] = part.weighted, parts[4 * HEAD_WARPS + warp] = part.plain;
    }
    meet_block();
    if (here.worker == 0) {
        for (u32 other = 1; other < here.workers / WARP; ++other) {
            Part next = {parts[other], parts[HEAD_WARPS + other], parts[2 * HEAD_WARPS + other],
                         parts[3 * HEAD_WARPS + other], parts[4 * HEAD_WARPS + other]};
            part = merged(part, next);
        }
    }
    return part;
}

// The logit of a product, and the slope of the cap there.
inline float bent(float x, float factor, float height, thread float &slope) {
    float z = factor * x;
    slope = 1.0f;
    if (height != 0.0f) {
        float curve = tanh(z);
        slope = 1.0f - curve * curve;
        z = height * curve;
    }
    return z;
}

inline Part look(device const float *line, u32 words, float factor, float height, u32 taps, threadgroup float *parts,
                 Here here) {
    Part part = {-infinite(), 0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 at = here.worker; at < words; at += here.workers) {
        float slope;
        take(part, bent(line[at], factor, height, slope), taps);
    }
    return merged_block(part, parts, here);
}

// Takes a tile's sums into those of the row; thread 0. Returns the largest logit before.
inline float absorb(Sums all, u32 row, Part part, bool begins, u32 taps) {
    Pair none = pair(0.0f, 0.0f);
    float before = begins ? -infinite() : all.largest[row];
    Pair sum = begins ? none : get((device const Pair *)all.sum, (u64)row);
    Pair square = none, weighted = none, plain = none;
    if (!begins) {
        if (taps & TAP_LOG_SUM_SQUARE) square = get((device const Pair *)all.square, (u64)row);
        if (taps & TAP_ENTROPY) weighted = get((device const Pair *)all.weighted, (u64)row);
        if (taps & TAP_MEAN) plain = get((device const Pair *)all.plain, (u64)row);
    }
    float largest = fmax(before, part.largest);
    // What is not yet there weighs nothing. One of the two gaps is 0, and its share 1.
    float gap_old = before == -infinite() ? 0.0f : before - largest, gap_new = part.largest - largest;
    float old_share = before == -infinite() ? 0.0f : exp(gap_old), new_share = exp(gap_new);
    all.largest[row] = largest;
    put(all.sum, (u64)row, plus(times(sum, old_share), exact_product(new_share, part.sum)));
    if (taps & TAP_LOG_SUM_SQUARE) {
        Pair old_squares = times(square, old_share * old_share);
        put(all.square, (u64)row, plus(old_squares, exact_product(new_share * new_share, part.square)));
    }
    if (taps & TAP_ENTROPY) {
        Pair old_weighted = times(plus(weighted, times(sum, gap_old)), old_share);
        Pair new_weighted = plus(pair(part.weighted, 0.0f), exact_product(gap_new, part.sum));
        put(all.weighted, (u64)row, plus(old_weighted, times(new_weighted, new_share)));
    }
    if (taps & TAP_MEAN) put(all.plain, (u64)row, plus(plain, part.plain));
    return before;
}

// The target's logit if it is in the tile; thread 0, before the tile is overwritten.
inline void find_target(Sums all, u32 row, device const float *line, device const u32 *targets, u32 first, u32 words,
                        bool begins, float factor, float height, u32 vocabulary, FAULT_WORD word, u32 place) {
    u32 target = inside(targets[row], vocabulary, word, place);
    float slope;
    if (target >= first && target - first < words) {
        all.target[row] = bent(line[target - first], factor, height, slope);
    } else if (begins) {
        all.target[row] = as_type<float>(0x7fffffffu);
    }
}

// Takes a tile into the sums; reads `tile`, writes the sums. begins is 1 for the first tile. head.rs `statistics`.
KERNEL(HEAD_THREADS) head_statistics(device const float *tile [[buffer(0)]], device const u32 *targets [[buffer(1)]],
                                     device float *largest [[buffer(2)]], device float *target [[buffer(3)]],
                                     device Pair *sum [[buffer(4)]], device Pair *square [[buffer(5)]],
                                     device Pair *weighted [[buffer(6)]], device Pair *plain [[buffer(7)]],
                                     constant u32 &rows [[buffer(8)]], constant u32 &words [[buffer(9)]],
                                     constant u32 &pitch [[buffer(10)]], constant u32 &first [[buffer(11)]],
                                     constant u32 &vocabulary [[buffer(12)]], constant float &factor [[buffer(13)]],
                                     constant float &height [[buffer(14)]], constant u32 &taps [[buffer(15)]],
                                     constant u32 &begins [[buffer(16)]], FAULT_WORD word [[buffer(17)]],
                                     constant u32 &place [[buffer(18)]] WHERE) {
    SHARED float merging[5 * HEAD_WARPS];
    Here here = HERE;
    Sums all = {largest, target, sum, square, weighted, plain};
    u32 row = here.block.x;
    device const float *line = tile + (u64)row * pitch;
    Part part = look(line, words, factor, height, taps, merging, here);
    if (here.worker != 0) return;
    find_target(all, row, line, targets, first, words, begins != 0, factor, height, vocabulary, word, place);
    absorb(all, row, part, begins != 0, taps);
}

// From the sums over the whole vocabulary to the taps, f32 [rows] each; any of the optional ones may be null.
// Grid: ⌈rows / 128⌉ groups of 128 threads. head.rs `HeadTaps::push`.
KERNEL(128) head_finish(device const float *largest [[buffer(0)]], device const float *target [[buffer(1)]],
                        device const Pair *sum [[buffer(2)]], device const Pair *square [[buffer(3)]],
                        device const Pair *weighted [[buffer(4)]], device const Pair *plain [[buffer(5)]],
                        device float *logprob [[buffer(6)]], device float *log_sum_exp [[buffer(7)]],
                        device float *entropy [[buffer(8)]], device float *log_sum_square [[buffer(9)]],
                        device float *mean_logit [[buffer(10)]], device float *mean_logprob [[buffer(11)]],
                        device float *top_one [[buffer(12)]], constant u32 &rows [[buffer(13)]],
                        constant u32 &vocabulary [[buffer(14)]] WHERE) {
    Here here = HERE;
    u32 row = here.block.x * here.workers + here.worker;
    if (row >= rows) return;
    Pair total = get(sum, (u64)row);
    float log_sum = log(total.high) + total.low / total.high;
    Pair all = exact_sum(largest[row], log_sum);
    Pair share = plus(exact_sum(target[row], -largest[row]), -log_sum);
    logprob[row] = share.high;
    log_sum_exp[row] = all.high;
    if (THERE(8, entropy)) entropy[row] = plus(divided(get(weighted, (u64)row), pair(-total.high, -total.low)), log_sum).high;
    if (THERE(9, log_sum_square)) {
        Pair squares = get(square, (u64)row);
        log_sum_square[row] = (log(squares.high) + squares.low / squares.high) - 2.0f * log_sum;
    }
    if (THERE(10, mean_logit)) mean_logit[row] = divided(get(plain, (u64)row), pair((float)vocabulary, 0.0f)).high;
    if (THERE(11, mean_logprob)) {
        Pair mean = divided(get(plain, (u64)row), pair((float)vocabulary, 0.0f));
        mean_logprob[row] = plus(mean, pair(-all.high, -all.low)).high;
    }
    if (THERE(12, top_one)) top_one[row] = target[row] >= largest[row] ? 1.0f : 0.0f;
}

// Products become the gradients of a loss by them, in the type of activations, `to` with rows pitch apart as `tile`; it
// may be `tile` where activations are f32: a thread writes what it alone has read. With seeds g of the log-probability,
// e of the entropy H and m of the mean log-probability (each [rows], or null):
//     dz = g·[word = target] + m/V − p·(g + m + e·H) − e·p·ln p,  dx = outer_factor · slope of the cap · dz.
// backward.rs.
KERNEL(HEAD_THREADS) head_gradient(device act *to [[buffer(0)]], device const float *tile [[buffer(1)]],
                                   device const u32 *targets [[buffer(2)]],
                                   device const float *log_sum_exp [[buffer(3)]],
                                   device const float *entropy [[buffer(4)]],
                                   device const float *seed_logprob [[buffer(5)]],
                                   device const float *seed_entropy [[buffer(6)]],
                                   device const float *seed_mean [[buffer(7)]], constant u32 &rows [[buffer(8)]],
                                   constant u32 &words [[buffer(9)]], constant u32 &pitch [[buffer(10)]],
                                   constant u32 &first [[buffer(11)]], constant u32 &vocabulary [[buffer(12)]],
                                   constant float &factor [[buffer(13)]], constant float &height [[buffer(14)]],
                                   constant float &outer_factor [[buffer(15)]] WHERE) {
    Here here = HERE;
    u32 row = here.block.x, target = targets[row] - first;
    u64 start = (u64)row * pitch;
    float log_sum = log_sum_exp[row], hit = THERE(5, seed_logprob) ? seed_logprob[row] : 0.0f;
    float curved = THERE(6, seed_entropy) ? -seed_entropy[row] : 0.0f;
    float even_share = THERE(7, seed_mean) ? seed_mean[row] : 0.0f;
    float linear = -(hit + even_share - (THERE(6, seed_entropy) ? curved * entropy[row] : 0.0f));
    even_share /= (float)vocabulary;
    for (u32 at = here.worker; at < words; at += here.workers) {
        float slope, z = bent(tile[start + at], factor, height, slope), log_share = z - log_sum;
        float pull = fma(exp(log_share), fma(curved, log_share, linear), even_share);
        // A target before the tile wraps around to a number past every tile.
        if (at == target) pull += hit;
        put(to, start + at, outer_factor * slope * pull);
    }
}

// Takes a tile into the sums and leaves in `to`, of the type of activations, rows pitch apart as those of `tile`, the
// weights e = exp(z − the largest so far), times the slope of the cap; scales what was pulled so far, pulls
// [rows, width] f32, to the new measure. The product that follows: pulls += weights·W (`begins` clears them). slopes.rs
// `absorb`.
KERNEL(HEAD_THREADS) head_accumulate(device act *to [[buffer(0)]], device const float *tile [[buffer(1)]],
                                 device const u32 *targets [[buffer(2)]], device float *pulls [[buffer(3)]],
                                 device float *largest [[buffer(4)]], device float *target [[buffer(5)]],
                                 device Pair *sum [[buffer(6)]], device Pair *square [[buffer(7)]],
                                 device Pair *weighted [[buffer(8)]], device Pair *plain [[buffer(9)]],
                                 constant u32 &rows [[buffer(10)]], constant u32 &words [[buffer(11)]],
                                 constant u32 &pitch [[buffer(12)]], constant u32 &first [[buffer(13)]],
                                 constant u32 &vocabulary [[buffer(14)]], constant u32 &width [[buffer(15)]],
                                 constant float &factor [[buffer(16)]], constant float &height [[buffer(17)]],
                                 constant u32 &taps [[buffer(18)]], constant u32 &begins [[buffer(19)]],
                                 FAULT_WORD word [[buffer(20)]], constant u32 &place [[buffer(21)]] WHERE) {
    SHARED float merging[5 * HEAD_WARPS];
    // The largest logit so far, and what shrinks to it.
    SHARED float measure[2];
    Here here = HERE;
    Sums all = {largest, target, sum, square, weighted, plain};
    u32 row = here.block.x;
    u64 start = (u64)row * pitch;
    device const float *line = tile + start;
    Part part = look(line, words, factor, height, taps, merging, here);
    if (here.worker == 0) {
        find_target(all, row, line, targets, first, words, begins != 0, factor, height, vocabulary, word, place);
        float before = absorb(all, row, part, begins != 0, taps);
        measure[0] = fmax(before, part.largest);
        measure[1] = before == -infinite() ? 0.0f : exp(before - measure[0]);
    }
    // From here on `to` may overwrite the tile.
    meet_block();
    float level = measure[0], scale = measure[1];
    for (u32 at = here.worker; at < words; at += here.workers) {
        float slope, z = bent(line[at], factor, height, slope);
        put(to, start + at, exp(z - level) * slope);
    }
    if (scale == 1.0f) return;
    device float *pull = pulls + (u64)row * width;
    for (u32 at = here.worker; at < width; at += here.workers) pull[at] = begins != 0 ? 0.0f : pull[at] * scale;
}

// In place: pulls, [rows, width] f32, become the gradients of each row's log-probability by its hidden state:
//     outer_factor · (slope of the cap at the target · W[target] − pulls / sum).
// words: W[target] of every row, [rows, width] in the type of activations. slopes.rs `slope`.
KERNEL(HEAD_THREADS) head_slopes(device float *pulls [[buffer(0)]], device const act *words [[buffer(1)]],
                                 device const float *target [[buffer(2)]], device const Pair *sum [[buffer(3)]],
                                 constant u32 &rows [[buffer(4)]], constant u32 &width [[buffer(5)]],
                                 constant float &height [[buffer(6)]], constant float &outer_factor [[buffer(7)]] WHERE) {
    Here here = HERE;
    u32 row = here.block.x;
    float curve = height != 0.0f ? target[row] / height : 0.0f;
    float hit = outer_factor * (1.0f - curve * curve);
    float share = divided(pair(outer_factor, 0.0f), get(sum, (u64)row)).high;
    u64 start = (u64)row * width;
    for (u32 at = here.worker; at < width; at += here.workers) {
        pulls[start + at] = fma(pulls[start + at], -share, hit * get(words, start + at));
    }
}

// In place: products become logits, for generation. Grid: as the others, over [rows, words]. head.rs `logits`.
KERNEL(HEAD_THREADS) head_soft_cap(device float *tile [[buffer(0)]], constant u32 &rows [[buffer(1)]],
                               constant u32 &words [[buffer(2)]], constant u32 &pitch [[buffer(3)]],
                               constant float &factor [[buffer(4)]], constant float &height [[buffer(5)]] WHERE) {
    Here here = HERE;
    u64 start = (u64)here.block.x * pitch;
    for (u32 at = here.worker; at < words; at += here.workers) {
        float slope;
        tile[start + at] = bent(tile[start + at], factor, height, slope);
    }
}
