/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronisations give memory of pools, and what was freed in a stream, back to the driver, for which others
 * may be waiting. For a program without either, each family reads a flag. Which stream an event stands for is
 * not known here, so its synchronisation is taken for one with all.
 */
#include "tables/registry.h"

static CUresult synchronised(CUresult result, CUstream stream) {
    if (result == CUDA_SUCCESS) registry_synchronised(stream, false);
    return result;
}

static CUresult synchronised_all(CUresult result) {
    if (result == CUDA_SUCCESS) registry_synchronised(NULL, true);
    return result;
}

CUresult hooked_cuStreamSynchronize(CUstream stream) {
    CUresult result = DRIVER(cuStreamSynchronize, stream);
    bool legacy = (uintptr_t)stream < CU_STREAM_PER_THREAD; /* waits for all others */
    return legacy ? synchronised_all(result) : synchronised(result, stream);
}

CUresult hooked_cuStreamSynchronize_ptsz(CUstream stream) {
    return synchronised(DRIVER(cuStreamSynchronize_ptsz, stream), stream);
}

CUresult hooked_cuCtxSynchronize(void) {
    return synchronised_all(DRIVER(cuCtxSynchronize));
}

CUresult hooked_cuCtxSynchronize_v2(CUcontext context) {
    return synchronised_all(DRIVER(cuCtxSynchronize_v2, context));
}

CUresult hooked_cuEventSynchronize(void *event) {
    return synchronised_all(DRIVER(cuEventSynchronize, event));
}
