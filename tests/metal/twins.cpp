// Metal's kernels against slow twins in f64, on the emulated machine.
// Compile with -I. -fno-strict-aliasing -ffp-contract=off -DACTIVATION=… -DHEAD_DIM=… -DGROUP=… in this folder.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <metal_stdlib>

#define KERNELS(file) <../../runtime/compute/src/accelerator/kernels/file>
#include KERNELS(metal/prelude.metal)
#include KERNELS(dialect.h)
#include KERNELS(elementwise.h)
#include KERNELS(norm.h)
#include KERNELS(rope.h)
#include KERNELS(embedding.h)
#include KERNELS(optimizer.h)
#include KERNELS(head.h)
#include KERNELS(patches.h)
#include KERNELS(unpack_formats.h)
#include KERNELS(unpack.h)
#include KERNELS(chance.h)
#include KERNELS(attention.h)
#include KERNELS(metal/attention_tiles.metal)
#include KERNELS(attention_plain.h)
#include KERNELS(attention_cached.h)
#include KERNELS(metal/product.metal)

using std::vector;

// The numbers of any type, and of pairs, as the twins have them.
static float wide(float number) { return number; }
static float wide(bf16 number) { return wide_bf16(number.bits); }
static float wide(f16 number) { return wide_f16(number.bits); }
template <typename T> static T narrow(float);
template <> float narrow<float>(float number) { return number; }
template <> bf16 narrow<bf16>(float number) { return {narrow_bf16(number)}; }
template <> f16 narrow<f16>(float number) { return {narrow_f16(number)}; }
static double value_of(Pair pair) { return (double)pair.high + pair.low; }

static u64 state = 88172645463325252ull;
static u64 next() { state ^= state << 13, state ^= state >> 7, state ^= state << 17; return state; }
static double uniform() { return (double)(next() >> 11) / 9007199254740992.0; }
static double normal() { return sqrt(-2.0 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform()); }
template <typename T> static vector<T> normals(size_t count, double scale = 1.0) {
    vector<T> result(count + 8);
    for (size_t i = 0; i < count; ++i) result[i] = narrow<T>((float)(normal() * scale));
    result.resize(count);
    return result;
}
static int failures = 0, checks = 0;
static void check(const std::string &what, bool right) {
    ++checks;
    if (!right) ++failures, printf("FAILED %s\n", what.c_str());
}
// No number further off than `tolerance` times the largest.
template <typename A, typename B> static void close(const std::string &what, const A &found, const B &wanted, double tolerance) {
    double scale = 1e-3, worst = 0.0;
    for (double x : wanted) scale = std::max(scale, fabs(x));
    size_t at = 0, n = wanted.size();
    bool whole = true;
    for (size_t i = 0; i < n; ++i) {
        double f = wide(found[i]), error = fabs(f - wanted[i]) / scale;
        if (!(error <= 1e300)) whole = false, at = i;
        if (error > worst) worst = error, at = i;
    }
    ++checks;
    if (!whole || worst > tolerance) {
        ++failures;
        printf("FAILED %s[%zu of %zu]: %g for %g, off by %g of the largest\n", what.c_str(), at, n, (double)wide(found[at]), (double)wanted[at], worst);
    } else if (getenv("LOUD")) {
        printf("%s: %.2g\n", what.c_str(), worst);
    }
}
template <typename T> static vector<double> doubles(const vector<T> &x) {
    vector<double> result;
    for (auto n : x) result.push_back(wide(n));
    return result;
}
static const double TOL = ACTIVATION == 0 ? 3e-6 : ACTIVATION == 1 ? 9e-3 : 1.5e-3;
static u64 word = ~0ull;

static void elementwise() {
    for (u32 columns : {40u, 37u}) {
        u32 rows = 5;
        auto gate = normals<act>(rows * 2 * columns, 2.0), dy = normals<act>(rows * columns);
        for (u32 kind : {0u, 1u}) {
            vector<act> y(rows * columns), again(rows * columns), dgate(rows * 2 * columns), dup(0);
            u64 stride = 2 * columns;
            launch({3}, 256, 0, [&] { gated(y.data(), gate.data(), gate.data() + columns, rows, columns, stride, kind); });
            launch({3}, 256, 0, [&] { gated_backward(dgate.data(), dgate.data() + columns, again.data(), dy.data(), gate.data(), gate.data() + columns, rows, columns, stride, kind); });
            vector<double> wy, wg(rows * 2 * columns);
            auto f = [&](double x) { return kind == 0 ? x / (1 + exp(-x)) : 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); };
            for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < columns; ++c) {
                double g = wide(gate[r * stride + c]), u = wide(gate[r * stride + columns + c]), d = wide(dy[r * columns + c]);
                wy.push_back(f(g) * u);
                wg[r * stride + c] = d * u * (f(g + 1e-5) - f(g - 1e-5)) / 2e-5;
                wg[r * stride + columns + c] = d * f(g);
            }
            close("gated", y, wy, TOL), close("gated backward", dgate, wg, std::max(TOL, 1e-6)), close("gated again", again, wy, TOL);
        }
    }
    u32 rows = 70, columns = 37;
    auto x = normals<act>(rows * columns);
    vector<float> parts(3 * columns), sum(columns, 1.0f);
    launch({1, 3}, 256, 0, [&] { sum_rows_in_parts(parts.data(), x.data(), rows, columns, 32); });
    launch({1}, 256, 0, [&] { add_parts(sum.data(), parts.data(), 3, columns, 1.0f, 2.0f); });
    vector<double> wanted(columns, 1.0);
    for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < columns; ++c) wanted[c] += 2.0 * wide(x[r * columns + c]);
    close("bias gradient", sum, wanted, 2e-6);
    vector<act> a = normals<act>(1003), b = normals<act>(1003), y(1003);
    launch({2}, 256, 0, [&] { add(y.data(), a.data(), b.data(), 1003); });
    vector<double> w;
    for (int i = 0; i < 1003; ++i) w.push_back((double)wide(a[i]) + wide(b[i]));
    close("add", y, w, TOL);
    vector<float> f = normals<float>(1003), g(1003);
    vector<bf16> half(1003);
    launch({2}, 256, 0, [&] { f32_to_bf16(half.data(), f.data(), 1.0f, 1003); });
    launch({2}, 256, 0, [&] { bf16_to_f32(g.data(), half.data(), 1.0f, 1003); });
    close("casts", g, doubles(f), 4e-3);
    vector<act> rowsx = normals<act>(5 * 40);
    auto before = doubles(rowsx);
    auto bias = normals<float>(40);
    launch({2}, 256, 0, [&] { add_bias(rowsx.data(), bias.data(), 5, 40, 40); });
    for (int i = 0; i < 200; ++i) before[i] += bias[i % 40];
    close("bias", rowsx, before, TOL);
}

