/* SPDX-License-Identifier: Apache-2.0
 *
 * Work for a device: fills, copies, kernels that last until they are let go.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

static uint32_t words[16]; /* of the host, for which kernels wait */

static void *find_kernel(const char *name) {
    static void *module;
    void *function = NULL;
    CUresult (*find)(void **, void *, const char *) =
        (CUresult (*)(void **, void *, const char *))driver_symbol("cuModuleGetFunction");
    if (!module) cuda.cuModuleLoadData(&module, "variables=0 code=0 lasts_us=0");
    return find(&function, module, name) == 0 ? function : NULL;
}

static CUresult launch(const char *name, uint64_t stream, const uint64_t *arguments) {
    void *parameters[4];
    for (int index = 0; index < 4; index++) parameters[index] = (void *)(uintptr_t)&arguments[index];
    return cuda.cuLaunchKernel((uint64_t)(uintptr_t)find_kernel(name), 1, 1, 1, 1, 1, 1, 0, stream,
                               (uint64_t)(uintptr_t)parameters, 0);
}

/* compare ADDRESS SIZE VALUE: how many bytes are not VALUE. */
static CUresult compare(const size_t *number, char *values) {
    static unsigned char bytes[CHUNK], wanted[CHUNK];
    size_t wrong = 0;
    CUresult result = 0;
    memset(wanted, (int)number[2], sizeof wanted);
    for (size_t done = 0, part; result == 0 && done < number[1]; done += part) {
        part = number[1] - done < CHUNK ? number[1] - done : CHUNK;
        result = cuda.cuMemcpyDtoH_v2((uint64_t)(uintptr_t)bytes, number[0] + done, part);
        if (memcmp(bytes, wanted, part) == 0) continue;
        for (size_t index = 0; index < part; index++) wrong += bytes[index] != wanted[index];
    }
    sprintf(values, " %zu", wrong);
    return result;
}

CUresult run_work(const char *command, const size_t *number, char *values) {
    /* fill ADDRESS SIZE VALUE; fillasync ADDRESS SIZE VALUE STREAM */
    if (strcmp(command, "fill") == 0) return cuda.cuMemsetD8_v2(number[0], number[2], number[1]);
    if (strcmp(command, "fillasync") == 0)
        return cuda.cuMemsetD8Async(number[0], number[2], number[1], number[3]);
    if (strcmp(command, "compare") == 0) return compare(number, values);
    /* hold WORD STREAM: a kernel that lasts until `let WORD` */
    if (strcmp(command, "hold") == 0) {
        words[number[0]] = 0;
        return launch("until", number[1], (uint64_t[]){(uint64_t)(uintptr_t)&words[number[0]], 1, 0, 0});
    }
    if (strcmp(command, "let") == 0) {
        __atomic_store_n(&words[number[0]], 1, __ATOMIC_SEQ_CST);
        return 0;
    }
    /* stray STREAM: a kernel that writes where nothing is */
    if (strcmp(command, "stray") == 0) return launch("fill", number[0], (uint64_t[]){4096, 1, 0, 0});
    if (strcmp(command, "sync") == 0) return cuda.cuCtxSynchronize();
    return -1;
}
