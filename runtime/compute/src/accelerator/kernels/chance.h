// Random numbers by name and position, the mask of dropout, and the choice of the next token. Agrees with random.rs,
// with fused/dropout.rs, fused/sampling.rs and generate/choose.rs.
//
// A stream is a ChaCha12 key stream: its key of 32 bytes is SHA-256("tunebox stream\0" ‖ seed ‖ name), made by the host
// once a stream; a position counts 32-bit words. So the words are those of the processor, bit for bit.

DEVICE u32 rotate_left(u32 word, u32 by) { return word << by | word >> (32 - by); }

DEVICE void quarter(THREAD u32 &a, THREAD u32 &b, THREAD u32 &c, THREAD u32 &d) {
    a += b, d = rotate_left(d ^ a, 16);
    c += d, b = rotate_left(b ^ c, 12);
    a += b, d = rotate_left(d ^ a, 8);
    c += d, b = rotate_left(b ^ c, 7);
}

// Words 16 · block … 16 · block + 15 of a stream.
DEVICE void chacha12(THREAD u32 (&words)[16], GLOBAL const u32 *key, u64 block) {
    u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, key[0], key[1], key[2], key[3],
                     key[4],      key[5],      key[6],      key[7],      (u32)block, (u32)(block >> 32), 0u, 0u};
    UNROLL for (int i = 0; i < 16; ++i) words[i] = start[i];
    UNROLL for (int round = 0; round < 6; ++round) {
        UNROLL for (int i = 0; i < 4; ++i) quarter(words[i], words[4 + i], words[8 + i], words[12 + i]);
        UNROLL for (int i = 0; i < 4; ++i) {
            quarter(words[i], words[4 + (i + 1) % 4], words[8 + (i + 2) % 4], words[12 + (i + 3) % 4]);
        }
    }
    UNROLL for (int i = 0; i < 16; ++i) words[i] += start[i];
}

// y = x · mask, where number i takes word `position` + i of the stream: 0 where its uniform number is below `rate`,
// else 1/(1 − rate), which the host computes in f32 as `widened`. position is a multiple of 16 (dropout.rs begins at
// 0). The backward pass is the same call on dy. y may be x. A thread makes 16 numbers. Grid: ⌈count / 4096⌉ blocks of
// 256 threads (x axis; at most 2³¹ − 1).
KERNEL(256) dropout(GLOBAL act *y, GLOBAL const act *x, GLOBAL const u32 *key, NUMBER(u64) position, NUMBER(u64) count,
                    NUMBER(float) rate, NUMBER(float) widened WHERE) {
    Here here = HERE;
    u64 number = (u64)here.block.x * here.threads + here.index;
    if (number * 16 >= count) return;
    u32 words[16];
    chacha12(words, key, position / 16 + number);
    float mask[16];
    UNROLL for (int i = 0; i < 16; ++i) mask[i] = (float)(words[i] >> 8) / 16777216.0f < rate ? 0.0f : widened;
    UNROLL for (int half_of = 0; half_of < 16; half_of += 8) {
        u64 start = number * 16 + half_of;
        if (start + 8 <= count && are_aligned(y, x)) {
            Numbers<8> numbers = load<8>(x + start);
            UNROLL for (int i = 0; i < 8; ++i) numbers.at[i] *= mask[half_of + i];
            store(y + start, numbers);
        } else {
            UNROLL for (int i = 0; i < 8; ++i) {
                if (start + i < count) put(y, start + i, get(x, start + i) * mask[half_of + i]);
            }
        }
    }
}

// A number in [0, 1) of 53 bits from two words, the low one first.
DEVICE Double draw_at(GLOBAL const u32 *key, u64 position) {
    u32 words[16], two[2];
    u64 block = ~(u64)0;
    for (u32 i = 0; i < 2; ++i) {
        u64 at = position + i;
        if (at / 16 != block) block = at / 16, chacha12(words, key, block);
        two[i] = 0;
        UNROLL for (u32 w = 0; w < 16; ++w) two[i] = at % 16 == w ? words[w] : two[i];
    }
    return fraction_of(((u64)two[1] << 32 | two[0]) >> 11);
}

