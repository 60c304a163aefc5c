/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

enum { VDPAU = 7 }; /* a device of VDPAU; the simulated driver takes no other */

/* In place of VdpGetProcAddress: the simulated driver calls nothing of VDPAU. */
static char lookup[1];

CUresult run_context(const char *command, const size_t *number, char *values) {
    CUresult result = -1;
    CUcontext context = (CUcontext)0x5a5a;
    CUdevice device = (CUdevice)number[0];
    if (strcmp(command, "init") == 0)
        result = cuda.cuInit((unsigned)number[0]);
    else if (strcmp(command, "retain") == 0)
        result = cuda.cuDevicePrimaryCtxRetain(&context, device);
    else if (strcmp(command, "release") == 0)
        return cuda.cuDevicePrimaryCtxRelease_v2(device);
    else if (strcmp(command, "release1") == 0)
        return cuda.cuDevicePrimaryCtxRelease(device);
    else if (strcmp(command, "reset") == 0)
        return cuda.cuDevicePrimaryCtxReset_v2(device);
    else if (strcmp(command, "reset1") == 0)
        return cuda.cuDevicePrimaryCtxReset(device);
    else if (strcmp(command, "create1") == 0)
        result = cuda.cuCtxCreate(&context, 0, device);
    else if (strcmp(command, "create2") == 0)
        result = cuda.cuCtxCreate_v2(&context, 0, device);
    else if (strcmp(command, "create3") == 0)
        result = cuda.cuCtxCreate_v3(&context, NULL, 0, 0, device);
    else if (strcmp(command, "create4") == 0)
        result = cuda.cuCtxCreate_v4(&context, NULL, 0, device);
    else if (strcmp(command, "creategl") == 0)
        result = cuda.cuGLCtxCreate_v2(&context, 0, device);
    else if (strcmp(command, "creategl1") == 0)
        result = cuda.cuGLCtxCreate(&context, 0, device);
    else if (strcmp(command, "createvdpau") == 0)
        result = cuda.cuVDPAUCtxCreate_v2(&context, 0, device, VDPAU, lookup);
    else if (strcmp(command, "createvdpau1") == 0)
        result = cuda.cuVDPAUCtxCreate(&context, 0, device, VDPAU, lookup);
    else if (strcmp(command, "destroy") == 0)
        return cuda.cuCtxDestroy_v2((CUcontext)number[0]);
    else if (strcmp(command, "destroy1") == 0)
        return cuda.cuCtxDestroy((CUcontext)number[0]);
    else if (strcmp(command, "attach") == 0)
        result = cuda.cuCtxAttach(&context, 0);
    else if (strcmp(command, "detach") == 0)
        return cuda.cuCtxDetach((CUcontext)number[0]);
    else if (strcmp(command, "use") == 0)
        return ((CUresult (*)(CUcontext))driver_symbol("cuCtxSetCurrent"))((CUcontext)number[0]);
    sprintf(values, " %p", (void *)context);
    if (result == 0 && strcmp(command, "init") != 0) shared_context = context;
    return result;
}
