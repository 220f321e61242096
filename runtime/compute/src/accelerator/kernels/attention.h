// What the kernels of attention share: where the tokens of a sequence lie, and who sees whom. Agrees with
// fused/segments.rs and fused/attention.rs.
//
// Rows are packed tokens. A sequence may go on from another, so what a query sees is a path of spans of rows, by
// position: its own sequence last. The host makes, once a batch:
//   spans  all paths and families, one after another;
//   places     for queries: tiles of at most QUERIES tokens of one sequence, cut where a multiple of QUERIES lies
//              between two positions, with the path of their sequence (`Segments::path`);
//              for keys: tiles of at most KEYS tokens of one sequence, with its family (`Segments::family`).
// Long ones first, so that no multiprocessor is left with the longest at the end. Each kernel says which QUERIES or
// KEYS its places need. Blocks of keys begin at multiples of KEYS by position: a token's result has the same bits
// whether what it goes on from is shared or not.
//
// One module a head size: HEAD_DIM, a multiple of 16, past 128 of 32, at least the real `dim`; numbers past `dim` count
// as 0.

#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif

// Tokens whose positions are first … first + length − 1, in rows from `row` on.
struct Span {
    u32 first, row, length;
};

// A tile of tokens, and `count` spans from number `path` on that it meets.
struct TileEntry {
    u32 first, row, length, path, count;
};

// What happens to scores. The fields of `AttentionShape`.
struct Scoring {
    float scale;
    float cap;  // 0 for none
    u32 window; // 0 for none
};

DEVICE TileEntry place_at(GLOBAL const TileEntry *places, u32 at) {
    TileEntry place = {places[at].first, places[at].row, places[at].length, places[at].path, places[at].count};
    return place;
}

DEVICE Span span_at(GLOBAL const Span *spans, u32 at) {
    Span span = {spans[at].first, spans[at].row, spans[at].length};
    return span;
}

// The row of a position, or NOWHERE. `at` is the span found last; positions may only grow from call to call.
DEVICE u32 row_of(GLOBAL const Span *path, u32 count, THREAD u32 &at, u32 position) {
    while (at < count && position >= path[at].first + path[at].length) ++at;
    return at < count && position >= path[at].first ? path[at].row + (position - path[at].first) : NOWHERE;
}

DEVICE bool sees(u32 query, u32 key, u32 window) { return key <= query && (window == 0 || query - key < window); }

// The first key that any query from `query` on sees.
DEVICE u32 first_key(u32 query, u32 window) { return window != 0 && query + 1 > window ? query + 1 - window : 0; }

// The score of a product, and the slope of the cap there.
DEVICE float score_of(float product, Scoring scoring, THREAD float &slope) {
    float score = product * scoring.scale;
    slope = 1.0f;
    if (scoring.cap != 0.0f) {
        float curve = tanhf(score / scoring.cap);
        slope = 1.0f - curve * curve;
        score = scoring.cap * curve;
    }
    return score;
}
