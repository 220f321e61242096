// Random numbers by name and position, the mask of dropout, and the choice of the next token. Agrees with random.rs,
// with the model's decoder/dropout.rs, fused/sampling.rs and generate/choose.rs.
//
// A stream is a ChaCha12 key stream: its key of 32 bytes is made by the host once a stream; a position counts 32-bit
// words. So the words are those of the processor, bit for bit.

inline u32 turned_left(u32 word, u32 by) { return word << by | word >> (32 - by); }

inline void quarter(thread u32 &a, thread u32 &b, thread u32 &c, thread u32 &d) {
    a += b, d = turned_left(d ^ a, 16);
    c += d, b = turned_left(b ^ c, 12);
    a += b, d = turned_left(d ^ a, 8);
    c += d, b = turned_left(b ^ c, 7);
}

// Words 16 · block … 16 · block + 15 of a stream.
inline void chacha12(thread u32 (&words)[16], device const u32 *key, u64 block) {
    u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, key[0], key[1], key[2], key[3],
                     key[4],      key[5],      key[6],      key[7],      (u32)block, (u32)(block >> 32), 0u, 0u};
    UNROLL for (u32 i = 0; i < 16; ++i) words[i] = start[i];
    UNROLL for (u32 round = 0; round < 6; ++round) {
        quarter(words[0], words[4], words[8], words[12]);
        quarter(words[1], words[5], words[9], words[13]);
        quarter(words[2], words[6], words[10], words[14]);
        quarter(words[3], words[7], words[11], words[15]);
        quarter(words[0], words[5], words[10], words[15]);
        quarter(words[1], words[6], words[11], words[12]);
        quarter(words[2], words[7], words[8], words[13]);
        quarter(words[3], words[4], words[9], words[14]);
    }
    UNROLL for (u32 i = 0; i < 16; ++i) words[i] += start[i];
}

// y = x · mask, where number i takes word `position` + i of the stream: 0 where its uniform number is below `rate`,
// else 1/(1 − rate), which the host computes in f32 as `widened`. position is a multiple of 16. The backward pass is the
// same call on dy. y may be x. A thread makes 16 numbers. Grid: ⌈count / 4096⌉ groups of 256 threads.
KERNEL(256) dropout(device act *y [[buffer(0)]], device const act *x [[buffer(1)]], device const u32 *key [[buffer(2)]],
                    constant u64 &position [[buffer(3)]], constant u64 &count [[buffer(4)]],
                    constant float &rate [[buffer(5)]], constant float &widened [[buffer(6)]] WHERE) {
    Here here = HERE;
    u64 number = (u64)here.block.x * here.workers + here.worker;
    if (number * 16 >= count) return;
    u32 words[16];
    chacha12(words, key, position / 16 + number);
    UNROLL for (u32 i = 0; i < 16; ++i) {
        u64 at = number * 16 + i;
        float uniform_number = (float)(words[i] >> 8) / 16777216.0f;
        if (at < count) put(y, at, get(x, at) * (uniform_number < rate ? 0.0f : widened));
    }
}

// A number in [0, 1) from two words, the low one first: the first 48 bits or so of the processor's 53.
inline Pair draw_at(device const u32 *key, u64 position) {
    u32 words[16], two[2];
    u64 block = ~(u64)0;
    for (u32 i = 0; i < 2; ++i) {
        u64 at = position + i;
        if (at / 16 != block) block = at / 16, chacha12(words, key, block);
        two[i] = 0;
        UNROLL for (u32 w = 0; w < 16; ++w) two[i] = at % 16 == w ? words[w] : two[i];
    }
    u64 bits = ((u64)two[1] << 32 | two[0]) >> 11;
    // 24 bits, exact, and the 29 below them.
    float high = (float)(u32)(bits >> 29) / 16777216.0f;
    float low = (float)(u32)(bits & 0x1fffffffu) / 9007199254740992.0f;
    return renormal(high, low);
}