static void norms() {
    struct { u32 rows, width; float offset; bool narrow; } cases[] = {{7, 304, 0, false}, {9, 301, 1, false}, {13, 64, 0, true}, {5, 80, 1, true}, {3, 7, 0, true}};
    for (auto c : cases) {
        size_t n = (size_t)c.rows * c.width;
        auto x = normals<act>(n), dy = normals<act>(n);
        auto w = normals<float>(c.width);
        vector<act> y(n), dx(n);
        vector<float> rates(c.rows);
        Three grid = {c.narrow ? (c.rows + 7) / 8 : c.rows};
        auto forward = c.narrow ? rms_norm_narrow : rms_norm;
        auto backward = c.narrow ? rms_norm_backward_narrow : rms_norm_backward;
        launch(grid, 256, 0, [&] { forward(y.data(), rates.data(), x.data(), w.data(), c.rows, c.width, 1e-6f, c.offset); });
        launch(grid, 256, 0, [&] { backward(dx.data(), dy.data(), x.data(), w.data(), rates.data(), c.narrow ? dy.data() : (const act *)nullptr, c.rows, c.width, c.offset); });
        vector<float> parts(4 * c.width), dw(c.width);
        launch({(c.width + 255) / 256, 4}, 256, 0, [&] { rms_norm_weight_gradient(parts.data(), dy.data(), x.data(), rates.data(), c.rows, c.width, 4); });
        launch({(c.width + 255) / 256}, 256, 0, [&] { add_parts(dw.data(), parts.data(), 4, c.width, 0.0f, 1.0f); });
        vector<double> wy(n), wdx(n), wdw(c.width);
        for (u32 i = 0; i < c.rows; ++i) {
            double square = 0, product = 0;
            auto at = [&](const vector<act> &v, u32 j) { return (double)wide(v[(size_t)i * c.width + j]); };
            for (u32 j = 0; j < c.width; ++j) square += at(x, j) * at(x, j);
            double rate = 1 / sqrt(square / c.width + 1e-6);
            for (u32 j = 0; j < c.width; ++j) product += at(dy, j) * (w[j] + c.offset) * at(x, j);
            for (u32 j = 0; j < c.width; ++j) {
                size_t k = (size_t)i * c.width + j;
                wy[k] = at(x, j) * rate * (w[j] + c.offset);
                wdx[k] = at(dy, j) * (w[j] + c.offset) * rate - at(x, j) * rate * rate * rate * product / c.width;
                wdx[k] += c.narrow ? at(dy, j) : 0;
                wdw[j] += at(dy, j) * at(x, j) * rate;
            }
        }
        close("norm", y, wy, TOL), close("norm backward", dx, wdx, TOL), close("norm weight", dw, wdw, 3e-6);
    }
}

static void turns() {
    struct { u32 heads, dim, half, step, apart; } cases[] = {{3, 6, 3, 1, 3}, {2, 8, 3, 1, 3}, {2, 64, 32, 1, 32}, {2, 48, 16, 1, 16}, {2, 48, 16, 2, 1}};
    for (auto c : cases) {
        u32 tokens = 6, known = 10, width = c.heads * c.dim;
        auto x = normals<act>(tokens * width);
        u32 positions[] = {0, 1, 2, 0, 9, 5};
        vector<float> cosines(known * c.half), sines(known * c.half);
        for (u32 p = 0; p < known; ++p) for (u32 i = 0; i < c.half; ++i) cosines[p * c.half + i] = cos(p * pow(0.1, i)), sines[p * c.half + i] = sin(p * pow(0.1, i));
        bool eights = c.half % 8 == 0 && c.step == 1;
        vector<act> y(tokens * width), back(tokens * width);
        auto run = eights ? rope_eights : rope;
        u32 pieces = eights ? c.half / 8 : c.half;
        Three grid = {(tokens * c.heads * pieces + 255) / 256};
        launch(grid, 256, 0, [&] { run(y.data(), x.data(), positions, cosines.data(), sines.data(), tokens, c.heads, c.dim, c.half, c.step, c.apart, width, width, known, 1.0f, &word); });
        back = y;
        launch(grid, 256, 0, [&] { run(back.data(), back.data(), positions, cosines.data(), sines.data(), tokens, c.heads, c.dim, c.half, c.step, c.apart, width, width, known, -1.0f, &word); });
        vector<double> wanted = doubles(x);
        for (u32 t = 0; t < tokens; ++t) for (u32 h = 0; h < c.heads; ++h) for (u32 i = 0; i < c.half; ++i) {
            size_t a = t * width + h * c.dim + i * c.step, b = a + c.apart;
            double low = wide(x[a]), high = wide(x[b]), co = cosines[positions[t] * c.half + i], si = sines[positions[t] * c.half + i];
            wanted[a] = low * co - high * si, wanted[b] = high * co + low * si;
        }
        close("rope", y, wanted, TOL), close("rope back", back, doubles(x), 2 * TOL);
    }
    check("no fault", word == ~0ull);
}

static void embeddings() {
    u32 known = 11, width = 24, ids[] = {3, 0, 3, 10, 7, 3}, count = 6;
    auto table = normals<bf16>(known * width);
    auto dy = normals<act>(count * width);
    vector<act> y(count * width);
    launch({4}, 128, 0, [&] { embed_bf16(y.data(), table.data(), ids, count, width, known, 2.5f, &word); });
    vector<double> wy(count * width), wg(known * width, 1.0);
    for (u32 i = 0; i < count; ++i) for (u32 j = 0; j < width; ++j) wy[i * width + j] = 2.5 * wide(table[ids[i] * width + j]), wg[ids[i] * width + j] += 2.5 * wide(dy[i * width + j]);
    close("embed", y, wy, TOL);
    u32 order[] = {1, 0, 2, 5, 4, 3}, numbers[] = {0, 3, 7, 10}, starts[] = {0, 1, 4, 5, 6};
    vector<float> sum(known * width, 1.0f);
    launch({3, 1}, 128, 0, [&] { embed_gradient(sum.data(), dy.data(), order, starts, numbers, 4, width, known, count, 2.5f, 1.0f, &word); });
    close("embed gradient", sum, wg, 2e-6);
    check("no fault", word == ~0ull);
    u32 wild[] = {3, 99, 4, 77};
    launch({1}, 256, 0, [&] { embed_bf16(y.data(), table.data(), wild, 4, width, known, 1.0f, &word); });
    check("fault", word >> 32 == 0 && (u32)~word == 99);
    word = ~0ull;
    vector<act> back(known * width);
    launch({3, 1}, 128, 0, [&] { scatter_rows(back.data(), dy.data(), order, starts, numbers, 4, width, known, count, 2.5f, 0.0f, &word); });
    for (double &n : wg) n -= 1.0;
    close("spread rows", back, wg, TOL);
}

static void optimizers() {
    // The numbers of optimizer/tests.rs: three steps with decay, as torch has them.
    double expected[3][3] = {{0.489500001, -0.2897, 0.0999}, {0.47983269, -0.28674693, 0.107241466}, {0.47677382, -0.285846295, 0.101508491}};
    float w[3] = {0.5f, -0.3f, 0.1f}, m[3] = {}, v[3] = {}, g[3][3] = {{0.1f, -0.2f, 0.0f}, {0.3f, 0.1f, -0.05f}, {-0.2f, 0.05f, 0.4f}};
    for (int t = 0; t < 3; ++t) {
        double b1 = 0.9, b2 = 0.999, rate = 1e-2;
        Step step = {(float)b1, (float)(1 - b1), (float)b2, (float)(1 - b2), (float)(1 - rate * 0.1), (float)(rate / (1 - pow(b1, t + 1))), (float)sqrt(1 - pow(b2, t + 1)), 1e-8f};
        act operand_copy[3];
        launch({1}, 256, 0, [&] { adamw(w, m, v, g[t], operand_copy, &step, nullptr, 3, &word); });
        for (int i = 0; i < 3; ++i) check("adamw", fabs(w[i] - expected[t][i]) < 1e-7 && fabs(wide(operand_copy[i]) - w[i]) < 0.005);
    }
    vector<float> x = normals<float>(100003);
    vector<Pair> parts(2);
    double wanted = 0;
    float halves[2], factor;
    for (float n : x) wanted += (double)n * n;
    launch({2}, 256, 0, [&] { square_sums(parts.data(), x.data(), x.size()); });
    launch({1}, 256, 0, [&] { clip_factor(halves, &factor, parts.data(), 2, 1.0f); });
    double norm = (double)halves[0] + halves[1];
    check("norm of gradients", fabs(norm - sqrt(wanted)) < 1e-9 * norm && fabsf(factor - (float)(1 / (norm + 1e-6))) < 1e-9);
}

