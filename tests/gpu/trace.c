/* Writes the time of each launch, copy and fill of a program on the GPU: a library for LD_PRELOAD.
 *
 * One line of $TRACE_OUT.PID each: nanoseconds of the begin and of the end, and the name of the kernel. NVIDIA's CUPTI reads the clock of the
 * GPU, so the program runs at its own speed, which a profiler that stops at each launch does not let it do.
 */
#include <ctype.h>
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *out;
/* Small buffers and a period in milliseconds: a name must be read before the module that has it is unloaded. */
enum { BUFFER_BYTES = 64 << 10, FLUSH_MILLISECONDS = 20, NAME_CHARACTERS = 200 };

static void request(uint8_t **buffer, size_t *size, size_t *max_records) {
    *size = BUFFER_BYTES;
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *max_records = 0;
}

/* A line of its own for each launch, whatever is in the memory of a name. */
static void write_line(unsigned long long begin, unsigned long long end, const char *name) {
    fprintf(out, "%llu %llu ", begin, end);
    for (int at = 0; at < NAME_CHARACTERS && name && name[at]; ++at)
        fputc(isgraph((unsigned char)name[at]) ? name[at] : '_', out);
    fputc('\n', out);
}

static void write_record(const CUpti_Activity *record) {
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const CUpti_ActivityKernel9 *kernel = (const CUpti_ActivityKernel9 *)record;
        write_line(kernel->start, kernel->end, kernel->name);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy5 *copy = (const CUpti_ActivityMemcpy5 *)record;
        write_line(copy->start, copy->end, "copy");
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset4 *fill = (const CUpti_ActivityMemset4 *)record;
        write_line(fill->start, fill->end, "fill");
        break;
    }
    default:
        break;
    }
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        write_record(record);
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(1);
    fclose(out);
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("TRACE_OUT");
    char name[4096];
    if (!path || snprintf(name, sizeof name, "%s.%d", path, (int)getpid()) >= (int)sizeof name || !(out = fopen(name, "w")))
        return;
    cuptiActivityRegisterCallbacks(request, complete);
    const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; ++at) {
        CUptiResult result = cuptiActivityEnable(kinds[at]);
        if (result != CUPTI_SUCCESS)
            fprintf(stderr, "trace: CUPTI refuses activity %d with %d\n", (int)kinds[at], (int)result);
    }
    cuptiActivityFlushPeriod(FLUSH_MILLISECONDS);
    atexit(finish);
}