// eˣ with the bits of fused/simd.rs `exp`: for the same logits, the same weights as the processor's.
inline float steady_exp(float x) {
    float bounded = x < -87.3f ? -87.3f : x;
    bounded = bounded > 88.3f ? 88.3f : bounded;
    float shifted = fma(bounded, LOG2_E, 12582912.0f);
    float power = minus(shifted, 12582912.0f);
    float rest = fma(power, -0.6933594f, bounded);
    rest = fma(power, 2.1219444e-4f, rest);
    float series = 1.0f / 5040.0f;
    series = fma(rest, series, 1.0f / 720.0f);
    series = fma(rest, series, 1.0f / 120.0f);
    series = fma(rest, series, 1.0f / 24.0f);
    series = fma(rest, series, 1.0f / 6.0f);
    series = fma(rest, series, 0.5f);
    series = fma(rest, series, 1.0f);
    series = fma(rest, series, 1.0f);
    float scale = as_type<float>((as_type<u32>(shifted) << 23) + (127u << 23));
    return x < -87.3f ? 0.0f : times(series, scale);
}

// ---- the next token ----

#define CHOICE_THREADS 1024u
#define CHOICE_WARPS 32u
// Likeliest words that fit into a group's memory, of which there are 32 KiB; searches among them are fast.
#define NEAREST 2048u
// Words of one tile of the open walk, and tiles at most: vocabularies up to 524288 words.
#define TILE_WORDS 1024u
#define TILES 512u

// The group's memory of a choice.
struct Bench {
    threadgroup float *weights; // NEAREST
    threadgroup u32 *ids;       // NEAREST
    threadgroup Pair *tiles;    // TILES
    threadgroup Pair *sums;     // CHOICE_WARPS
    threadgroup u32 *counts;    // 256
    threadgroup u32 *found;     // 2
};

// Weights, by place: those of all words, or of the nearest, whose numbers are in the bench.
struct Pool {
    device const float *all;
    threadgroup const float *nearest;
    bool near_ones;
    u32 count;
};

inline float weight_of(Pool pool, u32 at) { return pool.near_ones ? pool.nearest[at] : pool.all[at]; }

// The likeliest words: those that weigh more than `floor` (the bits of a weight, which are in its order), and the first
// `ties` of those that weigh as much.
struct Front {
    u32 floor, ties;
    Pair higher; // the sum of those that weigh more
};

inline Front front_of(u32 floor, u32 ties, Pair higher) {
    Front front = {floor, ties, higher};
    return front;
}

inline Pair total_of(Front front) {
    return plus(front.higher, exact_product((float)front.ties, as_type<float>(front.floor)));
}

// Σ of the weights of at least some bits.
inline Pair sum_from(Pool pool, u32 bits, Bench bench, Here here) {
    Pair sum = pair(0.0f, 0.0f);
    for (u32 at = here.worker; at < pool.count; at += CHOICE_THREADS) {
        float weight = weight_of(pool, at);
        if (as_type<u32>(weight) >= bits) sum = plus(sum, weight);
    }
    return block_sum(sum, bench.sums, here);
}

// How many weigh exactly this.
inline u32 count_of(Pool pool, u32 bits, Bench bench, Here here) {
    u32 count = 0;
    for (u32 at = here.worker; at < pool.count; at += CHOICE_THREADS) count += as_type<u32>(weight_of(pool, at)) == bits;
    return block_sum(count, bench.counts, here);
}

// The shortest front within `front` whose sum reaches `wanted`, or, if `past`, exceeds it; all of it if none does.
inline Front shortest(Pool pool, Front front, Pair wanted, bool past, Bench bench, Here here) {
    u32 bits = 0;
    Pair higher = front.higher;
    // From the highest bit down: the largest weight from which on the sum suffices. The sum falls as the bits rise.
    for (int bit = 30; bit >= 0; --bit) {
        u32 tried = bits | 1u << bit;
        if (tried <= front.floor) {
            bits = tried;
            continue;
        }
        Pair sum = sum_from(pool, tried, bench, here);
        if (past ? above(sum, wanted) : !above(wanted, sum)) bits = tried;
    }
    u32 ties = front.ties;
    if (bits > front.floor) {
        higher = sum_from(pool, bits + 1, bench, here);
        ties = count_of(pool, bits, bench, here);
    } else {
        bits = front.floor;
    }
    float weight = as_type<float>(bits);
    u32 few = ties;
    if (weight > 0.0f && ties > 1) {
        // The quotient may be off by one at a border; what n of them weigh decides.
        Pair missing = plus(wanted, pair(-higher.high, -higher.low));
        float quotient = divided(missing, pair(weight, 0.0f)).high;
        few = quotient < 1.0f ? 1u : quotient < (float)ties ? (u32)quotient : ties;
        while (few > 1) {
            Pair fewer = exact_product((float)(few - 1), weight);
            if (past ? !above(fewer, missing) : above(missing, fewer)) break;
            --few;
        }
        while (few < ties) {
            Pair these = exact_product((float)few, weight);
            if (past ? above(these, missing) : !above(missing, these)) break;
            ++few;
        }
    }
    return front_of(bits, few, higher);
}