static void heads() {
    u32 rows = 3, vocabulary = 700, width = 16, pitch = 304;
    for (double cap : {0.0, 3.0}) for (double temperature : {1.0, 0.7}) {
        auto hidden = normals<act>(rows * width);
        auto weight = normals<act>(vocabulary * width, 0.7);
        u32 targets[] = {5, 699, 300};
        double logit_scale = 1.3, inverse = 1 / temperature, factor = cap ? logit_scale / cap : logit_scale * inverse, height = cap * inverse, outer = logit_scale * inverse;
        auto product = [&](u32 r, u32 v) { double s = 0; for (u32 j = 0; j < width; ++j) s += (double)wide(hidden[r * width + j]) * wide(weight[v * width + j]); return s; };
        auto z_of = [&](double x) { return cap ? height * tanh(factor * x) : factor * x; };
        auto slope_of = [&](double x) { double c = cap ? tanh(factor * x) : 0; return outer * (1 - c * c); };
        vector<float> largest(rows), target(rows), logprob(rows), lse(rows), entropy(rows), square_log(rows), mean(rows), mean_log(rows), top(rows);
        vector<Pair> sum(rows), square(rows), weighted(rows), plain(rows);
        auto tile_at = [&](u32 first, u32 words) {
            vector<float> tile(rows * pitch);
            for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < words; ++c) tile[r * pitch + c] = (float)product(r, first + c);
            return tile;
        };
        u32 taps = 7, step = 300;
        for (u32 first = 0; first < vocabulary; first += step) {
            u32 words = std::min(step, vocabulary - first);
            auto tile = tile_at(first, words);
            launch({rows}, 512, 0, [&] { head_statistics(tile.data(), targets, largest.data(), target.data(), sum.data(), square.data(), weighted.data(), plain.data(), rows, words, pitch, first, vocabulary, factor, height, taps, first == 0, &word); });
        }
        launch({1}, 128, 0, [&] { head_finish(largest.data(), target.data(), sum.data(), square.data(), weighted.data(), plain.data(), logprob.data(), lse.data(), entropy.data(), square_log.data(), mean.data(), mean_log.data(), top.data(), rows, vocabulary); });
        vector<double> wl(rows), wlse(rows), we(rows), wsq(rows), wm(rows), wml(rows), dslope(rows * width);
        vector<double> seeds = {0.3, -1.0, 0.5}, eseeds = {0.2, 0.1, -0.4}, mseeds = {0.5, 0.0, -0.2};
        vector<double> wgrad(rows * vocabulary);
        for (u32 r = 0; r < rows; ++r) {
            vector<double> z;
            double hi = -1e300, s = 0;
            for (u32 v = 0; v < vocabulary; ++v) z.push_back(z_of(product(r, v))), hi = std::max(hi, z.back());
            for (double x : z) s += exp(x - hi);
            double log_sum = hi + log(s), sq = 0;
            for (double x : z) { double p = exp(x - log_sum); we[r] -= p * (x - log_sum), sq += p * p, wm[r] += x / vocabulary; }
            wl[r] = z[targets[r]] - log_sum, wlse[r] = log_sum, wsq[r] = log(sq), wml[r] = wm[r] - log_sum;
            check("top one", top[r] == (z[targets[r]] >= hi ? 1.0f : 0.0f));
            for (u32 v = 0; v < vocabulary; ++v) {
                double lp = z[v] - log_sum, p = exp(lp), x = product(r, v);
                double g = seeds[r] * (v == targets[r]) + mseeds[r] / vocabulary - p * (seeds[r] + mseeds[r] + eseeds[r] * we[r]) - eseeds[r] * p * lp;
                wgrad[r * vocabulary + v] = g * slope_of(x);
                for (u32 j = 0; j < width; ++j) dslope[r * width + j] += ((v == targets[r]) - p) * slope_of(x) * wide(weight[v * width + j]);
            }
        }
        close("logprob", logprob, wl, 1e-6), close("lse", lse, wlse, 1e-6), close("entropy", entropy, we, 2e-6);
        close("log sum square", square_log, wsq, 2e-6), close("mean logit", mean, wm, 2e-5), close("mean logprob", mean_log, wml, 1e-6);
        vector<float> s1(seeds.begin(), seeds.end()), s2(eseeds.begin(), eseeds.end()), s3(mseeds.begin(), mseeds.end()), pulls(rows * width, NAN);
        vector<act> gradients(rows * vocabulary);
        for (u32 first = 0; first < vocabulary; first += step) {
            u32 words = std::min(step, vocabulary - first);
            auto tile = tile_at(first, words);
            vector<act> made(rows * pitch);
            launch({rows}, 512, 0, [&] { head_gradient(made.data(), tile.data(), targets, lse.data(), entropy.data(), s1.data(), s2.data(), s3.data(), rows, words, pitch, first, vocabulary, factor, height, outer); });
            for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < words; ++c) gradients[r * vocabulary + first + c] = made[r * pitch + c];
            tile = tile_at(first, words);
            launch({rows}, 512, 0, [&] { head_accumulate(made.data(), tile.data(), targets, pulls.data(), largest.data(), target.data(), sum.data(), square.data(), weighted.data(), plain.data(), rows, words, pitch, first, vocabulary, width, factor, height, taps, first == 0, &word); });
            for (u32 r = 0; r < rows; ++r) for (u32 j = 0; j < width; ++j) for (u32 c = 0; c < words; ++c) pulls[r * width + j] += wide(made[r * pitch + c]) * wide(weight[(first + c) * width + j]);
        }
        close("gradient of logits", gradients, wgrad, TOL);
        vector<act> own(rows * width);
        for (u32 r = 0; r < rows; ++r) for (u32 j = 0; j < width; ++j) own[r * width + j] = weight[targets[r] * width + j];
        launch({rows}, 512, 0, [&] { head_logprob_gradients(pulls.data(), own.data(), target.data(), sum.data(), rows, width, height, outer); });
        close("gradients of log-probabilities", pulls, dslope, std::max(1e-5, TOL));
    }
    check("no fault", word == ~0ull);
}

