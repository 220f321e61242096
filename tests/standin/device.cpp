// Devices, contexts, streams, events: one order of work, done when it is asked for.
#include "driver.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

typedef std::chrono::steady_clock Clock;

struct Context {
    int device;
    int users;
};
struct Stream {
    unsigned flags;
};
struct Event {
    bool recorded;
    Clock::time_point at;
};

static bool begun;
static Result broken = SUCCESS;
static Context contexts[MOST_DEVICES];
// Never destroyed: what outlives the process's end may still close them.
static std::set<const void *> &streams = *new std::set<const void *>, &events = *new std::set<const void *>;
static thread_local Context *current;

static int devices() {
    static const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    static const int count = visible && !strcmp(visible, "-1") ? 0 : (int)setting("TUNEBOX_STANDIN_DEVICES", 1);
    return count < MOST_DEVICES ? count : MOST_DEVICES;
}

u32 shared_memory() {
    static const u32 bytes = (u32)setting("TUNEBOX_STANDIN_SHARED", 227 << 10);
    return bytes;
}

void break_down(Result why) { broken = why; }
int current_device() { return current ? current->device : 0; }

Result ready() {
    if (!begun) return NOT_INITIALIZED;
    if (broken != SUCCESS) return broken;
    return current ? SUCCESS : INVALID_CONTEXT;
}

// The default stream has three names.
bool is_stream(const void *stream) {
    ALONE;
    return (uintptr_t)stream <= 2 || streams.count(stream);
}

bool takes_work(const void *stream) {
    ALONE;
    if (!is_stream(stream)) return false;
    static const void *const first = stream;
    static bool said = false;
    if (stream != first && !said) {
        said = true;
        complain("work on a second stream: where it does not wait for the first is not seen here");
    }
    return true;
}

API int cuInit(unsigned flags) {
    ALONE;
    if (flags != 0) return INVALID_VALUE;
    if (devices() == 0) return NO_DEVICE;
    begun = true;
    return SUCCESS;
}

API int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }

API int cuDeviceGetCount(int *count) {
    if (!begun) return NOT_INITIALIZED;
    return *count = devices(), SUCCESS;
}

API int cuDeviceGet(int *device, int ordinal) {
    if (!begun) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE;
    return *device = ordinal, SUCCESS;
}

API int cuDeviceGetName(char *name, int room, int device) {
    if (device < 0 || device >= devices()) return INVALID_DEVICE;
    snprintf(name, (size_t)room, "a stand-in for a GPU (%s)", "kernels run on the processor");
    return SUCCESS;
}

API int cuDeviceGetUuid_v2(u8 *uuid, int device) {
    if (device < 0 || device >= devices()) return INVALID_DEVICE;
    memset(uuid, 0x5d, 16);
    uuid[15] = (u8)device;
    return SUCCESS;
}
API int cuDeviceGetUuid(u8 *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    if (device < 0 || device >= devices()) return INVALID_DEVICE;
    return *bytes = memory_of_device(), SUCCESS;
}

// As a Hopper has them, but for the number of multiprocessors: grids grow with it.
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (device < 0 || device >= devices()) return INVALID_DEVICE;
    if (attribute < 1 || attribute > 200) return INVALID_VALUE;
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;                 // threads of a block, along x and y
    case 4: *value = 64; break;                                   // along z
    case 5: *value = 2147483647; break;                           // blocks along x
    case 6: case 7: *value = 65535; break;                        // along y and z
    case 8: *value = 48 << 10; break;                             // shared memory of a block
    case 9: *value = 64 << 10; break;                             // constant memory
    case 10: *value = 32; break;                                  // threads of a warp
    case 12: case 82: *value = 65536; break;                      // registers of a block, of a multiprocessor
    case 13: *value = 1000000; break;                             // kHz
    case 16: *value = (int)setting("TUNEBOX_STANDIN_PROCESSORS", 4); break;
    case 31: case 41: case 78: case 95: case 115: *value = 1; break; // kernels at once, one address space,
                                                                     // priorities, cooperative launches, pools
    case 38: *value = 50 << 20; break;                            // second-level cache
    case 39: *value = 2048; break;                                // threads of a multiprocessor
    case 75: *value = (int)setting("TUNEBOX_STANDIN_CAPABILITY", 90) / 10; break;
    case 76: *value = (int)setting("TUNEBOX_STANDIN_CAPABILITY", 90) % 10; break;
    case 81: *value = (int)shared_memory() + (1 << 10); break;    // shared memory of a multiprocessor
    case 97: *value = (int)shared_memory(); break;                // of a block that asks for it
    case 106: *value = 32; break;                                 // blocks of a multiprocessor
    case 111: *value = 1 << 10; break;                            // shared memory that the system keeps of a block
    default: *value = 0;
    }
    return SUCCESS;
}

// ---- contexts ----

