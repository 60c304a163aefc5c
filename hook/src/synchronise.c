/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronisations give memory of pools back to the driver, which others may be waiting for. A program
 * without pools pays one look at a flag.
 */
#include "pool.h"

static CUresult look(CUresult result) {
    if (result == CUDA_SUCCESS) pool_synchronised();
    return result;
}

CUresult hooked_cuStreamSynchronize(CUstream stream) {
    return look(DRIVER(cuStreamSynchronize, stream));
}

CUresult hooked_cuStreamSynchronize_ptsz(CUstream stream) {
    return look(DRIVER(cuStreamSynchronize_ptsz, stream));
}

CUresult hooked_cuCtxSynchronize(void) {
    return look(DRIVER(cuCtxSynchronize));
}

CUresult hooked_cuCtxSynchronize_v2(CUcontext context) {
    return look(DRIVER(cuCtxSynchronize_v2, context));
}