// The formats as fused/unpack.rs reads them, block by block.
static float half_of(const u8 *b) { f16 h = {(u16)(b[0] | b[1] << 8)}; return wide(h); }
static void read_block(const std::string &format, const u8 *b, float *to, float magnitude) {
    auto small = [&](int part, float &scale, float &low) {
        const u8 *p = b + 4;
        int s = part < 4 ? p[part] & 63 : (p[part + 4] & 15) | p[part - 4] >> 6 << 4, l = part < 4 ? p[part + 4] & 63 : p[part + 4] >> 4 | p[part] >> 6 << 4;
        scale = half_of(b) * s, low = half_of(b + 2) * l;
    };
    if (format == "q4_0") for (int i = 0; i < 16; ++i) to[i] = ((b[2 + i] & 15) - 8) * half_of(b), to[16 + i] = ((b[2 + i] >> 4) - 8) * half_of(b);
    if (format == "q4_1") for (int i = 0; i < 16; ++i) to[i] = (b[4 + i] & 15) * half_of(b) + half_of(b + 2), to[16 + i] = (b[4 + i] >> 4) * half_of(b) + half_of(b + 2);
    u32 fifth;
    if (format == "q5_0") { memcpy(&fifth, b + 2, 4); for (int i = 0; i < 16; ++i) to[i] = ((b[6 + i] & 15) - (fifth >> i & 1 ? 0 : 16)) * half_of(b), to[16 + i] = ((b[6 + i] >> 4) - (fifth >> (16 + i) & 1 ? 0 : 16)) * half_of(b); }
    if (format == "q5_1") { memcpy(&fifth, b + 4, 4); for (int i = 0; i < 16; ++i) to[i] = (int)((b[8 + i] & 15) | (fifth >> i & 1) << 4) * half_of(b) + half_of(b + 2), to[16 + i] = (int)((b[8 + i] >> 4) | (fifth >> (16 + i) & 1) << 4) * half_of(b) + half_of(b + 2); }
    if (format == "q8_0") for (int i = 0; i < 32; ++i) to[i] = (signed char)b[2 + i] * half_of(b);
    if (format == "q4_k") for (int pair = 0; pair < 4; ++pair) for (int i = 0; i < 32; ++i) { float s, l; small(2 * pair, s, l); to[64 * pair + i] = s * (b[16 + 32 * pair + i] & 15) - l; small(2 * pair + 1, s, l); to[64 * pair + 32 + i] = s * (b[16 + 32 * pair + i] >> 4) - l; }
    if (format == "q5_k") for (int pair = 0; pair < 4; ++pair) for (int i = 0; i < 32; ++i) { float s, l; int one = b[16 + i] >> (2 * pair) & 1, other = b[16 + i] >> (2 * pair + 1) & 1; small(2 * pair, s, l); to[64 * pair + i] = s * ((b[48 + 32 * pair + i] & 15) | one << 4) - l; small(2 * pair + 1, s, l); to[64 * pair + 32 + i] = s * ((b[48 + 32 * pair + i] >> 4) | other << 4) - l; }
    if (format == "q6_k") for (int side = 0; side < 2; ++side) for (int q = 0; q < 4; ++q) for (int part = 0; part < 2; ++part) for (int i = 0; i < 16; ++i) {
        float s = half_of(b + 208) * (signed char)b[192 + 8 * side + 2 * q + part];
        int number = ((b[64 * side + 32 * (q % 2) + 16 * part + i] >> (4 * (q / 2)) & 15) | (b[128 + 32 * side + 16 * part + i] >> (2 * q) & 3) << 4) - 32;
        to[128 * side + 32 * q + 16 * part + i] = s * number;
    }
    if (format == "nf4") for (int i = 0; i < 32; ++i) to[i] = nf4_level(b[1 + i] & 15) * magnitude, to[32 + i] = nf4_level(b[1 + i] >> 4) * magnitude;
}
template <typename F> static void format(const std::string &name, u32 bytes, u32 numbers, F run) {
    u32 rows = 3, columns = 512, per_row = columns / numbers, blocks = rows * per_row;
    vector<u8> raw(blocks * bytes + 2);
    for (auto &b : raw) b = (u8)next();
    auto put = [&](u32 block, u32 at, float value) { f16 h = narrow<f16>(value); memcpy(&raw[block * bytes + at], &h, 2); };
    for (u32 b = 0; b < blocks; ++b) {
        if (name == "q6_k") put(b, 208, 0.003f + b * 1e-4f);
        else if (name != "nf4") put(b, 0, 0.004f - b * 1e-4f), (name == "q4_0" || name == "q5_0" || name == "q8_0") ? (void)0 : put(b, 2, -0.002f + b * 1e-4f);
    }
    vector<float> groups = {0.7f, 0.3f}, dynamic = normals<float>(256), wanted(rows * columns);
    vector<act> found(2 * columns), picked(2 * columns);
    for (u32 b = 0; b < blocks; ++b) read_block(name, &raw[b * bytes], &wanted[b * numbers], dynamic[raw[b * bytes]] * groups[b / 256] + 0.11f);
    u32 ids[] = {2, 0};
    launch({1}, 256, 0, [&] { run(found.data(), raw.data(), nullptr, 2, columns, 1, rows, 1.0f, groups.data(), dynamic.data(), 0.11f, &word); });
    launch({2}, 256, 0, [&] { run(picked.data(), raw.data(), ids, 2, columns, 0, rows, 1.0f, groups.data(), dynamic.data(), 0.11f, &word); });
    // In f32 every bit is that of the processor; in 16 bits a number is the nearest to it.
    bool same = true, chosen = true;
    for (u32 i = 0; i < 2 * columns; ++i) {
        float row = wanted[(i < columns ? 2 : 0) * columns + i % columns];
        same = same && wide(found[i]) == wide(narrow<act>(wanted[columns + i]));
        chosen = chosen && wide(picked[i]) == wide(narrow<act>(row));
    }
    check(name, same), check(name + " by number", chosen && word == ~0ull);
}
static void formats() {
    format("q4_0", 18, 32, unpack_q4_0), format("q4_1", 20, 32, unpack_q4_1);
    format("q5_0", 22, 32, unpack_q5_0), format("q5_1", 24, 32, unpack_q5_1);
    format("q8_0", 34, 32, unpack_q8_0), format("q4_k", 144, 256, unpack_q4_k);
    format("q5_k", 176, 256, unpack_q5_k), format("q6_k", 210, 256, unpack_q6_k);
    format("nf4", 33, 64, unpack_nf4);
}

