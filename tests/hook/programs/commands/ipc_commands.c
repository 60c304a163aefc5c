/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of another process, by its handle in hexadecimal.
 */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL(symbol, ...) ((CUresult (*)(__VA_ARGS__))driver_symbol(#symbol))

struct ipc_handle {
    unsigned char bytes[64];
};

/* ipcget ADDRESS, ipcopen HANDLE, ipcclose ADDRESS */
CUresult run_ipc(const char *command, const char *rest, char *values) {
    struct ipc_handle handle = {0};
    uint64_t address = 0x5a5a;
    CUresult result = -1;
    if (strcmp(command, "ipcclose") == 0) return CALL(cuIpcCloseMemHandle, uint64_t)(strtoull(rest, NULL, 0));
    if (strcmp(command, "ipcget") == 0) {
        result = CALL(cuIpcGetMemHandle, struct ipc_handle *, uint64_t)(&handle, strtoull(rest, NULL, 0));
        values += sprintf(values, " ");
        for (size_t index = 0; index < sizeof handle.bytes; index++)
            values += sprintf(values, "%02x", handle.bytes[index]);
    }
    if (strcmp(command, "ipcopen") == 0) {
        for (size_t index = 0; index < sizeof handle.bytes; index++)
            if (sscanf(rest + 2 * index, "%2hhx", &handle.bytes[index]) != 1) return 1;
        result = CALL(cuIpcOpenMemHandle_v2, uint64_t *, struct ipc_handle, unsigned)(&address, handle, 1);
        sprintf(values, " %#lx", (unsigned long)address);
    }
    return result;
}