// eˣ with the bits of fused/simd.rs `exp`: for the same logits, the same weights as the processor's.
DEVICE float steady_exp(float x) {
    float bounded = x < -87.3f ? -87.3f : x;
    bounded = bounded > 88.3f ? 88.3f : bounded;
    float shifted = fmaf(bounded, LOG2_E, 12582912.0f);
    float power = minus(shifted, 12582912.0f);
    float rest = fmaf(power, -0.6933594f, bounded);
    rest = fmaf(power, 2.1219444e-4f, rest);
    float series = 1.0f / 5040.0f;
    float coefficients[7] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
    UNROLL for (int i = 0; i < 7; ++i) series = fmaf(rest, series, coefficients[i]);
    float scale = float_of((bits_of(shifted) << 23) + (127u << 23));
    return x < -87.3f ? 0.0f : times(series, scale);
}

// ---- the next token ----

#define CHOICE_THREADS 1024u
#define CHOICE_WARPS 32u
// Words of one tile of `choose_open`, and tiles at most: vocabularies up to 524288 words.
#define TILE_WORDS 1024u
#define TILES 512u

// The block's memory of a choice.
struct Scratch {
    LOCAL float *weights; // NEAREST
    LOCAL u32 *ids;       // NEAREST
    LOCAL Double *tiles;  // TILES
    LOCAL Double *sums;   // CHOICE_WARPS
    LOCAL u32 *counts;    // 2 · CHOICE_WARPS
    LOCAL u32 *found;     // 2
    LOCAL Counter *bins;  // 256
};

// Weights, by place: those of all words, or of the nearest, whose numbers are in the scratch.
struct Pool {
    GLOBAL const float *all;
    LOCAL const float *nearest;
    bool near_ones;
    u32 count;
};

DEVICE float weight_of(Pool pool, u32 at) { return pool.near_ones ? pool.nearest[at] : pool.all[at]; }

// The likeliest words: those that weigh more than `floor` (the bits of a weight, which are in its order), and the first
// `ties` of those that weigh as much.
struct Front {
    u32 floor, ties;
    Double higher; // the sum of those that weigh more
};

DEVICE Front front_of(u32 floor, u32 ties, Double higher) {
    Front front = {floor, ties, higher};
    return front;
}

DEVICE Double total_of(Front front) { return plus(front.higher, product((float)front.ties, float_of(front.floor))); }

// Σ of the weights of at least some bits.
DEVICE Double sum_from(Pool pool, u32 bits, Scratch scratch, Here here) {
    Double sum = to_double(0.0f);
    for (u32 at = here.index; at < pool.count; at += CHOICE_THREADS) {
        float weight = weight_of(pool, at);
        if (bits_of(weight) >= bits) sum = plus(sum, weight);
    }
    return block_sum(sum, scratch.sums, here);
}

// How many weigh exactly this.
DEVICE u32 count_of(Pool pool, u32 bits, Scratch scratch, Here here) {
    u32 count = 0;
    for (u32 at = here.index; at < pool.count; at += CHOICE_THREADS) count += bits_of(weight_of(pool, at)) == bits;
    return block_sum(count, scratch.counts, here);
}

// The shortest front within `front` whose sum reaches `wanted`, or, if `past`, exceeds it; all of it if none does.
DEVICE Front shortest(Pool pool, Front front, Double wanted, bool past, Scratch scratch, Here here) {
    u32 bits = 0, ties = front.ties;
    Double higher = front.higher;
    // From the highest bit down: the largest weight from which on the sum suffices. The sum falls as the bits rise.
    for (int bit = 30; bit >= 0; --bit) {
        u32 tried = bits | 1u << bit;
        if (tried <= front.floor) {
            bits = tried;
            continue;
        }
        Double sum = sum_from(pool, tried, scratch, here);
        if (past ? above(sum, wanted) : !above(wanted, sum)) bits = tried;
    }
    if (bits > front.floor) {
        higher = sum_from(pool, bits + 1, scratch, here);
        ties = count_of(pool, bits, scratch, here);
    } else {
        bits = front.floor;
    }
    float weight = float_of(bits);
    if (weight > 0.0f && ties > 1) ties = fewest_ties(plus(wanted, negated(higher)), weight, ties, past);
    return front_of(bits, ties, higher);
}

