// Random numbers by name and position, the mask of dropout, and the choice of the next token. Agrees with random.rs,
// with fused/dropout.rs, fused/sampling.rs and generate/choose.rs.
//
// A stream is a ChaCha12 key stream: its key of 32 bytes is SHA-256("tunebox stream\0" ‖ seed ‖ name), made by the host
// once a stream; a position counts 32-bit words. So the words are those of the processor, bit for bit.

DEVICE u32 turned_left(u32 word, int by) { return word << by | word >> (32 - by); }

DEVICE void quarter(u32 &a, u32 &b, u32 &c, u32 &d) {
    a += b, d = turned_left(d ^ a, 16);
    c += d, b = turned_left(b ^ c, 12);
    a += b, d = turned_left(d ^ a, 8);
    c += d, b = turned_left(b ^ c, 7);
}

// Words 16 · block … 16 · block + 15 of a stream.
DEVICE void chacha12(u32 (&words)[16], const u32 *key, u64 block) {
    u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, key[0], key[1], key[2], key[3],
                     key[4],      key[5],      key[6],      key[7],      (u32)block, (u32)(block >> 32), 0u, 0u};
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i] = start[i];
#pragma unroll
    for (int round = 0; round < 6; ++round) {
        quarter(words[0], words[4], words[8], words[12]);
        quarter(words[1], words[5], words[9], words[13]);
        quarter(words[2], words[6], words[10], words[14]);
        quarter(words[3], words[7], words[11], words[15]);
        quarter(words[0], words[5], words[10], words[15]);
        quarter(words[1], words[6], words[11], words[12]);
        quarter(words[2], words[7], words[8], words[13]);
        quarter(words[3], words[4], words[9], words[14]);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i] += start[i];
}

// y = x · mask, where number i takes word `position` + i of the stream: 0 where its uniform number is below `rate`,
// else 1/(1 − rate), which the host computes in f32 as `widened`. position is a multiple of 16 (dropout.rs begins at
// 0). The backward pass is the same call on dy. y may be x. A thread makes 16 numbers. Grid: ⌈count / 4096⌉ blocks of
// 256 threads (x axis; at most 2³¹ − 1).
KERNEL void dropout(act *y, const act *x, const u32 *key, u64 position, u64 count, float rate, float widened) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, start = thread * 16;
    if (start >= count) return;
    u32 words[16];
    chacha12(words, key, position / 16 + thread);
    float mask[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) mask[i] = (float)(words[i] >> 8) / 16777216.0f < rate ? 0.0f : widened;
    if (start + 16 <= count && even(y) && even(x)) {
#pragma unroll
        for (int half = 0; half < 16; half += 8) {
            float numbers[8];
            load(numbers, x + start + half);
#pragma unroll
            for (int i = 0; i < 8; ++i) numbers[i] *= mask[half + i];
            store(y + start + half, numbers);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            if (start + i < count) y[start + i] = narrow<act>(wide(x[start + i]) * mask[i]);
        }
    }
}

// A number in [0, 1) of 53 bits from two words, the low one first.
DEVICE double draw_at(const u32 *key, u64 position) {
    u32 words[16], pair[2];
    u64 block = ~0ull;
    for (int i = 0; i < 2; ++i) {
        u64 at = position + i;
        if (at / 16 != block) block = at / 16, chacha12(words, key, block);
        pair[i] = 0;
#pragma unroll
        for (u32 w = 0; w < 16; ++w) pair[i] = at % 16 == w ? words[w] : pair[i];
    }
    return (double)(((u64)pair[1] << 32 | pair[0]) >> 11) / 9007199254740992.0;
}

// eˣ with the bits of fused/simd.rs `exp`: for the same logits, the same weights as the processor's.
DEVICE float steady_exp(float x) {
    float bounded = x < -87.3f ? -87.3f : x;
    bounded = bounded > 88.3f ? 88.3f : bounded;
    float shifted = fmaf(bounded, LOG2_E, 12582912.0f);
    float power = __fsub_rn(shifted, 12582912.0f);
    float rest = fmaf(power, -0.6933594f, bounded);
    rest = fmaf(power, 2.1219444e-4f, rest);
    float series = 1.0f / 5040.0f;
    series = fmaf(rest, series, 1.0f / 720.0f);
    series = fmaf(rest, series, 1.0f / 120.0f);
    series = fmaf(rest, series, 1.0f / 24.0f);
    series = fmaf(rest, series, 1.0f / 6.0f);
    series = fmaf(rest, series, 0.5f);
    series = fmaf(rest, series, 1.0f);
    series = fmaf(rest, series, 1.0f);
    float scale = __uint_as_float((__float_as_uint(shifted) << 23) + (127u << 23));
    return x < -87.3f ? 0.0f : __fmul_rn(series, scale);
}

