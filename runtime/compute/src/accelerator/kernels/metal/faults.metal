// Index checks on the device: nothing waits for an index to be looked at; the refusal comes when a result is read. The
// CUDA text says more. All "flat" over the result.

// Copies an index and puts 0 where it is out of range. clean may be index.
KERNEL(256) check_indices(device u32 *clean [[buffer(0)]], device const u32 *index [[buffer(1)]],
                          constant u64 &count [[buffer(2)]], constant u32 &bound [[buffer(3)]],
                          FAULT_WORD word [[buffer(4)]], constant u32 &place [[buffer(5)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) {
        clean[at] = inside(index[at], bound, word, place);
    }
}

// Sets a fault where a number is not finite; its index is the lower 32 bits of its place.
KERNEL(256) check_finite(device const act *x [[buffer(0)]], constant u64 &count [[buffer(1)]],
                         FAULT_WORD word [[buffer(2)]], constant u32 &place [[buffer(3)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < count; at += step) {
        if (!finite(get(x, at))) fault(word, place, (u32)at);
    }
}

// y[o][j][i] = x[o][index[j]][i]: index_select along an axis. x: [outer, bound, inner], index: [count],
// y: [outer, count, inner].
KERNEL(256) select_along(device float *y [[buffer(0)]], device const float *x [[buffer(1)]],
                         device const u32 *index [[buffer(2)]], constant u64 &outer [[buffer(3)]],
                         constant u32 &bound [[buffer(4)]], constant u64 &inner [[buffer(5)]],
                         constant u32 &count [[buffer(6)]], FAULT_WORD word [[buffer(7)]],
                         constant u32 &place [[buffer(8)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers, all = outer * count * inner;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < all; at += step) {
        u64 i = at % inner, j = at / inner % count, o = at / inner / count;
        y[at] = x[(o * bound + inside(index[j], bound, word, place)) * inner + i];
    }
}

// y[o][j][i] = x[o][index[o][j][i]][i]: gather along an axis. index and y: [outer, count, inner].
KERNEL(256) gather_along(device float *y [[buffer(0)]], device const float *x [[buffer(1)]],
                         device const u32 *index [[buffer(2)]], constant u64 &outer [[buffer(3)]],
                         constant u32 &bound [[buffer(4)]], constant u64 &inner [[buffer(5)]],
                         constant u32 &count [[buffer(6)]], FAULT_WORD word [[buffer(7)]],
                         constant u32 &place [[buffer(8)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers, all = outer * count * inner;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < all; at += step) {
        u64 i = at % inner, o = at / inner / count;
        y[at] = x[(o * bound + inside(index[at], bound, word, place)) * inner + i];
    }
}

// y = x, then y[o][index[j]][i] += source[o][j][i] in the order of j, one thread for each (o, i). y and x: [outer, bound,
// inner], source: [outer, count, inner]; y may be x, which changes nothing: each number is copied before it is added to.
KERNEL(256) add_along(device float *y [[buffer(0)]], device const float *x [[buffer(1)]],
                      device const float *source [[buffer(2)]], device const u32 *index [[buffer(3)]],
                      constant u64 &outer [[buffer(4)]], constant u32 &bound [[buffer(5)]],
                      constant u64 &inner [[buffer(6)]], constant u32 &count [[buffer(7)]],
                      FAULT_WORD word [[buffer(8)]], constant u32 &place [[buffer(9)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers, all = outer * inner;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < all; at += step) {
        u64 i = at % inner, o = at / inner;
        for (u32 row = 0; row < bound; ++row) y[(o * bound + row) * inner + i] = x[(o * bound + row) * inner + i];
        for (u32 j = 0; j < count; ++j) {
            y[(o * bound + inside(index[j], bound, word, place)) * inner + i] += source[(o * count + j) * inner + i];
        }
    }
}

// The same for an index of its own for each number: y[o][index[o][j][i]][i] += source[o][j][i] (the gradient of gather).
KERNEL(256) scatter_along(device float *y [[buffer(0)]], device const float *source [[buffer(1)]],
                          device const u32 *index [[buffer(2)]], constant u64 &outer [[buffer(3)]],
                          constant u32 &bound [[buffer(4)]], constant u64 &inner [[buffer(5)]],
                          constant u32 &count [[buffer(6)]], FAULT_WORD word [[buffer(7)]],
                          constant u32 &place [[buffer(8)]] WHERE) {
    Here here = HERE;
    u64 step = (u64)here.blocks.x * here.workers, all = outer * inner;
    for (u64 at = (u64)here.block.x * here.workers + here.worker; at < all; at += step) {
        u64 i = at % inner, o = at / inner;
        for (u32 j = 0; j < count; ++j) {
            u64 from = (o * count + j) * inner + i;
            y[(o * bound + inside(index[from], bound, word, place)) * inner + i] += source[from];
        }
    }
}
