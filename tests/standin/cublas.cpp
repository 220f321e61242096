// cuBLAS as far as products of matrices go, with the checks of the real one and a look at every operand's memory.
#include "product.h"
#include <algorithm>
#include <cstdint>
#include <cstdio>

#define API extern "C" __attribute__((visibility("default")))

typedef unsigned long long u64;

// In the stand-in of the driver.
extern "C" void *standin_operand(u64 address, u64 bytes, const char *what);
extern "C" int standin_is_ready();
extern "C" int standin_is_idle();
extern "C" int standin_begin(const void *stream);
extern "C" void standin_end();

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, FAST_16F = 74, FAST_16BF = 75, FAST_TF32 = 77 };

static const unsigned MARK = 0xb1a5b1a5;

struct Handle {
    unsigned mark;
    void *stream;
    int pointers, math;
};

static Handle *known(void *handle) {
    auto *found = (Handle *)handle;
    return found && found->mark == MARK ? found : nullptr;
}

API int cublasCreate_v2(void **handle) {
    if (!standin_is_ready()) return NOT_INITIALIZED;
    return *handle = new Handle{MARK, nullptr, 0, 0}, SUCCESS;
}
API int cublasDestroy_v2(void *handle) {
    if (!known(handle)) return NOT_INITIALIZED;
    known(handle)->mark = 0;
    return delete (Handle *)handle, SUCCESS;
}
API int cublasSetStream_v2(void *handle, void *stream) {
    if (!known(handle)) return NOT_INITIALIZED;
    return known(handle)->stream = stream, SUCCESS;
}
API int cublasGetStream_v2(void *handle, void **stream) {
    if (!known(handle)) return NOT_INITIALIZED;
    return *stream = known(handle)->stream, SUCCESS;
}
API int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
    if (!known(handle)) return NOT_INITIALIZED;
    if (bytes > 0 && !standin_operand((u64)workspace, bytes, "cublasSetWorkspace")) return INVALID_VALUE;
    return SUCCESS;
}
API int cublasSetMathMode(void *handle, int mode) {
    if (!known(handle)) return NOT_INITIALIZED;
    return known(handle)->math = mode, SUCCESS;
}
API int cublasGetMathMode(void *handle, int *mode) {
    if (!known(handle)) return NOT_INITIALIZED;
    return *mode = known(handle)->math, SUCCESS;
}
API int cublasSetPointerMode_v2(void *handle, int mode) {
    if (!known(handle)) return NOT_INITIALIZED;
    return known(handle)->pointers = mode, SUCCESS;
}
API int cublasGetPointerMode_v2(void *handle, int *mode) {
    if (!known(handle)) return NOT_INITIALIZED;
    return *mode = known(handle)->pointers, SUCCESS;
}
API int cublasSetAtomicsMode(void *handle, int) { return known(handle) ? SUCCESS : NOT_INITIALIZED; }
API int cublasGetVersion_v2(void *, int *version) { return *version = 130000, SUCCESS; }
API const char *cublasGetStatusString(int status) {
    switch (status) {
    case SUCCESS: return "the cublas operation completed";
    case NOT_INITIALIZED: return "the cublas library was not initialized";
    case INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case EXECUTION_FAILED: return "the GPU program failed to execute";
    case NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "an internal operation failed";
    }
}

static bool is_kind(int kind) { return kind == F32 || kind == F16 || kind == BF16; }
static u64 size_of(int kind) { return kind == F32 ? 4 : 2; }

// All that a product is asked with.
struct Product {
    int left_side, right_side; // 0: as it lies, 1 or 2: transposed
    int m, n, k;
    const float *alpha, *beta;
    u64 a, b, c;
    int a_kind, b_kind, c_kind;
    int a_pitch, b_pitch, c_pitch;
    long long a_stride, b_stride, c_stride;
    int count, compute;
};

// Says what cuBLAS keeps to itself, and is that.
static Status refused(const Product &p, Status status, const char *why) {
    fprintf(stderr, "stand-in: a product of %d × %d by %d × %d (sides %d %d, pitches %d %d %d, kinds %d %d %d): %s\n", p.m,
            p.k, p.k, p.n, p.left_side, p.right_side, p.a_pitch, p.b_pitch, p.c_pitch, p.a_kind, p.b_kind, p.c_kind, why);
    return status;
}

static Status check(const Product &p) {
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.count < 0) return refused(p, INVALID_VALUE, "a side is negative");
    if (p.left_side < 0 || p.left_side > 2 || p.right_side < 0 || p.right_side > 2) {
        return refused(p, INVALID_VALUE, "no such operation");
    }
    if (p.a_pitch < std::max(1, p.left_side ? p.k : p.m)) return refused(p, INVALID_VALUE, "the first pitch is too small");
    if (p.b_pitch < std::max(1, p.right_side ? p.n : p.k)) return refused(p, INVALID_VALUE, "the second pitch is too small");
    if (p.c_pitch < std::max(1, p.m)) return refused(p, INVALID_VALUE, "the result's pitch is too small");
    if (!p.alpha || !p.beta) return refused(p, INVALID_VALUE, "no alpha or no beta");
    bool sums = p.compute == COMPUTE_32F || p.compute == COMPUTE_32F_PEDANTIC || p.compute == FAST_16F ||
                p.compute == FAST_16BF || p.compute == FAST_TF32;
    bool kinds = is_kind(p.a_kind) && p.a_kind == p.b_kind && (p.c_kind == F32 || p.c_kind == p.a_kind);
    if (!sums || !kinds) return refused(p, NOT_SUPPORTED, "no such product in f32");
    return SUCCESS;
}

