// Metal's kernels against the twins of the CUDA kernels, on the emulated machine, and products against plain loops.
// Compile with -I. -fno-strict-aliasing -ffp-contract=off -DACTIVATION=… -DHEAD_DIM=… -DGROUP=… in this folder.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <metal_stdlib>

#include "../prelude.metal"
#include "../elementwise.metal"
#include "../norm.metal"
#include "../rope.metal"
#include "../embedding.metal"
#include "../optimizer.metal"
#include "../head.metal"
#include "../patches.metal"
#include "../../unpack_formats.h"
#include "../unpack.metal"
#include "../chance.metal"
#include "../attention.metal"
#include "../attention_plain.metal"
#include "../attention_cached.metal"
#include "../product.metal"

// What the twins ask for beside the kernels.
#define METAL
#define TENSOR_CORES 0
#define PLAIN_ROWS(tile) 0
#define PLAIN_SCORES(tile) 0
#define PLAIN_BACK PLAIN
typedef Pair Sum;
static double value_of(Pair pair) { return (double)pair.high + pair.low; }
template <typename T> static T narrow(float);
template <> float narrow<float>(float number) { return number; }
template <> bf16 narrow<bf16>(float number) { return {narrow_bf16(number)}; }
template <> f16 narrow<f16>(float number) { return {narrow_f16(number)}; }
static float __uint_as_float(u32 bits) { return as_type<float>(bits); }

#define main twins
#include "../../cuda/emulate/tests.cpp"
#undef main

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
    float huge = 3e38f, none = infinite();
    check("what is not finite stays so", plus(pair(huge, 0), pair(huge, 0)).high == none && root(pair(none, 0)).high == none && !finite(plus(pair(none, 0), -none).high));
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
    launch({2}, 128, 0, [&] { embed_f32(picked.data(), f.data(), ids, 3, columns, rows, 1.0f, &word, 1); });
    launch({2}, 128, 0, [&] { embed_f16(halves.data(), half_numbers.data(), ids, 3, columns, rows, 1.0f, &word, 1); });
    vector<double> wanted_rows, wanted_halves;
    for (u32 id : ids) for (u32 c = 0; c < columns; ++c) wanted_rows.push_back(f[id * columns + c]), wanted_halves.push_back(wide(half_numbers[id * columns + c]));
    close("embed f32", picked, wanted_rows, TOL), close("embed f16", halves, wanted_halves, TOL);
    // A norm that is not finite stops the update.
    vector<float> broken(8, 1.0f), w(8, 1.0f), m(8), v(8);
    broken[5] = infinite();
    Pair part;
    float norm[2], factor;
    Step step = {0.9f, 0.1f, 0.99f, 0.01f, 1.0f, 0.1f, 1.0f, 1e-8f};
    launch({1}, 256, 0, [&] { square_sums(&part, broken.data(), 8); });
    launch({1}, 256, 0, [&] { clip_factor(norm, &factor, &part, 1, 1.0f); });
    launch({1}, 256, 0, [&] { adamw(w.data(), m.data(), v.data(), broken.data(), nullptr, &step, &factor, 8, &word); });
    launch({1}, 256, 0, [&] { scale_by(broken.data(), &factor, 8); });
    check("a broken step writes nothing", !finite(norm[0]) && factor != factor && w[0] == 1.0f && m[0] == 0.0f && broken[0] == 1.0f);
}

int main() {
    pairs(), passes();
    for (bool left_turned : {false, true}) for (bool right_turned : {false, true}) for (bool adds : {false, true}) {
        a_product(70, 131, 37, left_turned, right_turned, adds);
        a_product(3, 20, 64, left_turned, right_turned, adds);
    }
    return twins();
}