// generate/choose.rs, in its own order.
static u32 choose_twin(const vector<float> &logits, u32 top_k, double top_p, float min_p, bool greedy, double draw, double &logprob) {
    u32 n = logits.size(), best = 0;
    for (u32 i = 1; i < n; ++i) if (logits[i] > logits[best]) best = i;
    vector<float> w;
    double total = 0;
    for (float z : logits) w.push_back(steady_exp(z - logits[best])), total += w.back();
    if (greedy) { logprob = -log(total); return best; }
    vector<u32> kept;
    for (u32 i = 0; i < n; ++i) kept.push_back(i);
    bool open = top_k == 0 && top_p >= 1.0 && min_p <= 0.0f;
    if (!open) {
        std::sort(kept.begin(), kept.end(), [&](u32 a, u32 b) { return w[a] != w[b] ? w[a] > w[b] : a < b; });
        if (top_k && top_k < n) kept.resize(top_k);
        if (top_p < 1.0) {
            double all = 0, reached = 0;
            for (u32 i : kept) all += w[i];
            for (size_t i = 0; i < kept.size(); ++i) if ((reached += w[kept[i]]) >= (double)(float)top_p * all) { kept.resize(i + 1); break; }
        }
        vector<u32> likely;
        for (u32 i : kept) if (w[i] >= min_p) likely.push_back(i);
        kept = likely, total = 0;
        for (u32 i : kept) total += w[i];
    }
    double wanted = draw * total, reached = 0;
    u32 chosen = best;
    for (u32 i : kept) { if (w[i] <= 0) continue; reached += w[i], chosen = i; if (reached > wanted) break; }
    logprob = log(w[chosen] / total);
    return chosen;
}
static void chances() {
    u32 zero[8] = {}, words[16];
    chacha12(words, zero, 0);
    const u8 known[] = {0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53, 0x81, 0x1f, 0xce, 0x12, 0x5f, 0x26, 0x83, 0xd5};
    check("chacha12", memcmp(words, known, 16) == 0);
    struct { u32 vocabulary, top_k; float top_p, min_p; bool greedy; double spread; } cases[] = {
        {3000, 0, 1.0f, 0.0f, false, 2.0}, {3000, 0, 1.0f, 0.0f, true, 2.0}, {3000, 50, 1.0f, 0.0f, false, 2.0}, {3000, 0, 0.9f, 0.0f, false, 2.0},
        {3000, 40, 0.8f, 0.05f, false, 1.0}, {9000, 0, 0.95f, 0.0f, false, 0.3}, {9000, 6000, 0.9f, 0.0f, false, 0.2}, {9000, 5000, 1.0f, 0.0f, false, 0.2},
        {3000, 0, 1.0f, 0.2f, false, 1.0}, {500, 100, 0.7f, 0.0f, false, 0.0}, {5000, 0, 0.5f, 0.0f, false, 0.0}};
    for (auto &c : cases) {
        u32 rows = 3;
        vector<float> logits = normals<float>(rows * c.vocabulary, c.spread);
        // Some equals.
        for (u32 i = 0; i + 7 < rows * c.vocabulary; i += 13) logits[i + 5] = logits[i];
        vector<u32> streams(10 * rows), choices(2 * rows);
        for (auto &word : streams) word = (u32)next();
        u64 at[] = {0, 14, 0x100000000full};
        for (u32 r = 0; r < rows; ++r) streams[10 * r + 8] = (u32)at[r], streams[10 * r + 9] = (u32)(at[r] >> 32);
        auto held = logits;
        launch({rows}, 1024, 0, [&] { choose(choices.data(), logits.data(), streams.data(), c.vocabulary, c.top_k, c.top_p, c.min_p, c.greedy); });
        for (u32 r = 0; r < rows; ++r) {
            double draw = value_of(draw_at(&streams[10 * r], at[r])), logprob;
            u32 id = choices[2 * r];
            vector<float> row(held.begin() + r * c.vocabulary, held.begin() + (r + 1) * c.vocabulary);
            u32 wanted = choose_twin(row, c.top_k, c.top_p, c.min_p, c.greedy, draw, logprob);
            check("choice of " + std::to_string(c.vocabulary) + "/" + std::to_string(c.top_k) + ": " + std::to_string(id) + " for " + std::to_string(wanted), id == wanted && fabs(float_of(choices[2 * r + 1]) - logprob) < 1e-5);
        }
    }
    check("no fault", word == ~0ull);
    vector<float> broken = {1, NAN, 2, INFINITY, 0, 0, 0, 0};
    u32 stream[10] = {}, choice[2] = {9, 9};
    launch({1}, 1024, 0, [&] { choose(choice, broken.data(), stream, 8, 0, 1.0f, 0.0f, false); });
    check("a logit that is no number", choice[0] == 1 && std::isnan(float_of(choice[1])));
    vector<act> x(40, narrow<act>(1.0f)), y(40);
    launch({1}, 256, 0, [&] { dropout(y.data(), x.data(), zero, 0, 40, 0.25f, 1.0f / 0.75f); });
    bool right = true;
    for (int i = 0; i < 40; ++i) { chacha12(words, zero, i / 16); right = right && (wide(y[i]) == 0.0f) == ((words[i % 16] >> 8) / 16777216.0f < 0.25f); }
    check("dropout", right);
}

static void patches() {
    u32 rows = 4, width = 48;
    auto x = normals<act>(rows * width), y = x;
    auto v = normals<float>(width);
    float marks[] = {1, 0, 0.5f, 1};
    auto w = doubles(x);
    launch({rows}, 128, 0, [&] { patch_add(y.data(), x.data(), v.data(), marks, rows, width); });
    for (u32 i = 0; i < rows * width; ++i) w[i] += marks[i / width] * v[i % width];
    close("patch add", y, w, TOL);
    float length = 0;
    for (float n : v) length += n * n;
    for (float &n : v) n /= sqrtf(length);
    w = doubles(x), y = x;
    launch({rows}, 128, 0, [&] { patch_along(y.data(), y.data(), v.data(), 0.7f, rows, width); });
    vector<double> dots(rows, 1.0);
    for (u32 r = 0; r < rows; ++r) {
        double dot = 0;
        for (u32 j = 0; j < width; ++j) dot += w[r * width + j] * v[j];
        for (u32 j = 0; j < width; ++j) w[r * width + j] += (0.7 - dot) * v[j];
    }
    close("patch along", y, w, TOL);
    auto a = normals<float>(rows * width), b = normals<float>(rows * width);
    vector<float> sums(rows, 1.0f);
    for (u32 i = 0; i < rows * width; ++i) dots[i / width] += 2.0 * a[i] * b[i];
    launch({rows}, 128, 0, [&] { row_dots(sums.data(), a.data(), b.data(), rows, width, 1.0f, 2.0f); });
    close("row dots", sums, dots, 3e-6);
    vector<float> ones(rows, 1.0f), roots(rows), shares(rows);
    launch({1}, 256, 0, [&] { root_sums(roots.data(), sums.data(), ones.data(), rows); });
    launch({1}, 256, 0, [&] { quotients(shares.data(), ones.data(), sums.data(), rows); });
    vector<double> wanted_roots, wanted_shares;
    for (double dot : dots) wanted_roots.push_back(sqrt(std::max(0.0, dot + 1.0))), wanted_shares.push_back(1.0 / dot);
    close("roots", roots, wanted_roots, 3e-6), close("quotients", shares, wanted_shares, 3e-5);
}

// ---- attention ----