// One of the three matrices of every product of a batch.
struct Place {
    char *at;
    u64 stride, begin, bytes;
};

static bool find(Place &place, u64 address, int kind, int rows, int columns, int pitch, long long stride, int count,
                 const char *what) {
    u64 size = size_of(kind), numbers = (u64)pitch * (u64)(columns - 1) + (u64)rows;
    place.stride = (u64)stride * size, place.begin = address;
    place.bytes = (numbers + (u64)stride * (u64)(count - 1)) * size;
    place.at = address % size ? nullptr : (char *)standin_operand(address, place.bytes, what);
    return place.at;
}

static bool overlap(const Place &x, const Place &y) { return x.begin < y.begin + y.bytes && y.begin < x.begin + x.bytes; }

static Status run(const Product &p) {
    if (p.m == 0 || p.n == 0 || p.count == 0) return SUCCESS;
    Place a = {}, b = {}, c = {};
    if (!find(c, p.c, p.c_kind, p.m, p.n, p.c_pitch, p.c_stride, p.count, "a product's result")) return EXECUTION_FAILED;
    if (p.k > 0) {
        int a_rows = p.left_side ? p.k : p.m, b_rows = p.right_side ? p.n : p.k;
        int a_columns = p.left_side ? p.m : p.k, b_columns = p.right_side ? p.k : p.n;
        if (!find(a, p.a, p.a_kind, a_rows, a_columns, p.a_pitch, p.a_stride, p.count, "a product's first matrix") ||
            !find(b, p.b, p.b_kind, b_rows, b_columns, p.b_pitch, p.b_stride, p.count, "a product's second matrix")) {
            return EXECUTION_FAILED;
        }
        if (overlap(c, a) || overlap(c, b)) return refused(p, EXECUTION_FAILED, "its result lies over what it reads");
    }
    size_t a_row = p.left_side ? (size_t)p.a_pitch : 1, a_column = p.left_side ? 1 : (size_t)p.a_pitch;
    size_t b_row = p.right_side ? (size_t)p.b_pitch : 1, b_column = p.right_side ? 1 : (size_t)p.b_pitch;
    for (u64 i = 0; i < (u64)p.count; ++i) {
        Operand left = {a.at + i * a.stride, (Kind)p.a_kind, a_row, a_column};
        Operand right = {b.at + i * b.stride, (Kind)p.b_kind, b_row, b_column};
        multiply((size_t)p.m, (size_t)p.n, (size_t)p.k, *p.alpha, left, right, *p.beta, c.at + i * c.stride, (Kind)p.c_kind,
                 (size_t)p.c_pitch);
    }
    return SUCCESS;
}

static Status ask(void *handle, const Product &p) {
    Handle *own = known(handle);
    if (!own) return NOT_INITIALIZED;
    if (own->pointers != 0) return refused(p, NOT_SUPPORTED, "the stand-in takes alpha and beta from the host alone");
    if (Status status = check(p)) return status;
    if (!standin_begin(own->stream)) return EXECUTION_FAILED;
    Status status = standin_is_idle() ? SUCCESS : run(p);
    standin_end();
    return status;
}

API int cublasGemmStridedBatchedEx(void *handle, int left, int right, int m, int n, int k, const void *alpha, u64 a,
                                   int a_kind, int a_pitch, long long a_stride, u64 b, int b_kind, int b_pitch,
                                   long long b_stride, const void *beta, u64 c, int c_kind, int c_pitch, long long c_stride,
                                   int count, int compute, int) {
    return ask(handle, {left, right, m, n, k, (const float *)alpha, (const float *)beta, a, b, c, a_kind, b_kind, c_kind,
                        a_pitch, b_pitch, c_pitch, a_stride, b_stride, c_stride, count, compute});
}
API int cublasGemmEx(void *handle, int left, int right, int m, int n, int k, const void *alpha, u64 a, int a_kind,
                     int a_pitch, u64 b, int b_kind, int b_pitch, const void *beta, u64 c, int c_kind, int c_pitch,
                     int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(handle, left, right, m, n, k, alpha, a, a_kind, a_pitch, 0, b, b_kind, b_pitch, 0,
                                      beta, c, c_kind, c_pitch, 0, 1, compute, algorithm);
}
API int cublasSgemmStridedBatched(void *handle, int left, int right, int m, int n, int k, const float *alpha, u64 a,
                                  int a_pitch, long long a_stride, u64 b, int b_pitch, long long b_stride,
                                  const float *beta, u64 c, int c_pitch, long long c_stride, int count) {
    return cublasGemmStridedBatchedEx(handle, left, right, m, n, k, alpha, a, F32, a_pitch, a_stride, b, F32, b_pitch,
                                      b_stride, beta, c, F32, c_pitch, c_stride, count, COMPUTE_32F, -1);
}
API int cublasSgemm_v2(void *handle, int left, int right, int m, int n, int k, const float *alpha, u64 a, int a_pitch,
                       u64 b, int b_pitch, const float *beta, u64 c, int c_pitch) {
    return cublasSgemmStridedBatched(handle, left, right, m, n, k, alpha, a, a_pitch, 0, b, b_pitch, 0, beta, c, c_pitch, 0,
                                     1);
}
