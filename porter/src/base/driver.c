/* SPDX-License-Identifier: Apache-2.0 */
#include "base/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "base/log.h"

struct driver cu;

/* False: the driver has none. */
static bool look_up(void *library, const char *symbol, void *field) {
    void *function = dlsym(library, symbol);
    memcpy(field, &function, sizeof function); /* ISO C converts no object pointer to a function pointer */
    return function != NULL;
}

static bool find(void *library, const char *symbol, void *field) {
    bool found = look_up(library, symbol, field);
    if (!found) log_line("the driver has no %s", symbol);
    return found;
}

#define DRIVER_FIND(field, symbol, parameters)     complete &= find(library, symbol, &cu.field);
#define DRIVER_FIND_ANY(field, symbol, parameters) (void)look_up(library, symbol, &cu.field);

bool driver_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        log_line("the driver cannot be opened: %s", dlerror());
        return false;
    }
    bool complete = true;
    DRIVER_CALLS(DRIVER_FIND)
    CHECKPOINT_CALLS(DRIVER_FIND_ANY)
    if (!complete) return false;
    CUresult result = cu.init(0);
    if (result != CU_SUCCESS) log_line("cuInit: %s", driver_error(result));
    return result == CU_SUCCESS;
}

const char *driver_error(CUresult result) {
    const char *name = NULL;
    return cu.error_name(result, &name) == CU_SUCCESS && name != NULL ? name : "an unknown error";
}