// ---- the next token ----

#define CHOICE_THREADS 1024
// Likeliest words that fit into shared memory; searches among them are fast.
#define NEAREST 4096
// Words of one tile of the open walk, and tiles at most: vocabularies up to 524288 words.
#define TILE_WORDS 1024
#define TILES 512

// Weights, by place; ids are places where null.
struct Pool {
    const float *weights;
    const u32 *ids;
    u32 count;
};

// The likeliest words: those that weigh more than `floor` (the bits of a weight, which are in its order), and the first
// `ties` of those that weigh as much.
struct Front {
    u32 floor, ties;
    double above; // the sum of those that weigh more
};

DEVICE double total_of(Front front) {
    return front.above + (double)front.ties * (double)__uint_as_float(front.floor);
}

// Σ of the weights of at least some bits.
DEVICE double sum_from(Pool pool, u32 bits) {
    double sum = 0.0;
    for (u32 at = threadIdx.x; at < pool.count; at += CHOICE_THREADS) {
        float weight = pool.weights[at];
        if (__float_as_uint(weight) >= bits) sum += (double)weight;
    }
    return block_sum(sum);
}

// How many weigh exactly this.
DEVICE u32 count_of(Pool pool, u32 bits) {
    u32 count = 0;
    for (u32 at = threadIdx.x; at < pool.count; at += CHOICE_THREADS) {
        count += __float_as_uint(pool.weights[at]) == bits;
    }
    return block_sum(count);
}

// The shortest front within `front` whose sum reaches `wanted`, or, if `past`, exceeds it; all of it if none does.
DEVICE Front shortest(Pool pool, Front front, double wanted, bool past) {
    u32 bits = 0;
    double above = front.above;
    // From the highest bit down: the largest weight from which on the sum suffices. The sum falls as the bits rise.
    for (int bit = 30; bit >= 0; --bit) {
        u32 tried = bits | 1u << bit;
        if (tried <= front.floor) {
            bits = tried;
            continue;
        }
        double sum = sum_from(pool, tried);
        if (past ? sum > wanted : sum >= wanted) bits = tried;
    }
    u32 ties = front.ties;
    if (bits > front.floor) {
        above = sum_from(pool, bits + 1);
        ties = count_of(pool, bits);
    } else {
        bits = front.floor;
    }
    double weight = (double)__uint_as_float(bits);
    u32 few = ties;
    if (weight > 0.0 && ties > 1) {
        double quotient = (wanted - above) / weight;
        double needed = past ? floor(quotient) + 1.0 : ceil(quotient);
        few = needed < 1.0 ? 1u : needed < (double)ties ? (u32)needed : ties;
    }
    Front result = {bits, few, above};
    return result;
}

// The n-th place, from 1, whose weight has these bits; the last such place if there are fewer. In order of places: warps
// look at 1024 in a row together, and the warp that has it tells all.
DEVICE u32 nth_equal(Pool pool, u32 bits, u32 n) {
    __shared__ u32 counts[CHOICE_THREADS / WARP], found;
    if (threadIdx.x == 0) found = 0;
    u32 seen = 0, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (u32 start = 0; start < pool.count; start += CHOICE_THREADS) {
        u32 at = start + threadIdx.x;
        bool equal = at < pool.count && __float_as_uint(pool.weights[at]) == bits;
        u32 mask = ballot(equal);
        meet_block();
        if (lane == 0) counts[warp] = __popc(mask);
        meet_block();
        u32 before = seen;
        for (u32 w = 0; w < CHOICE_THREADS / WARP; ++w) {
            if (w < warp) before += counts[w];
            seen += counts[w];
        }
        u32 own = before + __popc(mask & ((2u << lane) - 1));
        // Earlier finds are overwritten by later ones until the n-th.
        if (equal && (own == n || (own < n && own == seen))) found = at;
        if (seen >= n) break;
    }
    meet_block();
    return found;
}

// The front of the `count` likeliest: by 8 bits of a weight at a time, how many words have them.
DEVICE Front likeliest(Pool pool, u32 count) {
    __shared__ u32 bins[256], chosen, left;
    u32 prefix = 0, wanted = count;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (u32 bin = threadIdx.x; bin < 256; bin += CHOICE_THREADS) bins[bin] = 0;
        meet_block();
        for (u32 at = threadIdx.x; at < pool.count; at += CHOICE_THREADS) {
            u32 bits = __float_as_uint(pool.weights[at]);
            // Counting, so that the order in which threads come changes nothing.
            if (shift == 24 || bits >> (shift + 8) == prefix) atomicAdd(&bins[bits >> shift & 255], 1u);
        }
        meet_block();
        if (threadIdx.x == 0) {
            u32 bin = 255, still = wanted;
            while (bin > 0 && bins[bin] < still) still -= bins[bin--];
            chosen = bin, left = still;
        }
        meet_block();
        prefix = prefix << 8 | chosen, wanted = left;
        meet_block();
    }
    Front front = {prefix, wanted, sum_from(pool, prefix + 1)};
    return front;
}