// The n-th place, from 1, whose weight has these bits; the last such place if there are fewer. In order of places: warps
// look at 1024 in a row together, and the warp that has it writes it for all.
DEVICE u32 nth_equal(Pool pool, u32 bits, u32 n, Scratch scratch, Here here) {
    sync_block();
    if (here.index == 0) scratch.found[0] = 0;
    u32 seen = 0, lane = here.index % WARP, warp = here.index / WARP;
    for (u32 start = 0; start < pool.count; start += CHOICE_THREADS) {
        u32 at = start + here.index;
        bool equal = at < pool.count && bits_of(weight_of(pool, at)) == bits;
        u32 mask = ballot(equal);
        sync_block();
        if (lane == 0) scratch.counts[warp] = count_bits(mask);
        sync_block();
        u32 before = seen;
        for (u32 w = 0; w < CHOICE_WARPS; ++w) {
            if (w < warp) before += scratch.counts[w];
            seen += scratch.counts[w];
        }
        u32 own = before + count_bits(mask & ((2u << lane) - 1));
        // Earlier finds are overwritten by later ones until the n-th.
        if (equal && (own == n || (own < n && own == seen))) scratch.found[0] = at;
        if (seen >= n) break;
    }
    sync_block();
    return scratch.found[0];
}

// The front of the `count` likeliest: by 8 bits of a weight at a time, how many words have them.
DEVICE Front likeliest(Pool pool, u32 count, Scratch scratch, Here here) {
    u32 prefix = 0, wanted = count;
    for (int shift = 24; shift >= 0; shift -= 8) {
        sync_block();
        if (here.index < 256) clear(&scratch.bins[here.index]);
        sync_block();
        for (u32 at = here.index; at < pool.count; at += CHOICE_THREADS) {
            u32 bits = bits_of(weight_of(pool, at));
            // Counting, so that the order in which threads come changes nothing.
            if (shift == 24 || bits >> (shift + 8) == prefix) raise(&scratch.bins[bits >> shift & 255u]);
        }
        sync_block();
        if (here.index == 0) {
            u32 bin = 255, still = wanted;
            for (; bin > 0 && count_in(&scratch.bins[bin]) < still; --bin) still -= count_in(&scratch.bins[bin]);
            scratch.found[0] = bin, scratch.found[1] = still;
        }
        sync_block();
        prefix = prefix << 8 | scratch.found[0], wanted = scratch.found[1];
    }
    sync_block();
    return front_of(prefix, wanted, sum_from(pool, prefix + 1, scratch, here));
}

// Copies the words of a front, in the order of their numbers, into the scratch; returns how many.
DEVICE u32 collect(Pool pool, Front front, Scratch scratch, Here here) {
    u32 kept = 0, ties = 0, lane = here.index % WARP, warp = here.index / WARP;
    for (u32 start = 0; start < pool.count; start += CHOICE_THREADS) {
        u32 at = start + here.index;
        float weight = at < pool.count ? weight_of(pool, at) : 0.0f;
        u32 bits = bits_of(weight);
        u32 more = ballot(at < pool.count && bits > front.floor), equal = ballot(at < pool.count && bits == front.floor);
        sync_block();
        if (lane == 0) scratch.counts[warp] = count_bits(more), scratch.counts[CHOICE_WARPS + warp] = count_bits(equal);
        sync_block();
        u32 higher = 0, same = 0, all_higher = 0, all_same = 0;
        for (u32 w = 0; w < CHOICE_WARPS; ++w) {
            if (w < warp) higher += scratch.counts[w], same += scratch.counts[CHOICE_WARPS + w];
            all_higher += scratch.counts[w], all_same += scratch.counts[CHOICE_WARPS + w];
        }
        u32 below = (1u << lane) - 1;
        higher += count_bits(more & below), same += count_bits(equal & below);
        bool keep = (more >> lane & 1u) != 0 || ((equal >> lane & 1u) != 0 && ties + same < front.ties);
        // Places before this one: all higher ones, and equal ones as far as they are kept.
        u32 to = kept + higher + (least(ties + same, front.ties) - least(ties, front.ties));
        if (keep && to < NEAREST) scratch.weights[to] = weight, scratch.ids[to] = at;
        kept += all_higher + (least(ties + all_same, front.ties) - least(ties, front.ties));
        ties += all_same;
    }
    sync_block();
    return least(kept, NEAREST);
}

