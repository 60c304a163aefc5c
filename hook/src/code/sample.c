/* SPDX-License-Identifier: Apache-2.0 */
#include "code/sample.h"

#include "accounting/context_growth.h"
#include "accounting/device.h"
#include "scheduler/account.h"
#include "scheduler/session.h"

static bool read_unused(size_t *unused) {
    size_t total;
    return DRIVER(cuMemGetInfo_v2, unused, &total) == CUDA_SUCCESS;
}

struct sample sample_take(void) {
    struct sample now = {.device = DEVICE_UNKNOWN};
    if (!session_is_open() || device_current(&now.context, &now.device) != CUDA_SUCCESS) {
        now.device = DEVICE_UNKNOWN;
        return now;
    }
    now.seen = now.device >= 0 && account_watched((uint32_t)now.device) && read_unused(&now.unused);
    return now;
}

CUresult sample_charge_fall(struct sample *before, const char *call) {
    size_t unused;
    if (!before->seen || !read_unused(&unused)) return CUDA_SUCCESS;
    bool fell = unused < before->unused;
    before->unused = unused;
    return fell || growth_is_owed(before->device) ? growth_charge_now(before->device, call) : CUDA_SUCCESS;
}

uint64_t sample_fall(const struct sample *before) {
    size_t unused;
    bool fell = before->seen && read_unused(&unused) && unused < before->unused;
    return fell ? before->unused - unused : 0;
}

bool sample_fell(const struct sample *before) {
    size_t unused;
    return !before->seen || !read_unused(&unused) || unused < before->unused;
}

void sample_see_rise(const struct sample *before) {
    size_t unused;
    if (before->seen && read_unused(&unused) && unused > before->unused) growth_fell(before->device);
}