struct Tokens { vector<u32> starts, parents, offsets; u32 count; };
static Tokens branching(const vector<std::pair<u32, int>> &pieces) {
    Tokens t = {{0}, {}, {}, 0};
    for (auto &p : pieces) {
        u32 offset = p.second < 0 ? 0 : t.offsets[p.second] + t.starts[p.second + 1] - t.starts[p.second];
        t.parents.push_back((u32)p.second), t.offsets.push_back(offset), t.starts.push_back(t.starts.back() + p.first);
    }
    t.count = t.starts.back();
    return t;
}
static bool within(const Tokens &t, u32 one, u32 other) { for (u32 s = one; s != ~0u; s = t.parents[s]) if (s == other) return true; return false; }
static Span own_of(const Tokens &t, u32 s) { return {t.offsets[s], t.starts[s], t.starts[s + 1] - t.starts[s]}; }
static void places_of(const Tokens &t, u32 size, bool keys, vector<TileEntry> &places, vector<Span> &spans) {
    for (u32 s = 0; s < t.parents.size(); ++s) {
        u32 begin = spans.size();
        vector<u32> line;
        if (keys) { for (u32 o = s; o < t.parents.size(); ++o) if (within(t, o, s)) line.push_back(o); }
        else { for (u32 o = s; o != ~0u; o = t.parents[o]) line.insert(line.begin(), o); }
        for (u32 o : line) spans.push_back(own_of(t, o));
        Span own = own_of(t, s);
        for (u32 at = own.first; at < own.first + own.length;) {
            u32 next = keys ? std::min(at + size, own.first + own.length) : std::min((at / size + 1) * size, own.first + own.length);
            places.push_back({at, own.row + at - own.first, next - at, begin, (u32)line.size()});
            at = next;
        }
    }
}
struct Shape { u32 kv_heads, dim, window; float scale, cap; };
static void attend(const Tokens &t, Shape s) {
    u32 heads = s.kv_heads * GROUP, n = t.count, wide_row = heads * s.dim, narrow_row = s.kv_heads * s.dim, fused = wide_row + 2 * narrow_row;
    auto qkv = normals<act>((size_t)n * fused), dout = normals<act>((size_t)n * wide_row);
    const act *q = qkv.data(), *k = q + wide_row, *v = k + narrow_row;
    vector<u32> segment(n), position(n);
    for (u32 i = 0; i < t.parents.size(); ++i) for (u32 r = t.starts[i]; r < t.starts[i + 1]; ++r) segment[r] = i, position[r] = t.offsets[i] + r - t.starts[i];
    vector<double> wo(n * wide_row), wl(n * heads), wdq(n * wide_row), wdk(n * narrow_row), wdv(n * narrow_row);
    for (u32 i = 0; i < n; ++i) for (u32 h = 0; h < heads; ++h) {
        u32 kh = h / GROUP;
        vector<u32> seen;
        vector<double> score, slope;
        double hi = -1e300, sum = 0;
        for (u32 j = 0; j < n; ++j) {
            if (!within(t, segment[i], segment[j]) || position[j] > position[i] || (s.window && position[i] - position[j] >= s.window)) continue;
            double x = 0;
            for (u32 d = 0; d < s.dim; ++d) x += (double)wide(q[(size_t)i * fused + h * s.dim + d]) * wide(k[(size_t)j * fused + kh * s.dim + d]);
            x *= s.scale;
            double bend = 1;
            if (s.cap) { double c = tanh(x / s.cap); bend = 1 - c * c, x = s.cap * c; }
            seen.push_back(j), score.push_back(x), slope.push_back(bend), hi = std::max(hi, x);
        }
        for (double x : score) sum += exp(x - hi);
        wl[i * heads + h] = hi + log(sum);
        double delta = 0;
        for (u32 d = 0; d < s.dim; ++d) {
            double o = 0;
            for (size_t m = 0; m < seen.size(); ++m) o += exp(score[m] - wl[i * heads + h]) * wide(v[(size_t)seen[m] * fused + kh * s.dim + d]);
            wo[(size_t)i * wide_row + h * s.dim + d] = o, delta += o * wide(dout[(size_t)i * wide_row + h * s.dim + d]);
        }
        for (size_t m = 0; m < seen.size(); ++m) {
            double p = exp(score[m] - wl[i * heads + h]), dp = 0;
            for (u32 d = 0; d < s.dim; ++d) dp += (double)wide(dout[(size_t)i * wide_row + h * s.dim + d]) * wide(v[(size_t)seen[m] * fused + kh * s.dim + d]);
            double ds = p * (dp - delta) * slope[m] * s.scale;
            for (u32 d = 0; d < s.dim; ++d) {
                wdv[(size_t)seen[m] * narrow_row + kh * s.dim + d] += p * wide(dout[(size_t)i * wide_row + h * s.dim + d]);
                wdk[(size_t)seen[m] * narrow_row + kh * s.dim + d] += ds * wide(q[(size_t)i * fused + h * s.dim + d]);
                wdq[(size_t)i * wide_row + h * s.dim + d] += ds * wide(k[(size_t)seen[m] * fused + kh * s.dim + d]);
            }
        }
    }
    vector<act> out(n * wide_row + 8), dq(n * wide_row + 8), dk(n * narrow_row + 8), dv(n * narrow_row + 8), others[4];
    vector<float> lse(n * heads), delta(n * heads);
    vector<TileEntry> pf, pq, pk;
    vector<Span> ss;
    places_of(t, PLAIN, false, pf, ss), places_of(t, PLAIN, false, pq, ss), places_of(t, PLAIN, true, pk, ss);
    for (int turn = 0; turn < 2; ++turn) {
        emulated::backwards = turn == 1;
        launch({(u32)pf.size(), heads}, PLAIN_THREADS, 0, [&] { attention_plain(out.data(), lse.data(), q, k, v, pf.data(), ss.data(), fused, fused, fused, heads, GROUP, s.dim, s.scale, s.cap, s.window); });
        launch({(n * heads + 31) / 32}, 256, 0, [&] { attention_delta(delta.data(), dout.data(), out.data(), n, heads, s.dim); });
        launch({(u32)pq.size(), heads}, PLAIN_THREADS, 0, [&] { attention_plain_dq(dq.data(), dout.data(), q, k, v, lse.data(), delta.data(), pq.data(), ss.data(), fused, fused, fused, heads, GROUP, s.dim, s.scale, s.cap, s.window); });
        launch({(u32)pk.size(), s.kv_heads}, PLAIN_THREADS, 0, [&] { attention_plain_dkv(dk.data(), dv.data(), dout.data(), q, k, v, lse.data(), delta.data(), pk.data(), ss.data(), fused, fused, fused, heads, GROUP, s.dim, s.scale, s.cap, s.window); });
        if (turn == 0) { others[0] = out, others[1] = dq, others[2] = dk, others[3] = dv; continue; }
        auto same = [&](const vector<act> &a, const vector<act> &b) { return memcmp(a.data(), b.data(), (a.size() - 8) * sizeof(act)) == 0; };
        check("no race", same(out, others[0]) && same(dq, others[1]) && same(dk, others[2]) && same(dv, others[3]));
    }
    emulated::backwards = false;
    std::string name = "dim " + std::to_string(s.dim) + " window " + std::to_string(s.window) + " cap " + std::to_string(s.cap) + ": ";
    out.resize(n * wide_row), dq.resize(n * wide_row), dk.resize(n * narrow_row), dv.resize(n * narrow_row);
    close(name + "out", out, wo, TOL), close(name + "lse", lse, wl, 3e-6);
    close(name + "dq", dq, wdq, 2 * TOL), close(name + "dk", dk, wdk, 2 * TOL), close(name + "dv", dv, wdv, 2 * TOL);
}
// What goes on from a shared beginning has the bits that it has alone.
static void shared_beginning(Shape s) {
    u32 heads = s.kv_heads * GROUP, fused = (heads + 2 * s.kv_heads) * s.dim;
    auto t = branching({{37, -1}, {150, 0}, {1, 1}, {30, 1}, {40, 0}});
    auto qkv = normals<act>((size_t)t.count * fused);
    auto run = [&](const Tokens &t, const vector<act> &qkv, vector<act> &out, vector<float> &lse) {
        vector<TileEntry> places;
        vector<Span> spans;
        places_of(t, PLAIN, false, places, spans);
        out.resize(t.count * heads * s.dim), lse.resize(t.count * heads);
        const act *q = qkv.data(), *k = q + heads * s.dim, *v = k + s.kv_heads * s.dim;
        launch({(u32)places.size(), heads}, PLAIN_THREADS, 0, [&] { attention_plain(out.data(), lse.data(), q, k, v, places.data(), spans.data(), fused, fused, fused, heads, GROUP, s.dim, s.scale, s.cap, s.window); });
    };
    vector<act> out, alone;
    vector<float> lse, alone_lse;
    run(t, qkv, out, lse);
    for (u32 end : {2u, 3u, 4u}) {
        vector<u32> rows;
        for (u32 o = end; o != ~0u; o = t.parents[o]) {
            vector<u32> own;
            for (u32 r = t.starts[o]; r < t.starts[o + 1]; ++r) own.push_back(r);
            rows.insert(rows.begin(), own.begin(), own.end());
        }
        vector<act> picked;
        for (u32 r : rows) picked.insert(picked.end(), qkv.begin() + (size_t)r * fused, qkv.begin() + (size_t)(r + 1) * fused);
        run(branching({{(u32)rows.size(), -1}}), picked, alone, alone_lse);
        bool same = true;
        u32 wide_row = heads * s.dim;
        for (size_t i = 0; i < rows.size(); ++i) {
            same = same && memcmp(&alone[i * wide_row], &out[(size_t)rows[i] * wide_row], wide_row * sizeof(act)) == 0;
            same = same && memcmp(&alone_lse[i * heads], &lse[rows[i] * heads], heads * 4) == 0;
        }
        check("a shared beginning changes no bit", same);
    }
}
static void cached(Shape s) {
    u32 heads = s.kv_heads * GROUP, width = s.kv_heads * s.dim, page = 16, pages_of = 40, batch = 3, lengths[] = {530, 7, 1}, longest = 530;
    vector<u32> pages(batch * pages_of);
    for (u32 i = 0; i < pages.size(); ++i) pages[i] = i;
    for (u32 i = (u32)pages.size() - 1; i > 0; --i) std::swap(pages[i], pages[next() % (i + 1)]);
    vector<act> keys(pages.size() * page * width), values(keys.size());
    auto q = normals<act>(batch * heads * s.dim);
    vector<vector<act>> ks(batch), vs(batch);
    for (u32 b = 0; b < batch; ++b) {
        u32 n = lengths[b];
        ks[b] = normals<act>(n * width), vs[b] = normals<act>(n * width);
        vector<u32> sequences(n, b), tokens(n);
        for (u32 i = 0; i < n; ++i) tokens[i] = i;
        launch({n}, 128, 0, [&] { cache_append(keys.data(), values.data(), ks[b].data(), vs[b].data(), sequences.data(), tokens.data(), lengths, pages.data(), pages_of, page, width, width, width, &word); });
    }
    u32 chunks = (longest + CHUNK - 1) / CHUNK;
    vector<float> mixes(batch * heads * chunks * s.dim, NAN), levels(batch * heads * chunks * 2, NAN);
    vector<act> out(batch * heads * s.dim);
    launch({chunks, s.kv_heads * (GROUP / TOGETHER), batch}, 128, 0, [&] { attention_cached(mixes.data(), levels.data(), q.data(), keys.data(), values.data(), pages.data(), lengths, pages_of, page, s.kv_heads, s.dim, s.scale, s.cap, s.window); });
    launch({heads, batch}, 128, 0, [&] { attention_cached_merge(out.data(), mixes.data(), levels.data(), lengths, s.dim, chunks, s.window); });
    vector<double> wanted;
    for (u32 b = 0; b < batch; ++b) for (u32 h = 0; h < heads; ++h) {
        u32 n = lengths[b], first = s.window && n > s.window ? n - s.window : 0, kh = h / GROUP;
        vector<double> p;
        double sum = 0;
        for (u32 j = first; j < n; ++j) {
            double x = 0;
            for (u32 d = 0; d < s.dim; ++d) x += (double)wide(q[(b * heads + h) * s.dim + d]) * wide(ks[b][j * width + kh * s.dim + d]);
            x *= s.scale;
            if (s.cap) x = s.cap * tanh(x / s.cap);
            p.push_back(exp(x)), sum += p.back();
        }
        for (u32 d = 0; d < s.dim; ++d) {
            double o = 0;
            for (u32 j = first; j < n; ++j) o += p[j - first] / sum * wide(vs[b][j * width + kh * s.dim + d]);
            wanted.push_back(o);
        }
    }
    close("cached", out, wanted, TOL);
    check("no fault", word == ~0ull);
}

