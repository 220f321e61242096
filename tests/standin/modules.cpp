// Modules: shared objects that the stand-in of NVRTC made, with a table of their kernels.
#include "modules.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

struct Module {
    void *library;
    std::map<std::string, Function> functions;
};

static const u32 SHARED = 48 << 10;

// How long an object of 64 bits is: its table of sections comes last.
static size_t length_of(const u8 *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    return head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
}

// The file stays open: the loader takes one of the same name for the same one.
static void *opened(const u8 *image) {
    size_t bytes = length_of(image), done = 0;
    int file = memfd_create("stand-in module", MFD_CLOEXEC);
    while (file >= 0 && done < bytes) {
        ssize_t some = write(file, image + done, bytes - done);
        if (some <= 0) break;
        done += (size_t)some;
    }
    std::string path = "/proc/self/fd/" + std::to_string(file);
    return done == bytes ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
}

// Machine code for sm_MN runs where the device has M.n with n of N and up.
static bool fits(const char *architecture) {
    int made = atoi(architecture), device = (int)setting("TUNEBOX_STANDIN_CAPABILITY", 90);
    return made / 10 == device / 10 && made % 10 <= device % 10;
}

static Result load(Module *&module, const u8 *image) {
    if (memcmp(image, ELFMAG, SELFMAG) != 0) {
        // A text without kernels is a module without functions.
        const char *text = (const char *)image;
        if (!strstr(text, ".version") || strstr(text, ".entry")) return INVALID_PTX;
        return module = new Module{nullptr, {}}, SUCCESS;
    }
    void *library = opened(image);
    auto *entry = library ? (const Entry *)dlsym(library, "emulated_kernels") : nullptr;
    auto *architecture = library ? (const char *)dlsym(library, "emulated_architecture") : nullptr;
    if (!entry || !architecture) {
        const char *why = dlerror();
        complain("a module was not made by the stand-in's NVRTC: %s", why ? why : "");
        return INVALID_IMAGE;
    }
    if (!fits(architecture)) return NO_BINARY_FOR_GPU;
    module = new Module{library, {}};
    for (; entry->name; ++entry) module->functions[entry->name] = {entry, SHARED};
    return SUCCESS;
}

API int cuModuleLoadData(void **module, const void *image) {
    ALONE;
    if (Result result = ready()) return result;
    Module *made = nullptr;
    Result result = image ? load(made, (const u8 *)image) : INVALID_VALUE;
    return *module = made, result;
}
API int cuModuleLoadDataEx(void **module, const void *image, unsigned, void *, void **) {
    return cuModuleLoadData(module, image);
}
API int cuModuleLoad(void **module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return FILE_NOT_FOUND;
    std::vector<u8> bytes;
    u8 some[1 << 16];
    for (size_t n; (n = fread(some, 1, sizeof some, file)) > 0;) bytes.insert(bytes.end(), some, some + n);
    fclose(file);
    bytes.push_back(0);
    return cuModuleLoadData(module, bytes.data());
}
// The text of kernels stays: a function of it may be in use.
API int cuModuleUnload(void *module) { return module ? SUCCESS : INVALID_HANDLE; }
API int cuModuleGetFunction(void **function, void *module, const char *name) {
    ALONE;
    if (Result result = ready()) return result;
    if (!module) return INVALID_HANDLE;
    auto &functions = ((Module *)module)->functions;
    auto found = functions.find(name);
    if (found == functions.end()) return NOT_FOUND;
    return *function = &found->second, SUCCESS;
}
API int cuModuleGetGlobal_v2(u64 *, size_t *, void *, const char *) { return NOT_FOUND; }

enum { MAX_THREADS_PER_BLOCK = 0, BINARY_VERSION = 6, MAX_DYNAMIC_SHARED = 8 };

API int cuFuncSetAttribute(void *function, int attribute, int value) {
    ALONE;
    if (Result result = ready()) return result;
    if (!function) return INVALID_HANDLE;
    if (attribute != MAX_DYNAMIC_SHARED) return attribute == 9 ? SUCCESS : INVALID_VALUE;
    if (value < 0 || (u32)value > shared_memory()) return INVALID_VALUE;
    return ((Function *)function)->most_shared = (u32)value, SUCCESS;
}
API int cuFuncGetAttribute(int *value, int attribute, void *function) {
    ALONE;
    auto *known = (Function *)function;
    switch (attribute) {
    case MAX_THREADS_PER_BLOCK: *value = known->entry->most_threads ? (int)known->entry->most_threads : 1024; break;
    case BINARY_VERSION: *value = (int)setting("TUNEBOX_STANDIN_CAPABILITY", 90); break;
    case MAX_DYNAMIC_SHARED: *value = (int)known->most_shared; break;
    default: *value = 0;
    }
    return ready();
}
API int cuFuncSetCacheConfig(void *, int) { return ready(); }
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int threads, size_t) {
    return *blocks = threads > 0 ? std::min(32, 2048 / threads) : 0, ready();
}
