/* SPDX-License-Identifier: Apache-2.0
 *
 * The lookup paths by which a program finds a call of CUDA or NVML: linked symbols (exported here), dlsym and
 * dlvsym, and cuGetProcAddress. And the one entry gate of all hooked calls, made from the column `gate` of
 * hooked_calls.h. A call that is not the hook's affair goes straight to the driver, with the driver's own
 * answer: one that the driver makes itself, or one whose arguments take nothing.
 */
#include "base/libc_symbols.h"
#include "base/log.h"
#include "gate/gate.h"
#include "nvml/nvml.h"
#include "scheduler/session.h"
#include "streams/thread_stream.h"
#include "tables/driver.h"

#include <dlfcn.h>
#include <string.h>

#ifndef __OPTIMIZE__
#error                                                                                                       \
    "build with -O1 or more: RTLD_NEXT keeps its meaning only if the real dlsym is reached by a sibling call"
#endif

#define EXPORTED __attribute__((visibility("default")))

enum entry {
    ENTRY_HOOK,    /* the hook answers */
    ENTRY_DRIVER,  /* the driver answers */
    ENTRY_REFUSED, /* there is no scheduler: fails closed */
};

#define ENTRY_NONE           ENTRY_HOOK
#define ENTRY_SESSION(takes) (!(takes) ? ENTRY_DRIVER : session_ready() ? ENTRY_HOOK : ENTRY_REFUSED)
#define ENTRY_MEMORY(takes)  (!(takes) ? ENTRY_DRIVER : enter_memory())

/* What takes memory waits while this process is suspended. */
static enum entry enter_memory(void) {
    if (!session_ready()) return ENTRY_REFUSED;
    if (!gate_is_unused()) gate_wait_open();
    return ENTRY_HOOK;
}

/* `ready`: what must be done besides, before the hook or the driver answers. */
#define EXPORT(symbol, gate, parameters, arguments, ready)                                                   \
    EXPORTED CUresult symbol parameters;                                                                     \
    CUresult symbol parameters {                                                                             \
        if (!driver_load()) return CUDA_ERROR_NOT_INITIALIZED;                                               \
        enum entry entry = inside_driver ? ENTRY_DRIVER : ENTRY_##gate;                                      \
        if (entry == ENTRY_REFUSED) return CUDA_ERROR_SYSTEM_NOT_READY;                                      \
        CUresult result = ready;                                                                             \
        if (result != CUDA_SUCCESS) return result;                                                           \
        if (entry == ENTRY_HOOK) return hooked_##symbol arguments;                                           \
        inside_driver++;                                                                                     \
        result = driver.symbol ? driver.symbol arguments : CUDA_ERROR_NOT_FOUND;                             \
        inside_driver--;                                                                                     \
        return result;                                                                                       \
    }

#define EXPORT_CALL(symbol, base, since, twin, gate, parameters, arguments)                                  \
    EXPORT(symbol, gate, parameters, arguments, CUDA_SUCCESS)
CONVGPU_HOOKED_OTHER_CALLS(EXPORT_CALL)