// result = keep · result + factor · left · right, each side as it lies or turned, rows longer than they are wide.
static void a_product(u32 rows, u32 columns, u32 depth, bool left_turned, bool right_turned, bool adds) {
    u64 left_pitch = (left_turned ? rows : depth) + 3, right_pitch = (right_turned ? depth : columns) + 5;
    u64 into_pitch = columns + 2;
    auto left = normals<act>((left_turned ? depth : rows) * left_pitch);
    auto right = normals<act>((right_turned ? columns : depth) * right_pitch);
    auto narrow_into = normals<act>(rows * into_pitch);
    auto wide_into = normals<float>(rows * into_pitch);
    auto narrow_wanted = doubles(narrow_into), wide_wanted = doubles(wide_into);
    float factor = 0.7f;
    for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < columns; ++c) {
        double sum = 0;
        for (u32 d = 0; d < depth; ++d) {
            double l = wide(left_turned ? left[d * left_pitch + r] : left[r * left_pitch + d]);
            sum += l * wide(right_turned ? right[c * right_pitch + d] : right[d * right_pitch + c]);
        }
        double &n = narrow_wanted[r * into_pitch + c], &w = wide_wanted[r * into_pitch + c];
        n = (adds ? n : 0) + factor * sum, w = (adds ? w : 0) + factor * sum;
    }
    auto other = narrow_into;
    auto wide_other = wide_into;
    Three grid = {(columns + 63) / 64, (rows + 63) / 64};
    std::string name = "product " + std::to_string(rows) + "×" + std::to_string(columns) + "×" + std::to_string(depth);
    launch(grid, 128, 0, [&] { product_act(narrow_into.data(), left.data(), right.data(), rows, columns, depth, into_pitch, left_pitch, right_pitch, left_turned, right_turned, factor, adds); });
    launch(grid, 128, 0, [&] { product_f32(wide_into.data(), left.data(), right.data(), rows, columns, depth, into_pitch, left_pitch, right_pitch, left_turned, right_turned, factor, adds); });
    close(name, narrow_into, narrow_wanted, TOL), close(name + " to f32", wide_into, wide_wanted, 3e-6);
    if (rows > 8 || left_turned || !right_turned) return;
    grid = {(columns + 7) / 8};
    launch(grid, 256, 0, [&] { product_of_few_act(other.data(), left.data(), right.data(), rows, columns, depth, into_pitch, left_pitch, right_pitch, factor, adds); });
    launch(grid, 256, 0, [&] { product_of_few_f32(wide_other.data(), left.data(), right.data(), rows, columns, depth, into_pitch, left_pitch, right_pitch, factor, adds); });
    close(name + " of few", other, narrow_wanted, TOL), close(name + " of few to f32", wide_other, wide_wanted, 3e-6);
}

