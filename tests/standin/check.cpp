// Whether the stand-ins stand in: a kernel, a product and each thing that must fail, through the names of the real ones.
//
//     tests/standin/build.sh OUT && g++ -std=c++17 -O1 tests/standin/check.cpp -o OUT/check -ldl && OUT/check OUT
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

typedef unsigned long long u64;

static void *driver, *compiler, *products;
static int failures;

static void check(const char *what, bool right) {
    printf("%s %s\n", right ? "ok    " : "FAILED", what);
    failures += !right;
}

// A function of a library, called with what it takes.
template <typename... Arguments> static int call(void *library, const char *name, Arguments... arguments) {
    auto function = (int (*)(Arguments...))dlsym(library, name);
    if (!function) printf("FAILED no `%s`\n", name), exit(1);
    return function(arguments...);
}

static void *open(const std::string &folder, const char *name) {
    void *library = dlopen((folder + "/" + name).c_str(), RTLD_NOW);
    if (!library) printf("FAILED %s\n", dlerror()), exit(1);
    return library;
}

static const char SOURCE[] = R"(
#define TWICE(name) KERNEL(1024) twice_##name(float *y, const float *x, u64 count) { \
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; if (i < count) y[i] = 2.0f * x[i]; }
TWICE(f32)
KERNEL(1024) sum_warps(float *y, const float *x, u32 count, float start, double more) {
    SHARED_BYTES(bytes);
    float *parts = (float *)bytes, value = threadIdx.x < count ? x[threadIdx.x] : 0.0f;
    for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    sync_block();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / 32; ++warp) value += parts[warp];
        *y = value + start + (float)more;
    }
}
KERNEL(64) beyond(float *y, u32 at) { y[at] = 1.0f; }
KERNEL(1024) apart(float *y) { if (threadIdx.x < 8) sync_warp(); else sync_block(); *y = 1.0f; }
KERNEL(1024) read_host(float *y, const float *x) { *y = *x; }
)";

static std::string said;

static std::vector<char> compile(const char *source, const char *option, int &status) {
    void *program;
    call(compiler, "nvrtcCreateProgram", &program, source, "check.cu", 0, nullptr, nullptr);
    const char *options[] = {option, "--std=c++17", "--device-as-default-execution-space"};
    status = call(compiler, "nvrtcCompileProgram", program, 3, (const char *const *)options);
    size_t bytes;
    call(compiler, "nvrtcGetProgramLogSize", program, &bytes);
    std::vector<char> log(bytes);
    call(compiler, "nvrtcGetProgramLog", program, log.data());
    said = log.data();
    call(compiler, "nvrtcGetCUBINSize", program, &bytes);
    std::vector<char> object(bytes);
    call(compiler, "nvrtcGetCUBIN", program, object.data());
    call(compiler, "nvrtcDestroyProgram", &program);
    return object;
}

static u64 memory(size_t bytes) {
    u64 address = 0;
    if (call(driver, "cuMemAllocAsync", &address, bytes, (void *)nullptr)) printf("FAILED memory\n"), exit(1);
    return address;
}

static void *module_of(const std::vector<char> &object) {
    void *module = nullptr;
    check("a module", call(driver, "cuModuleLoadData", &module, (const void *)object.data()) == 0);
    return module;
}

static int launch(void *module, const char *name, unsigned blocks, unsigned threads, unsigned shared,
                  std::vector<void *> arguments) {
    void *function;
    if (int result = call(driver, "cuModuleGetFunction", &function, module, name)) return result;
    return call(driver, "cuLaunchKernel", function, blocks, 1u, 1u, threads, 1u, 1u, shared, (void *)nullptr,
                arguments.data(), (void **)nullptr);
}

static void kernels(void *module) {
    u64 count = 1000, x = memory(4000), y = memory(4000);
    std::vector<float> numbers(1000), found(1000);
    for (int i = 0; i < 1000; ++i) numbers[i] = (float)i;
    check("a copy to the device", call(driver, "cuMemcpyHtoDAsync_v2", x, (const void *)numbers.data(), (size_t)4000, (void *)nullptr) == 0);
    check("a launch", launch(module, "twice_f32", 4, 256, 0, {&y, &x, &count}) == 0);
    check("a copy back", call(driver, "cuMemcpyDtoHAsync_v2", (void *)found.data(), y, (size_t)4000, (void *)nullptr) == 0);
    bool right = true;
    for (int i = 0; i < 1000; ++i) right = right && found[i] == 2.0f * (float)i;
    check("its numbers", right);
    unsigned some = 250;
    float start = 0.5f;
    double more = 0.25;
    check("a launch that meets", launch(module, "sum_warps", 1, 256, 32, {&y, &x, &some, &start, &more}) == 0);
    call(driver, "cuMemcpyDtoH_v2", (void *)found.data(), y, (size_t)4);
    check("its sum", found[0] == 249.0f * 250.0f / 2.0f + 0.75f);
    u64 fresh = memory(8);
    call(driver, "cuMemcpyDtoH_v2", (void *)found.data(), fresh, (size_t)8);
    check("memory that was not written is NaN", std::isnan(found[0]) && std::isnan(found[1]));
    check("no kernel of that name", launch(module, "thrice_f32", 1, 32, 0, {}) == 500);
    check("too much shared memory", launch(module, "sum_warps", 1, 256, 50000, {&y, &x, &some, &start, &more}) == 1);
    check("too many threads for the kernel", launch(module, "beyond", 1, 96, 0, {&y, &some}) == 701);
    check("a copy past the end", call(driver, "cuMemcpyDtoH_v2", (void *)found.data(), fresh, (size_t)12) == 1);
    check("freed", call(driver, "cuMemFreeAsync", fresh, (void *)nullptr) == 0);
    check("freed twice", call(driver, "cuMemFreeAsync", fresh, (void *)nullptr) == 1);
    check("used after that", call(driver, "cuMemcpyDtoH_v2", (void *)found.data(), fresh, (size_t)4) == 1);
}