/* The default stream of the thread is made first. */
#define EXPORT_STREAM_CALL(symbol, base, since, twin, gate, parameters, arguments)                           \
    EXPORT(symbol, gate, parameters, arguments,                                                              \
           IS_OWN_##twin((uintptr_t)stream) ? thread_stream_ready(#base) : CUDA_SUCCESS)
CONVGPU_HOOKED_STREAM_CALLS(EXPORT_STREAM_CALL)

/* CUDA_GRAPH_INSTANTIATE_PARAMS: the stream that an executable graph is uploaded in, if it is. */
static uintptr_t upload_stream(const void *parameters) {
    static const uint64_t UPLOAD = 2;
    const struct {
        uint64_t flags;
        uintptr_t stream;
    } *asked = parameters;
    return asked && asked->flags & UPLOAD ? asked->stream : CU_STREAM_LEGACY;
}

#define EXPORT_UPLOAD_CALL(symbol, base, since, twin, gate, declared, given)                                 \
    EXPORT(symbol, gate, declared, given,                                                                    \
           IS_OWN_##twin(upload_stream(parameters)) ? thread_stream_ready(#base) : CUDA_SUCCESS)
CONVGPU_HOOKED_UPLOAD_CALLS(EXPORT_UPLOAD_CALL)

/* Exported by gated.c and passed.c. */
#define DECLARE_GATED(symbol, base, since, stream, words, on) CUresult symbol(CONVGPU_PARAMETERS_##words);
CONVGPU_GATED_CALLS(DECLARE_GATED)
CONVGPU_STREAM_CALLS(DECLARE_GATED)

#define EXPORT_NVML(symbol, parameters, arguments)                                                           \
    EXPORTED int symbol parameters;                                                                          \
    int symbol parameters {                                                                                  \
        if (!inside_driver) return hooked_##symbol arguments;                                                \
        symbol##_function *real = (symbol##_function *)nvml_function(#symbol);                               \
        return real ? real arguments : NVML_ERROR_FUNCTION_NOT_FOUND;                                        \
    }
CONVGPU_NVML_CALLS(EXPORT_NVML)

EXPORTED void *dlsym(void *handle, const char *name);
EXPORTED void *dlvsym(void *handle, const char *name, const char *version);

/* One symbol that has a replacement. */
struct hooked_call {
    const char *symbol, *base;
    int since;
    enum convgpu_stream stream;
    void *replacement;
};

#define LIST_CALL(symbol, base, since, stream, gate, parameters, arguments)                                  \
    {#symbol, #base, since, CONVGPU_STREAM_##stream, (void *)symbol},
#define LIST_GATED(symbol, base, since, stream, words, on)                                                   \
    {#symbol, #base, since, CONVGPU_STREAM_##stream, (void *)symbol},
#define LIST_NVML(symbol, parameters, arguments) {#symbol, #symbol, 0, CONVGPU_STREAM_NONE, (void *)symbol},
static const struct hooked_call calls[] = {
    CONVGPU_HOOKED_CALLS(LIST_CALL) CONVGPU_GATED_CALLS(LIST_GATED) CONVGPU_STREAM_CALLS(LIST_GATED)
        CONVGPU_NVML_CALLS(LIST_NVML){"dlsym", "", 0, CONVGPU_STREAM_NONE, (void *)dlsym},
    {"dlvsym", "", 0, CONVGPU_STREAM_NONE, (void *)dlvsym}};
enum { CALL_COUNT = sizeof calls / sizeof calls[0] };

static bool is_nvml(const char *name) {
    return strncmp(name, "nvml", 4) == 0;
}

static const struct hooked_call *find_symbol(const char *name) {
    if (!name || (strncmp(name, "cu", 2) != 0 && !is_nvml(name) && strncmp(name, "dl", 2) != 0)) return NULL;
    for (size_t index = 0; index < CALL_COUNT; index++)
        if (strcmp(calls[index].symbol, name) == 0) return &calls[index];
    return NULL;
}

/* What the real lookup found, or its replacement. Our own symbol is found by lookups in the global scope even
 * when no driver is there; then the truth is what stands behind us, or in a driver that was opened privately.
 */
static void *replace(const struct hooked_call *call, void *found) {
    if (!found || found != call->replacement || call->base[0] == '\0')
        return found ? call->replacement : NULL;
    if (libc_dlsym()(RTLD_NEXT, call->symbol)) return found;
    const char *file = is_nvml(call->symbol) ? CONVGPU_NVML_FILE : CONVGPU_DRIVER_FILE;
    void *handle = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return NULL; /* with dlerror() of one of the two */
    void *real = libc_dlsym()(handle, call->symbol);
    dlclose(handle);
    return real ? found : NULL;
}

/* Sibling calls, so that the real function sees our caller's return address: it is by that address that
 * RTLD_NEXT and RTLD_DEFAULT know who asks. RTLD_NEXT means whatever stands behind the asker: never replaced.
 */
void *dlsym(void *handle, const char *name) {
    const struct hooked_call *call = NULL;
    if (handle != RTLD_NEXT && !inside_driver) call = find_symbol(name);
    if (!call) return libc_dlsym()(handle, name);
    return replace(call, libc_dlsym()(handle, name));
}

void *dlvsym(void *handle, const char *name, const char *version) {
    const struct hooked_call *call = NULL;
    if (handle != RTLD_NEXT && !inside_driver) call = find_symbol(name);
    if (!call) return libc_dlvsym()(handle, name, version);
    return replace(call, libc_dlvsym()(handle, name, version));
}

/* The replacement for what cuGetProcAddress gives for this base name, version and flags; NULL for none. */
static void *find_base(const char *name, int version, uint64_t flags) {
    enum convgpu_stream asked =
        flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? CONVGPU_STREAM_PTSZ : CONVGPU_STREAM_NONE;
    const struct hooked_call *best = NULL;
    for (size_t index = 0; index < CALL_COUNT; index++) {
        const struct hooked_call *call = &calls[index];
        if (strcmp(call->base, name) != 0 || call->since == 0 || call->since > version) continue;
        if (call->stream == CONVGPU_STREAM_PTSZ && asked != CONVGPU_STREAM_PTSZ) continue;
        bool newer = !best || call->since > best->since;
        bool closer = best && call->since == best->since && call->stream == asked;
        if (newer || closer) best = call;
    }
    if (best) return best->replacement;
    const struct hooked_call *exact = find_symbol(name); /* a full name, if a driver should take it */
    return exact && strcmp(exact->base, exact->symbol) != 0 ? exact->replacement : NULL;
}

/* Whether the driver gave a form of the call that is not on our list (cuMemAlloc_v3 of a CUDA to come): ours
 * would take its arguments for something else. */
static bool is_unknown_form(const char *name, void *function) {
    Dl_info info;
    size_t length = strlen(name);
    if (!dladdr(function, &info) || info.dli_saddr != function || !info.dli_sname) return false;
    return strncmp(info.dli_sname, name, length) == 0 && strncmp(info.dli_sname + length, "_v", 2) == 0 &&
           !find_symbol(info.dli_sname);
}

static void replace_found(const char *name, void **function, int version, uint64_t flags) {
    void *replacement = *function ? find_base(name, version, flags) : NULL;
    if (!replacement) return;
    if (is_unknown_form(name, *function))
        log_refusal(
            "this driver has a form of %s that convgpu does not know yet: what it takes is not limited. "
            "Update convgpu.",
            name);
    else
        *function = replacement;
}

CUresult hooked_cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    CUresult result = DRIVER(cuGetProcAddress, name, function, version, flags);
    if (result == CUDA_SUCCESS && name && function) replace_found(name, function, version, flags);
    return result;
}

CUresult hooked_cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    int *status) {
    CUresult result = DRIVER(cuGetProcAddress_v2, name, function, version, flags, status);
    if (result == CUDA_SUCCESS && name && function) replace_found(name, function, version, flags);
    return result;
}