// The n-th place, from 1, whose weight has these bits; the last such place if there are fewer. In order of places: SIMD
// groups look at 1024 in a row together, and the one that has it tells all.
inline u32 nth_equal(Pool pool, u32 bits, u32 n, Bench bench, Here here) {
    meet_block();
    if (here.worker == 0) bench.found[0] = 0;
    u32 seen = 0, lane = here.worker % WARP, warp = here.worker / WARP;
    for (u32 start = 0; start < pool.count; start += CHOICE_THREADS) {
        u32 at = start + here.worker;
        bool equal = at < pool.count && as_type<u32>(weight_of(pool, least(at, pool.count - 1))) == bits;
        u32 mask = ballot(equal);
        meet_block();
        if (lane == 0) bench.counts[warp] = popcount(mask);
        meet_block();
        u32 before = seen;
        for (u32 w = 0; w < CHOICE_WARPS; ++w) {
            if (w < warp) before += bench.counts[w];
            seen += bench.counts[w];
        }
        u32 own = before + popcount(mask & ((2u << lane) - 1));
        // Earlier finds are overwritten by later ones until the n-th.
        if (equal && (own == n || (own < n && own == seen))) bench.found[0] = at;
        if (seen >= n) break;
    }
    meet_block();
    return bench.found[0];
}

// The front of the `count` likeliest: by 8 bits of a weight at a time, how many words have them. `bins`: 256 words.
inline Front likeliest(Pool pool, u32 count, threadgroup atomic_uint *bins, Bench bench, Here here) {
    u32 prefix = 0, wanted = count;
    for (int shift = 24; shift >= 0; shift -= 8) {
        meet_block();
        if (here.worker < 256) atomic_store_explicit(&bins[here.worker], 0u, memory_order_relaxed);
        meet_block();
        for (u32 at = here.worker; at < pool.count; at += CHOICE_THREADS) {
            u32 bits = as_type<u32>(weight_of(pool, at));
            // Counting, so that the order in which threads come changes nothing.
            if (shift == 24 || bits >> (shift + 8) == prefix) {
                atomic_fetch_add_explicit(&bins[bits >> shift & 255u], 1u, memory_order_relaxed);
            }
        }
        meet_block();
        if (here.worker == 0) {
            u32 bin = 255, still = wanted;
            while (bin > 0) {
                u32 held = atomic_load_explicit(&bins[bin], memory_order_relaxed);
                if (held >= still) break;
                still -= held, --bin;
            }
            bench.found[0] = bin, bench.found[1] = still;
        }
        meet_block();
        prefix = prefix << 8 | bench.found[0], wanted = bench.found[1];
    }
    meet_block();
    return front_of(prefix, wanted, sum_from(pool, prefix + 1, bench, here));
}

// Copies the words of a front, in the order of their numbers, into the bench; returns how many.
inline u32 collect(Pool pool, Front front, Bench bench, Here here) {
    u32 kept = 0, ties = 0, lane = here.worker % WARP, warp = here.worker / WARP;
    for (u32 start = 0; start < pool.count; start += CHOICE_THREADS) {
        u32 at = start + here.worker;
        float weight = at < pool.count ? weight_of(pool, at) : 0.0f;
        u32 bits = as_type<u32>(weight);
        u32 more = ballot(at < pool.count && bits > front.floor), equal = ballot(at < pool.count && bits == front.floor);
        meet_block();
        if (lane == 0) bench.counts[warp] = popcount(more), bench.counts[CHOICE_WARPS + warp] = popcount(equal);
        meet_block();
        u32 higher = 0, same = 0, all_higher = 0, all_same = 0;
        for (u32 w = 0; w < CHOICE_WARPS; ++w) {
            if (w < warp) higher += bench.counts[w], same += bench.counts[CHOICE_WARPS + w];
            all_higher += bench.counts[w], all_same += bench.counts[CHOICE_WARPS + w];
        }
        u32 below = (1u << lane) - 1;
        higher += popcount(more & below), same += popcount(equal & below);
        bool keep = (more >> lane & 1u) != 0 || ((equal >> lane & 1u) != 0 && ties + same < front.ties);
        // Places before this one: all higher ones, and equal ones as far as they are kept.
        u32 to = kept + higher + (least(ties + same, front.ties) - least(ties, front.ties));
        if (keep && to < NEAREST) bench.weights[to] = weight, bench.ids[to] = at;
        kept += all_higher + (least(ties + all_same, front.ties) - least(ties, front.ties));
        ties += all_same;
    }
    meet_block();
    return kept;
}

