// What the kernels of attention share: where the tokens of a sequence lie, and who sees whom. Agrees with
// fused/segments.rs and fused/attention.rs.
//
// Rows are packed tokens. A sequence may go on from another, so what a query sees is a path of spans of rows, by
// position: its own sequence last. The host makes `spans` (all paths and families) and `places` (tiles of tokens of
// one sequence with its path or family) once a batch; the CUDA text says how. One library a head size: HEAD_DIM, a
// multiple of 16, at least the real `dim`; numbers past `dim` count as 0.

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

inline TileEntry place_at(device const TileEntry *places, u32 at) {
    TileEntry place = {places[at].first, places[at].row, places[at].length, places[at].path, places[at].count};
    return place;
}

inline Span stretch_at(device const Span *spans, u32 at) {
    Span span = {spans[at].first, spans[at].row, spans[at].length};
    return span;
}

// The row of a position on a path, or NOWHERE.
inline u32 row_of(device const Span *path, u32 count, u32 position) {
    u32 at = 0;
    while (at < count && position >= path[at].first + path[at].length) ++at;
    return at < count && position >= path[at].first ? path[at].row + (position - path[at].first) : NOWHERE;
}

inline bool sees(u32 query, u32 key, u32 window) { return key <= query && (window == 0 || query - key < window); }

// The first key that any query from `query` on sees.
inline u32 first_key(u32 query, u32 window) { return window != 0 && query + 1 > window ? query + 1 - window : 0; }

// The score of a product, and the slope of the cap there.
inline float scored(float product, Scoring scoring, thread float &slope) {
    float score = product * scoring.scale;
    slope = 1.0f;
    if (scoring.cap != 0.0f) {
        float curve = tanh(score / scoring.cap);
        slope = 1.0f - curve * curve;
        score = scoring.cap * curve;
    }
    return score;
}