// Copies the words of a front, in the order of their numbers, into shared memory; returns how many.
DEVICE u32 collect(Pool pool, Front front, float *weights, u32 *ids) {
    __shared__ u32 counts[2][CHOICE_THREADS / WARP];
    u32 kept = 0, ties = 0, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (u32 start = 0; start < pool.count; start += CHOICE_THREADS) {
        u32 at = start + threadIdx.x;
        float weight = at < pool.count ? pool.weights[at] : 0.0f;
        u32 bits = __float_as_uint(weight);
        u32 more = ballot(at < pool.count && bits > front.floor), equal = ballot(at < pool.count && bits == front.floor);
        meet_block();
        if (lane == 0) counts[0][warp] = __popc(more), counts[1][warp] = __popc(equal);
        meet_block();
        u32 higher = 0, same = 0, all_higher = 0, all_same = 0;
        for (u32 w = 0; w < CHOICE_THREADS / WARP; ++w) {
            if (w < warp) higher += counts[0][w], same += counts[1][w];
            all_higher += counts[0][w], all_same += counts[1][w];
        }
        u32 below = (1u << lane) - 1;
        higher += __popc(more & below), same += __popc(equal & below);
        bool keep = more >> lane & 1 || (equal >> lane & 1 && ties + same < front.ties);
        // Places before this one: all higher ones, and equal ones as far as they are kept.
        u32 to = kept + higher + (least(ties + same, front.ties) - least(ties, front.ties));
        if (keep && to < NEAREST) weights[to] = weight, ids[to] = at;
        kept += all_higher + (least(ties + all_same, front.ties) - least(ties, front.ties));
        ties += all_same;
    }
    meet_block();
    return kept;
}

// The first place in the order of numbers at which the sum of the weights exceeds `wanted`; `tiles` are the sums of each
// TILE_WORDS of them. The last word with a weight if rounding lets none.
DEVICE u32 open_walk(const float *weights, u32 count, const double *tiles, double wanted) {
    __shared__ u32 found;
    if (threadIdx.x < WARP) {
        u32 all = divided_up(count, TILE_WORDS), tile = 0, lane = threadIdx.x;
        double reached = 0.0;
        while (tile + 1 < all && !(reached + tiles[tile] > wanted)) reached += tiles[tile++];
        u32 last = 0;
        bool done = false;
        for (u32 start = tile * TILE_WORDS; start < least(count, (tile + 1) * TILE_WORDS) && !done; start += WARP) {
            u32 at = start + lane;
            double weight = at < count ? (double)weights[at] : 0.0, upto = weight;
#pragma unroll
            for (int by = 1; by < WARP; by *= 2) {
                double before = from_lane(upto, lane >= by ? (int)lane - by : (int)lane);
                if (lane >= by) upto += before;
            }
            u32 past = ballot(weight > 0.0 && reached + upto > wanted), some = ballot(weight > 0.0);
            if (past) {
                last = start + __ffs((int)past) - 1, done = true;
            } else if (some) {
                last = start + 31 - __clz((int)some);
            }
            reached += from_lane(upto, WARP - 1);
        }
        if (lane == 0) found = last;
    }
    meet_block();
    return found;
}