// The first place in the order of numbers at which the sum of the weights exceeds `wanted`; `tiles` are the sums of each
// TILE_WORDS of them. The last word with a weight if rounding lets none.
inline u32 open_walk(device const float *weights, u32 count, Pair wanted, Bench bench, Here here) {
    meet_block();
    if (here.worker < WARP) {
        u32 all = divided_up(count, TILE_WORDS), tile = 0, lane = here.worker, last = 0;
        Pair reached = pair(0.0f, 0.0f);
        while (tile + 1 < all) {
            Pair next = plus(reached, get(bench.tiles, tile));
            if (above(next, wanted)) break;
            reached = next, ++tile;
        }
        bool done = false;
        for (u32 start = tile * TILE_WORDS; start < least(count, (tile + 1) * TILE_WORDS) && !done; start += WARP) {
            u32 at = start + lane;
            float weight = at < count ? weights[at] : 0.0f;
            Pair upto = pair(weight, 0.0f);
            for (u32 by = 1; by < WARP; by *= 2) {
                Pair before = from_lane(upto, lane >= by ? lane - by : lane);
                if (lane >= by) upto = plus(upto, before);
            }
            u32 past = ballot(weight > 0.0f && above(plus(reached, upto), wanted)), some = ballot(weight > 0.0f);
            if (past != 0) {
                last = start + ctz(past), done = true;
            } else if (some != 0) {
                last = start + 31 - clz(some);
            }
            reached = plus(reached, from_lane(upto, WARP - 1));
        }
        if (lane == 0) bench.found[0] = last;
    }
    meet_block();
    return bench.found[0];
}

