/* SPDX-License-Identifier: Apache-2.0 */
#include "tables/registry.h"

#include "base/fork_reset.h"

/* Made by the linker: REGISTER_FAMILY of all files. */
extern const struct call_family *const __start_convgpu_families[] __attribute__((visibility("hidden")));
extern const struct call_family *const __stop_convgpu_families[] __attribute__((visibility("hidden")));

#define FOR_EACH(family, member, ...)                                                                        \
    for (const struct call_family *const *family = __start_convgpu_families;                                 \
         family < __stop_convgpu_families; family++)                                                         \
        if ((*family)->member) (*family)->member(__VA_ARGS__)

void registry_reclaim(int device, bool trim) {
    FOR_EACH(family, reclaim, device, trim);
}

void registry_synchronised(CUstream stream, bool all) {
    FOR_EACH(family, synchronised, stream, all);
}

void registry_mark(CUcontext context) {
    FOR_EACH(family, mark, context);
}

void registry_unmark(CUcontext context) {
    FOR_EACH(family, unmark, context);
}

void registry_drop(CUcontext context, uint64_t *sizes) {
    FOR_EACH(family, drop, context, sizes);
}

uint64_t registry_untaken(int device) {
    uint64_t sum = 0;
    for (const struct call_family *const *family = __start_convgpu_families; family < __stop_convgpu_families;
         family++)
        if ((*family)->untaken) sum += (*family)->untaken(device);
    return sum;
}

void registry_unkeep(void) {
    FOR_EACH(family, unkeep);
}

bool registry_mark_shared(CUdeviceptr address, size_t size) {
    bool any = false;
    for (const struct call_family *const *family = __start_convgpu_families; family < __stop_convgpu_families;
         family++)
        if ((*family)->mark_shared) any = (*family)->mark_shared(address, size) || any;
    return any;
}

bool registry_share(CUdeviceptr address, size_t size, int descriptor) {
    bool all = true;
    for (const struct call_family *const *family = __start_convgpu_families; family < __stop_convgpu_families;
         family++)
        if ((*family)->share) all = (*family)->share(address, size, descriptor) && all;
    return all;
}

void registry_enumerate(registry_visit *visit, void *argument) {
    FOR_EACH(family, enumerate, visit, argument);
}

static void registry_reset(void) {
    FOR_EACH(family, reset);
}
RESET_IN_CHILD(registry_reset);