static void pairs() {
    double worst_sum = 0, worst_root = 0, worst_part = 0;
    for (int i = 0; i < 1000; ++i) {
        double a = normal() * 1e3, b = normal();
        Pair x = pair((float)a, (float)(a - (float)a)), y = pair((float)b, (float)(b - (float)b));
        a = value_of(x), b = value_of(y);
        worst_sum = std::max(worst_sum, std::fabs(value_of(plus(x, y)) - (a + b)) / (std::fabs(a) + std::fabs(b)));
        worst_part = std::max(worst_part, std::fabs(value_of(divided(x, y)) * b / a - 1));
        worst_part = std::max(worst_part, std::fabs(value_of(times(x, y)) / (a * b) - 1));
        if (a > 0) worst_root = std::max(worst_root, std::fabs(value_of(root(x)) / std::sqrt(a) - 1));
    }
    check("pairs keep 44 bits: " + std::to_string(worst_sum * 1e15) + " " + std::to_string(worst_part * 1e15) + " " + std::to_string(worst_root * 1e15), worst_sum < 6e-14 && worst_part < 6e-14 && worst_root < 6e-14);
    float huge = 3e38f, none = INFINITE;
    check("what is not finite stays so", plus(pair(huge, 0), pair(huge, 0)).high == none && root(pair(none, 0)).high == none && !is_finite(plus(pair(none, 0), -none).high));
}

// Kernels that the twins leave out.
static void passes() {
    u32 rows = 5, columns = 37, n = rows * columns;
    auto x = normals<act>(n);
    auto f = normals<float>(n), factors = normals<float>(columns);
    auto brain = normals<bf16>(n);
    auto half_numbers = normals<f16>(n);
    vector<float> filled(n), sum = f, g(n);
    vector<act> y(n), z(n);
    launch({2}, 256, 0, [&] { fill(filled.data(), 2.5f, n); });
    close("fill", filled, vector<double>(n, 2.5), 0);
    launch({2}, 256, 0, [&] { accumulate(sum.data(), x.data(), 0.5f, n); });
    launch({2}, 256, 0, [&] { widen(g.data(), x.data(), 2.0f, n); });
    launch({2}, 256, 0, [&] { narrow_to_act(y.data(), f.data(), 1.0f, n); });
    vector<double> wanted, doubled;
    for (u32 i = 0; i < n; ++i) wanted.push_back(f[i] + 0.5 * wide(x[i])), doubled.push_back(2.0 * wide(x[i]));
    close("accumulate", sum, wanted, 3e-7), close("widen", g, doubled, 0), close("narrow", y, doubles(f), TOL);
    vector<bf16> to_brain(n);
    vector<f16> to_half(n);
    launch({1}, 256, 0, [&] { f16_to_bf16(to_brain.data(), half_numbers.data(), 1.0f, n); });
    launch({1}, 256, 0, [&] { bf16_to_f16(to_half.data(), brain.data(), 1.0f, n); });
    close("f16 to bf16", to_brain, doubles(half_numbers), 4e-3), close("bf16 to f16", to_half, doubles(brain), 5e-4);
    launch({1}, 256, 0, [&] { f16_to_f32(g.data(), half_numbers.data(), 1.0f, n); });
    close("f16 to f32", g, doubles(half_numbers), 0);
    launch({1}, 256, 0, [&] { f32_to_f16(to_half.data(), f.data(), 1.0f, n); });
    close("f32 to f16", to_half, doubles(f), 5e-4);
    launch({2}, 256, 0, [&] { scale_rows(y.data(), f.data(), factors.data(), rows, columns); });
    launch({2}, 256, 0, [&] { scale_columns(z.data(), x.data(), factors.data(), rows, columns); });
    vector<double> by_rows, by_columns;
    for (u32 i = 0; i < n; ++i) by_rows.push_back((double)f[i] * factors[i / columns]), by_columns.push_back((double)wide(x[i]) * factors[i % columns]);
    close("scale rows", y, by_rows, TOL), close("scale columns", z, by_columns, TOL);
    vector<act> cut(rows * 10);
    launch({2}, 256, 0, [&] { copy_columns(cut.data(), x.data() + 3, rows, 8, 10, columns); });
    vector<double> wanted_cut(rows * 10);
    for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < 8; ++c) wanted_cut[r * 10 + c] = wide(x[r * columns + 3 + c]);
    close("copy columns", cut, wanted_cut, 0);
    auto tile = f;
    launch({rows}, 512, 0, [&] { head_soft_cap(tile.data(), rows, 30, columns, 0.5f, 3.0f); });
    wanted = doubles(f);
    for (u32 r = 0; r < rows; ++r) for (u32 c = 0; c < 30; ++c) wanted[r * columns + c] = 3.0 * std::tanh(0.5 * f[r * columns + c]);
    close("bend", tile, wanted, 3e-7);
    u32 ids[] = {4, 0, 4};
    vector<act> picked(3 * columns), halves(3 * columns);
    launch({2}, 128, 0, [&] { embed_f32(picked.data(), f.data(), ids, 3, columns, rows, 1.0f, &word); });
    launch({2}, 128, 0, [&] { embed_f16(halves.data(), half_numbers.data(), ids, 3, columns, rows, 1.0f, &word); });
    vector<double> wanted_rows, wanted_halves;
    for (u32 id : ids) for (u32 c = 0; c < columns; ++c) wanted_rows.push_back(f[id * columns + c]), wanted_halves.push_back(wide(half_numbers[id * columns + c]));
    close("embed f32", picked, wanted_rows, TOL), close("embed f16", halves, wanted_halves, TOL);
    // A norm that is not finite stops the update.
    vector<float> broken(8, 1.0f), w(8, 1.0f), m(8), v(8);
    broken[5] = INFINITE;
    Pair part;
    float norm[2], factor;
    Step step = {0.9f, 0.1f, 0.99f, 0.01f, 1.0f, 0.1f, 1.0f, 1e-8f};
    launch({1}, 256, 0, [&] { square_sums(&part, broken.data(), 8); });
    launch({1}, 256, 0, [&] { clip_factor(norm, &factor, &part, 1, 1.0f); });
    launch({1}, 256, 0, [&] { adamw(w.data(), m.data(), v.data(), broken.data(), nullptr, &step, &factor, 8, &word); });
    check("a broken step writes nothing", !is_finite(norm[0]) && factor != factor && w[0] == 1.0f && m[0] == 0.0f && broken[0] == 1.0f);
}

int main() {
    pairs(), passes();
    for (bool left_turned : {false, true}) for (bool right_turned : {false, true}) for (bool adds : {false, true}) {
        a_product(70, 131, 37, left_turned, right_turned, adds);
        a_product(3, 20, 64, left_turned, right_turned, adds);
    }
    for (bool backwards : {false, true}) {
        emulated::backwards = backwards;
        elementwise(), norms(), turns(), embeddings(), optimizers(), heads(), patches(), formats(), chances();
    }
    emulated::backwards = false;
    auto branches = branching({{37, -1}, {50, 0}, {1, 1}, {70, 1}, {0, 1}, {40, 0}, {19, -1}});
    auto apart = branching({{150, -1}, {0, -1}, {1, -1}, {33, -1}});
    u32 dim = HEAD_DIM > 128 ? HEAD_DIM : HEAD_DIM - (HEAD_DIM % 16 == 0 && getenv("NARROW") ? 8 : 0);
    Shape shapes[] = {{1, dim, 0, 0.125f, 0}, {2, dim, 9, 0.125f, 0}, {1, dim, 45, 0.125f, 1.5f}};
    for (auto &shape : shapes) for (auto *tokens : {&branches, &apart}) {
        if (HEAD_DIM <= 64 || tokens == &branches) attend(*tokens, shape);
    }
    attend(branches, {1, 6, 0, 0.4f, 0});
    for (auto &shape : shapes) cached(shape);
    shared_beginning(shapes[0]), shared_beginning(shapes[2]), shared_beginning(shapes[1]);
    cached({2, 6, 300, 0.4f, 0});
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