// One token for every row of logits, [rows, vocabulary] f32, scaled, capped and divided by the temperature already;
// they are overwritten. choices: [rows, 2], the token and the bits of its log-probability, f32. streams: [rows, 10] words,
// the key of a row's stream and how many words were taken from it, low word first; a token takes one draw, two words.
// top_k 0, top_p 1 and min_p 0 turn those off; greedy takes the likeliest and its log-probability under the whole
// distribution, whatever the rest. A row with a logit that is not finite gets the number of the first such and that logit
// itself: log-probabilities are finite, so the host can tell.
//
// Launch: `rows` groups of 1024 threads. At most TILES · TILE_WORDS words. Sums are pairs, in fixed trees: for the same
// logits the token is that of the processor unless the draw lies within some 10⁻¹³ of a border.
KERNEL(CHOICE_THREADS) choose(device u32 *choices [[buffer(0)]], device float *logits [[buffer(1)]],
                              device const u32 *streams [[buffer(2)]], constant u32 &vocabulary [[buffer(3)]],
                              constant u32 &top_k [[buffer(4)]], constant float &top_p [[buffer(5)]],
                              constant float &min_p [[buffer(6)]], constant u32 &greedy [[buffer(7)]] WHERE) {
    SHARED float near_weights[NEAREST];
    SHARED u32 near_ids[NEAREST];
    SHARED Pair tiles[TILES];
    SHARED Pair sums[CHOICE_WARPS];
    SHARED float tops[CHOICE_WARPS];
    SHARED u32 firsts[CHOICE_WARPS], spoils[CHOICE_WARPS], counts[2 * CHOICE_WARPS], found[2];
    SHARED atomic_uint bins[256];
    Here here = HERE;
    Bench bench = {near_weights, near_ids, tiles, sums, counts, found};
    u32 row = here.block.x, own = here.worker;
    device float *weights = logits + (u64)row * vocabulary;

    // The largest logit, the first of equals.
    float top = -infinite();
    u32 first = ~0u, broken = ~0u;
    for (u32 at = own; at < vocabulary; at += CHOICE_THREADS) {
        float logit = weights[at];
        if (!finite(logit)) broken = least(broken, at);
        if (logit > top) top = logit, first = at;
    }
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        float other = across(top, mask);
        u32 its = across(first, mask);
        if (other > top || (other == top && its < first)) top = other, first = its;
        broken = least(broken, across(broken, mask));
    }
    if (own % WARP == 0) tops[own / WARP] = top, firsts[own / WARP] = first, spoils[own / WARP] = broken;
    meet_block();
    for (u32 warp = 0; warp < CHOICE_WARPS; ++warp) {
        if (tops[warp] > top || (tops[warp] == top && firsts[warp] < first)) top = tops[warp], first = firsts[warp];
        broken = least(broken, spoils[warp]);
    }

    device u32 *choice = choices + 2 * row;
    if (broken != ~0u) {
        if (own == 0) choice[0] = broken, choice[1] = as_type<u32>(weights[broken]);
        return;
    }
    device const u32 *stream = streams + 10 * row;
    Pair draw = draw_at(stream, (u64)stream[9] << 32 | stream[8]);
    // Everybody has read the logits before any is overwritten.
    meet_block();

    // Weights relative to the likeliest, and their sums tile by tile, a SIMD group each.
    for (u32 tile = own / WARP; tile < divided_up(vocabulary, TILE_WORDS); tile += CHOICE_WARPS) {
        Pair sum = pair(0.0f, 0.0f);
        for (u32 at = tile * TILE_WORDS + own % WARP; at < least(vocabulary, (tile + 1) * TILE_WORDS); at += WARP) {
            float weight = steady_exp(weights[at] - top);
            weights[at] = weight;
            sum = plus(sum, weight);
        }
        sum = warp_sum(sum);
        if (own % WARP == 0) put(tiles, tile, sum);
    }
    meet_block();
    Pair total = pair(0.0f, 0.0f);
    for (u32 tile = 0; tile < divided_up(vocabulary, TILE_WORDS); ++tile) {
        total = plus(total, get((threadgroup const Pair *)tiles, tile));
    }

    u32 chosen = first;
    float weight = 1.0f;
    bool open = top_k == 0 && top_p >= 1.0f && min_p <= 0.0f;
    // A draw below 1 stays below the total, whatever the product rounds to: 1 − 2⁻⁴⁶.
    Pair whole = pair(1.0f, -1.4210854715202004e-14f);
    if (greedy != 0) {
    } else if (open) {
        Pair wanted = times(total, draw), most_wanted = times(total, whole);
        chosen = open_walk(weights, vocabulary, above(wanted, most_wanted) ? most_wanted : wanted, bench, here);
        weight = weights[chosen];
    } else {
        Pool all = {weights, near_weights, false, vocabulary}, pool = all;
        u32 limit = top_k == 0 ? vocabulary : least(top_k, vocabulary);
        Front front = likeliest(all, least(limit, NEAREST), bins, bench, here), wider = front;
        if (limit > NEAREST) {
            if (limit == vocabulary) {
                wider = front_of(0u, 0u, total);
            } else {
                wider = likeliest(all, limit, bins, bench, here);
            }
        }
        // Among the nearest if they suffice, else among all.
        Pair share = top_p < 1.0f ? times(total_of(wider), top_p) : total_of(wider);
        bool near_ones = limit <= NEAREST || (top_p < 1.0f && !above(share, total_of(front)));
        if (near_ones) {
            u32 count = collect(all, front, bench, here);
            pool.near_ones = true;
            pool.count = least(count, NEAREST);
        } else {
            front = wider;
        }
        if (top_p < 1.0f) front = shortest(pool, front, share, false, bench, here);
        u32 bound = as_type<u32>((float)min_p);
        if (min_p > 0.0f && bound > front.floor) front = front_of(bound - 1, 0u, sum_from(pool, bound, bench, here));
        total = total_of(front);
        Pair wanted = times(total, draw), most_wanted = times(total, whole);
        Front last = shortest(pool, front, above(wanted, most_wanted) ? most_wanted : wanted, true, bench, here);
        u32 at = nth_equal(pool, last.floor, most(last.ties, 1u), bench, here);
        chosen = near_ones ? near_ids[at] : at;
        weight = weight_of(pool, at);
    }
    if (own != 0) return;
    Pair part = greedy != 0 ? total : divided(pair(weight, 0.0f), total);
    float level = log(part.high) + part.low / part.high;
    choice[0] = chosen;
    choice[1] = as_type<u32>(greedy != 0 ? -level : level);
}