// One token for every row of logits, [rows, vocabulary] f32, scaled, capped and divided by the temperature already;
// they are overwritten. choices: [rows, 2], the token and the bits of its log-probability, f32. streams: [rows, 10] words,
// the key of a row's stream and how many words were taken from it, low word first; a token takes one draw, two words.
// top_k 0, top_p 1 and min_p 0 turn those off; greedy takes the likeliest and its log-probability under the whole
// distribution, whatever the rest. A row with a logit that is not finite gets the number of the first such and that logit
// itself: log-probabilities are finite, so the host can tell.
//
// Launch: `rows` blocks of 1024 threads, no dynamic shared memory; 41 KiB of static. At most TILES · TILE_WORDS words. Sums
// are in f64, in fixed trees: for the same logits the token is that of the processor unless the draw lies within some
// 10⁻¹³ of a border.
KERNEL __launch_bounds__(CHOICE_THREADS) void choose(u32 *choices, float *logits, const u32 *streams, u32 vocabulary,
                                                     u32 top_k, float top_p, float min_p, u32 greedy) {
    __shared__ float near_weights[NEAREST];
    __shared__ u32 near_ids[NEAREST];
    __shared__ double tiles[TILES];
    __shared__ float tops[CHOICE_THREADS / WARP];
    __shared__ u32 firsts[CHOICE_THREADS / WARP], spoils[CHOICE_THREADS / WARP];
    u32 row = blockIdx.x, thread = threadIdx.x;
    float *weights = logits + (u64)row * vocabulary;

    // The largest logit, the first of equals.
    float top = -INFINITE;
    u32 first = ~0u, broken = ~0u;
    for (u32 at = thread; at < vocabulary; at += CHOICE_THREADS) {
        float logit = weights[at];
        if (!finite(logit)) broken = least(broken, at);
        if (logit > top) top = logit, first = at;
    }
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        float other = across(top, mask);
        u32 its = across(first, mask);
        if (other > top || (other == top && its < first)) top = other, first = its;
        broken = least(broken, across(broken, mask));
    }
    if (thread % WARP == 0) {
        tops[thread / WARP] = top, firsts[thread / WARP] = first, spoils[thread / WARP] = broken;
    }
    meet_block();
    for (u32 warp = 0; warp < CHOICE_THREADS / WARP; ++warp) {
        if (tops[warp] > top || (tops[warp] == top && firsts[warp] < first)) top = tops[warp], first = firsts[warp];
        broken = least(broken, spoils[warp]);
    }

    u32 *choice = choices + 2 * row;
    if (broken != ~0u) {
        if (thread == 0) choice[0] = broken, choice[1] = __float_as_uint(weights[broken]);
        return;
    }
    const u32 *stream = streams + 10 * row;
    double draw = draw_at(stream, (u64)stream[9] << 32 | stream[8]);

    // Weights relative to the likeliest, and their sums tile by tile, a warp each.
    for (u32 tile = thread / WARP; tile < divided_up(vocabulary, TILE_WORDS); tile += CHOICE_THREADS / WARP) {
        double sum = 0.0;
        for (u32 at = tile * TILE_WORDS + thread % WARP; at < least(vocabulary, (tile + 1) * TILE_WORDS); at += WARP) {
            float weight = steady_exp(weights[at] - top);
            weights[at] = weight;
            sum += (double)weight;
        }
        sum = warp_sum(sum);
        if (thread % WARP == 0) tiles[tile] = sum;
    }
    meet_block();
    double total = 0.0;
    for (u32 tile = 0; tile < divided_up(vocabulary, TILE_WORDS); ++tile) total += tiles[tile];

    u32 chosen = first;
    float weight = 1.0f;
    bool open = top_k == 0 && top_p >= 1.0f && min_p <= 0.0f;
    // A draw below 1 stays below the total, whatever the product rounds to.
    const double whole = 1.0 - 2.220446049250313e-16;
    if (greedy) {
    } else if (open) {
        double wanted = draw * total;
        chosen = open_walk(weights, vocabulary, tiles, wanted < total * whole ? wanted : total * whole);
        weight = weights[chosen];
    } else {
        Pool all = {weights, nullptr, vocabulary}, pool = all;
        u32 limit = top_k == 0 ? vocabulary : least(top_k, vocabulary);
        Front front = likeliest(all, least(limit, NEAREST)), wider = front;
        if (limit > NEAREST) {
            if (limit == vocabulary) {
                Front every = {0u, 0u, total};
                wider = every;
            } else {
                wider = likeliest(all, limit);
            }
        }
        // Among the nearest if they suffice, else among all.
        double share = top_p < 1.0f ? (double)top_p * total_of(wider) : total_of(wider);
        bool near = limit <= NEAREST || (top_p < 1.0f && total_of(front) >= share);
        if (near) {
            u32 count = collect(all, front, near_weights, near_ids);
            Pool nearest = {near_weights, near_ids, least(count, NEAREST)};
            pool = nearest;
        } else {
            front = wider;
        }
        if (top_p < 1.0f) front = shortest(pool, front, share, false);
        u32 bound = __float_as_uint(min_p);
        if (min_p > 0.0f && bound > front.floor) {
            Front higher = {bound - 1, 0u, sum_from(pool, bound)};
            front = higher;
        }
        total = total_of(front);
        double wanted = draw * total;
        Front last = shortest(pool, front, wanted < total * whole ? wanted : total * whole, true);
        u32 at = nth_equal(pool, last.floor, most(last.ties, 1u));
        chosen = pool.ids ? pool.ids[at] : at;
        weight = pool.weights[at];
    }
    if (thread != 0) return;
    choice[0] = chosen;
    choice[1] = __float_as_uint(greedy ? (float)-log(total) : (float)log((double)weight / total));
}