// The first place in the order of numbers at which the sum of the weights exceeds `wanted`; the scratch has the sums of
// each TILE_WORDS of them. The last word with a weight if rounding lets none.
DEVICE u32 choose_open(GLOBAL const float *weights, u32 count, Double wanted, Scratch scratch, Here here) {
    sync_block();
    if (here.index < WARP) {
        u32 all = div_ceil(count, TILE_WORDS), tile = 0, lane = here.index, last = 0;
        Double reached = to_double(0.0f);
        while (tile + 1 < all) {
            Double next = plus(reached, local_get(scratch.tiles, tile));
            if (above(next, wanted)) break;
            reached = next, ++tile;
        }
        bool done = false;
        for (u32 start = tile * TILE_WORDS; start < least(count, (tile + 1) * TILE_WORDS) && !done; start += WARP) {
            u32 at = start + lane;
            float weight = at < count ? weights[at] : 0.0f;
            Double upto = to_double(weight);
            UNROLL for (u32 by = 1; by < WARP; by *= 2) {
                Double before = shuffle(upto, lane >= by ? lane - by : lane);
                if (lane >= by) upto = plus(upto, before);
            }
            u32 past = ballot(weight > 0.0f && above(plus(reached, upto), wanted)), some = ballot(weight > 0.0f);
            if (past != 0) {
                last = start + lowest_bit(past), done = true;
            } else if (some != 0) {
                last = start + highest_bit(some);
            }
            reached = plus(reached, shuffle(upto, WARP - 1));
        }
        if (lane == 0) scratch.found[0] = last;
    }
    sync_block();
    return scratch.found[0];
}

// A draw's share of a total, below it whatever the product rounds to.
DEVICE Double share_of(Double total, Double draw) {
    Double wanted = times(total, draw), bound = times(total, almost_one());
    return above(wanted, bound) ? bound : wanted;
}