API int cuDevicePrimaryCtxRetain(void **context, int device) {
    ALONE;
    if (!begun) return NOT_INITIALIZED;
    if (device < 0 || device >= devices()) return INVALID_DEVICE;
    contexts[device].device = device, ++contexts[device].users;
    return *context = &contexts[device], SUCCESS;
}
API int cuDevicePrimaryCtxRelease_v2(int device) {
    ALONE;
    if (device < 0 || device >= devices() || contexts[device].users == 0) return INVALID_CONTEXT;
    --contexts[device].users;
    return SUCCESS;
}
API int cuCtxGetCurrent(void **context) {
    if (!begun) return NOT_INITIALIZED;
    return *context = current, SUCCESS;
}
API int cuCtxSetCurrent(void *context) {
    if (!begun) return NOT_INITIALIZED;
    return current = (Context *)context, SUCCESS;
}
API int cuCtxGetDevice(int *device) { return current ? (*device = current->device, SUCCESS) : INVALID_CONTEXT; }
API int cuCtxSetFlags(unsigned) { return ready(); }
API int cuCtxSetLimit(int, size_t) { return ready(); }
API int cuCtxGetLimit(size_t *value, int) { return *value = 0, ready(); }
API int cuCtxSetCacheConfig(int) { return ready(); }
API int cuCtxGetCacheConfig(int *value) { return *value = 0, ready(); }
API int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = *greatest = 0, ready(); }
API int cuCtxSynchronize() {
    ALONE;
    give_back_unused();
    return ready();
}

// ---- streams ----

API int cuStreamCreate(void **stream, unsigned flags) {
    ALONE;
    if (Result result = ready()) return result;
    *stream = new Stream{flags};
    streams.insert(*stream);
    return SUCCESS;
}
API int cuStreamCreateWithPriority(void **stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
API int cuStreamDestroy_v2(void *stream) {
    ALONE;
    if (!streams.erase(stream)) return INVALID_HANDLE;
    delete (Stream *)stream;
    return SUCCESS;
}
API int cuStreamSynchronize(void *stream) {
    ALONE;
    if (!is_stream(stream)) return INVALID_HANDLE;
    give_back_unused();
    return ready();
}
API int cuStreamQuery(void *stream) { ALONE; return is_stream(stream) ? ready() : INVALID_HANDLE; }
API int cuStreamIsCapturing(void *stream, int *status) {
    ALONE;
    return *status = 0, is_stream(stream) ? ready() : INVALID_HANDLE;
}
API int cuStreamBeginCapture_v2(void *, int) { return NOT_SUPPORTED; }
API int cuStreamEndCapture(void *, void **graph) { return *graph = nullptr, NOT_SUPPORTED; }
API int cuLaunchHostFunc(void *stream, void (*work)(void *), void *context) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (Result result = ready()) return result;
    return work(context), SUCCESS;
}

// ---- events ----

API int cuEventCreate(void **event, unsigned) {
    ALONE;
    if (Result result = ready()) return result;
    *event = new Event{false, Clock::now()};
    events.insert(*event);
    return SUCCESS;
}
API int cuEventDestroy_v2(void *event) {
    ALONE;
    if (!events.erase(event)) return INVALID_HANDLE;
    delete (Event *)event;
    return SUCCESS;
}
API int cuEventRecord(void *event, void *stream) {
    ALONE;
    if (!events.count(event) || !is_stream(stream)) return INVALID_HANDLE;
    *(Event *)event = {true, Clock::now()};
    return ready();
}
API int cuEventQuery(void *event) { ALONE; return events.count(event) ? ready() : INVALID_HANDLE; }
API int cuEventSynchronize(void *event) { return cuEventQuery(event); }
API int cuStreamWaitEvent(void *stream, void *event, unsigned) {
    ALONE;
    return events.count(event) && is_stream(stream) ? ready() : INVALID_HANDLE;
}
API int cuEventElapsedTime_v2(float *milliseconds, void *begin, void *end) {
    ALONE;
    if (!events.count(begin) || !events.count(end)) return INVALID_HANDLE;
    auto *first = (Event *)begin, *last = (Event *)end;
    if (!first->recorded || !last->recorded) return INVALID_HANDLE;
    *milliseconds = std::chrono::duration<float, std::milli>(last->at - first->at).count();
    return ready();
}
API int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
    return cuEventElapsedTime_v2(milliseconds, begin, end);
}

// ---- errors ----

struct Name {
    Result result;
    const char *name, *words;
};
static const Name NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

API int cuGetErrorName(int error, const char **name) {
    for (const Name &known : NAMES) if (known.result == error) return *name = known.name, SUCCESS;
    return *name = nullptr, INVALID_VALUE;
}
API int cuGetErrorString(int error, const char **words) {
    for (const Name &known : NAMES) if (known.result == error) return *words = known.words, SUCCESS;
    return *words = nullptr, INVALID_VALUE;
}
