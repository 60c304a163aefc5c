/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronisations give memory of pools, and what was freed in a stream, back to the driver, which others may
 * be waiting for. A program without either pays a look at two flags. Which stream an event stands for is not
 * known here, so its synchronisation is taken for one with all.
 */
#include "calls/memory.h"
#include "calls/pool.h"

static CUresult look(CUresult result, CUstream stream) {
    if (result != CUDA_SUCCESS) return result;
    memory_synchronised(stream);
    pool_synchronised();
    return result;
}

static CUresult look_at_all(CUresult result) {
    if (result != CUDA_SUCCESS) return result;
    memory_synchronised_all();
    pool_synchronised();
    return result;
}

CUresult hooked_cuStreamSynchronize(CUstream stream) {
    CUresult result = DRIVER(cuStreamSynchronize, stream);
    bool legacy = (uintptr_t)stream < CU_STREAM_PER_THREAD; /* waits for all others */
    return legacy ? look_at_all(result) : look(result, stream);
}

CUresult hooked_cuStreamSynchronize_ptsz(CUstream stream) {
    return look(DRIVER(cuStreamSynchronize_ptsz, stream), stream);
}

CUresult hooked_cuCtxSynchronize(void) {
    return look_at_all(DRIVER(cuCtxSynchronize));
}

CUresult hooked_cuCtxSynchronize_v2(CUcontext context) {
    return look_at_all(DRIVER(cuCtxSynchronize_v2, context));
}

CUresult hooked_cuEventSynchronize(void *event) {
    return look_at_all(DRIVER(cuEventSynchronize, event));
}
