/* SPDX-License-Identifier: Apache-2.0 */
#include "base/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "base/log.h"

struct driver cu;

static bool find(void *library, const char *symbol, void *field) {
    void *function = dlsym(library, symbol);
    if (function == NULL) {
        log_line("the driver has no %s", symbol);
        return false;
    }
    memcpy(field, &function, sizeof function); /* ISO C converts no object pointer to a function pointer */
    return true;
}

#define DRIVER_FIND(field, symbol, parameters) complete &= find(library, symbol, &cu.field);

bool driver_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        log_line("the driver cannot be opened: %s", dlerror());
        return false;
    }
    bool complete = true;
    DRIVER_CALLS(DRIVER_FIND)
    if (!complete) return false;
    CUresult result = cu.init(0);
    if (result != CU_SUCCESS) log_line("cuInit: %s", driver_error(result));
    return result == CU_SUCCESS;
}

const char *driver_error(CUresult result) {
    const char *name = NULL;
    return cu.error_name(result, &name) == CU_SUCCESS && name != NULL ? name : "an unknown error";
}