// One token for every row of logits, [rows, vocabulary] f32, scaled, capped and divided by the temperature already;
// they are overwritten. choices: [rows, 2], the token and the bits of its log-probability, f32. streams: [rows, 10] words,
// the key of a row's stream and how many words were taken from it, low word first; a token takes one draw, two words.
// top_k 0, top_p 1 and min_p 0 turn those off; greedy takes the likeliest and its log-probability under the whole
// distribution, whatever the rest. A row with a logit that is not finite gets the number of the first such and that logit
// itself: log-probabilities are finite, so the host can tell.
//
// Launch: `rows` blocks of 1024 threads. At most TILES · TILE_WORDS words. Sums are `Double`, in fixed trees: for the
// same logits the token is that of the processor unless the draw lies within some 10⁻¹³ of a border.
KERNEL(CHOICE_THREADS) choose(GLOBAL u32 *choices, GLOBAL float *logits, GLOBAL const u32 *streams,
                              NUMBER(u32) vocabulary, NUMBER(u32) top_k, NUMBER(float) top_p, NUMBER(float) min_p,
                              NUMBER(u32) greedy WHERE) {
    SHARED float near_weights[NEAREST];
    SHARED u32 near_ids[NEAREST];
    SHARED Double tiles[TILES], sums[CHOICE_WARPS];
    SHARED float tops[CHOICE_WARPS];
    SHARED u32 firsts[CHOICE_WARPS], spoils[CHOICE_WARPS], counts[2 * CHOICE_WARPS], found[2];
    SHARED Counter bins[256];
    Here here = HERE;
    Scratch scratch = {near_weights, near_ids, tiles, sums, counts, found, bins};
    u32 row = here.block.x, own = here.index;
    GLOBAL float *weights = logits + (u64)row * vocabulary;

    // The largest logit, the first of equals.
    float top = -INFINITE;
    u32 first = ~0u, broken = ~0u;
    for (u32 at = own; at < vocabulary; at += CHOICE_THREADS) {
        float logit = weights[at];
        if (!is_finite(logit)) broken = least(broken, at);
        if (logit > top) top = logit, first = at;
    }
    UNROLL for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        float other = shuffle_xor(top, mask);
        u32 its = shuffle_xor(first, mask);
        if (other > top || (other == top && its < first)) top = other, first = its;
        broken = least(broken, shuffle_xor(broken, mask));
    }
    if (own % WARP == 0) tops[own / WARP] = top, firsts[own / WARP] = first, spoils[own / WARP] = broken;
    sync_block();
    for (u32 warp = 0; warp < CHOICE_WARPS; ++warp) {
        if (tops[warp] > top || (tops[warp] == top && firsts[warp] < first)) top = tops[warp], first = firsts[warp];
        broken = least(broken, spoils[warp]);
    }

    GLOBAL u32 *choice = choices + 2 * row;
    if (broken != ~0u) {
        if (own == 0) choice[0] = broken, choice[1] = bits_of(weights[broken]);
        return;
    }
    GLOBAL const u32 *stream = streams + 10 * row;
    Double draw = draw_at(stream, (u64)stream[9] << 32 | stream[8]);

    // Weights relative to the likeliest, and their sums tile by tile, a warp each.
    for (u32 tile = own / WARP; tile < div_ceil(vocabulary, TILE_WORDS); tile += CHOICE_WARPS) {
        Double sum = to_double(0.0f);
        for (u32 at = tile * TILE_WORDS + own % WARP; at < least(vocabulary, (tile + 1) * TILE_WORDS); at += WARP) {
            float weight = steady_exp(weights[at] - top);
            weights[at] = weight;
            sum = plus(sum, weight);
        }
        sum = warp_sum(sum);
        if (own % WARP == 0) local_put(scratch.tiles, tile, sum);
    }
    sync_block();
    Double total = to_double(0.0f);
    for (u32 tile = 0; tile < div_ceil(vocabulary, TILE_WORDS); ++tile) {
        total = plus(total, local_get(scratch.tiles, tile));
    }

    u32 chosen = first;
    float weight = 1.0f;
    bool open = top_k == 0 && top_p >= 1.0f && min_p <= 0.0f;
    if (greedy != 0) {
    } else if (open) {
        chosen = choose_open(weights, vocabulary, share_of(total, draw), scratch, here);
        weight = weights[chosen];
    } else {
        Pool pool = {weights, near_weights, false, vocabulary};
        u32 limit = top_k == 0 ? vocabulary : least(top_k, vocabulary);
        Front front = likeliest(pool, least(limit, NEAREST), scratch, here), wider = front;
        if (limit == vocabulary && limit > NEAREST) {
            wider = front_of(0u, 0u, total);
        } else if (limit > NEAREST) {
            wider = likeliest(pool, limit, scratch, here);
        }
        // Among the nearest if they suffice, else among all.
        Double share = top_p < 1.0f ? times(total_of(wider), top_p) : total_of(wider);
        if (limit <= NEAREST || (top_p < 1.0f && !above(share, total_of(front)))) {
            pool.count = collect(pool, front, scratch, here);
            pool.near_ones = true;
        } else {
            front = wider;
        }
        if (top_p < 1.0f) front = shortest(pool, front, share, false, scratch, here);
        u32 bound = bits_of(min_p);
        if (min_p > 0.0f && bound > front.floor) front = front_of(bound - 1, 0u, sum_from(pool, bound, scratch, here));
        total = total_of(front);
        Front last = shortest(pool, front, share_of(total, draw), true, scratch, here);
        u32 at = nth_equal(pool, last.floor, most(last.ties, 1u), scratch, here);
        chosen = pool.near_ones ? near_ids[at] : at;
        weight = weight_of(pool, at);
    }
    if (own != 0) return;
    float level = rounded(logarithm(greedy != 0 ? total : divided(to_double(weight), total)));
    choice[0] = chosen;
    choice[1] = bits_of(greedy != 0 ? -level : level);
}