// In 16 and 32 bits, each side as it lies and transposed, against plain loops.
static void gemms() {
    void *handle;
    check("cuBLAS", call(products, "cublasCreate_v2", &handle) == 0);
    const int m = 37, n = 21, k = 50, pitch = 64;
    std::vector<float> a(pitch * 64), b(pitch * 64), c(pitch * n, NAN);
    for (auto *each : {&a, &b}) for (float &number : *each) number = (float)(rand() % 17 - 8);
    u64 da = memory(a.size() * 4), db = memory(b.size() * 4), dc = memory(c.size() * 4);
    call(driver, "cuMemcpyHtoD_v2", da, (const void *)a.data(), a.size() * 4);
    call(driver, "cuMemcpyHtoD_v2", db, (const void *)b.data(), b.size() * 4);
    float alpha = 0.5f, beta = 0.0f;
    bool right = true;
    for (int turns = 0; turns < 4; ++turns) {
        int status = call(products, "cublasGemmEx", handle, turns & 1, turns >> 1, m, n, k, (const void *)&alpha, da, 0, pitch,
                          db, 0, pitch, (const void *)&beta, dc, 0, pitch, 68, 99);
        call(driver, "cuMemcpyDtoH_v2", (void *)c.data(), dc, c.size() * 4);
        for (int i = 0; i < m; ++i) for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int d = 0; d < k; ++d) sum += (turns & 1 ? a[i * pitch + d] : a[d * pitch + i]) * (turns >> 1 ? b[d * pitch + j] : b[j * pitch + d]);
            right = right && status == 0 && c[j * pitch + i] == alpha * sum;
        }
    }
    check("products over what was NaN", right && std::isnan(c[m]));
    check("too small a pitch", call(products, "cublasGemmEx", handle, 0, 0, m, n, k, (const void *)&alpha, da, 0, m - 1, db, 0,
                                    pitch, (const void *)&beta, dc, 0, pitch, 68, 99) == 7);
    check("an operand past its memory", call(products, "cublasGemmEx", handle, 0, 0, m, 64, k, (const void *)&alpha, da, 0,
                                             pitch, db, 0, pitch, (const void *)&beta, dc, 0, pitch, 68, 99) == 13);
    check("the end of it", call(products, "cublasDestroy_v2", handle) == 0);
}

// A launch that ends its context, in a process of its own; what it and the next call are answered.
template <typename Work> static void dies(const char *what, int wanted, Work work) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int first = work(), next = call(driver, "cuCtxSynchronize");
        _exit(first == wanted && next == wanted ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    check(what, WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **words) {
    std::string folder = count > 1 ? words[1] : ".";
    driver = open(folder, "libcuda.so.1"), compiler = open(folder, "libnvrtc.so.13"), products = open(folder, "libcublas.so.13");
    void *context;
    int status;
    check("opened", call(driver, "cuInit", 0u) == 0 && call(driver, "cuDevicePrimaryCtxRetain", &context, 0) == 0);
    u64 address;
    check("no memory without a context", call(driver, "cuMemAlloc_v2", &address, (size_t)16) == 201);
    call(driver, "cuCtxSetCurrent", context);
    compile("KERNEL void wrong(float *y) { *y = nothing; }", "--gpu-architecture=sm_90", status);
    check("what does not compile, and where", status == 6 && said.find("check.cu(1): error") != std::string::npos);
    auto other = compile(SOURCE, "--gpu-architecture=sm_80", status);
    void *module;
    check("another architecture", status == 0 && call(driver, "cuModuleLoadData", &module, (const void *)other.data()) == 209);
    check("PTX without kernels", call(driver, "cuModuleLoadData", &module, (const void *)".version 7.0\n") == 0);
    module = module_of(compile(SOURCE, "--gpu-architecture=sm_90", status));
    kernels(module);
    gemms();
    u64 y = memory(400);
    unsigned far = 100, farther = 1 << 20;
    float mine = 1.0f, *host = &mine;
    dies("a number past the end", 700, [&] { return launch(module, "beyond", 1, 1, 0, {&y, &far}); });
    dies("a number far past the end", 700, [&] { return launch(module, "beyond", 1, 1, 0, {&y, &farther}); });
    dies("the host's memory", 700, [&] { return launch(module, "read_host", 1, 1, 0, {&y, &host}); });
    dies("a null", 700, [&] { u64 none = 0; return launch(module, "read_host", 1, 1, 0, {&y, &none}); });
    dies("threads that wait for ever", 719, [&] { return launch(module, "apart", 1, 32, 0, {&y}); });
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit((int)*(volatile float *)y);
    waitpid(child, &status, 0);
    check("the host cannot read the device's memory", WIFSIGNALED(status));
    printf("%d failed\n", failures);
    return failures != 0;
}
