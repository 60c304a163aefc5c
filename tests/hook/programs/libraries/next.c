/* SPDX-License-Identifier: Apache-2.0
 *
 * Somebody else's preloaded library. Its RTLD_NEXT means what stands behind it; asked from elsewhere the
 * answer would be another one. It defines getppid, so that finding it again would be an endless recursion.
 */
#include <dlfcn.h>
#include <sys/types.h>

pid_t getppid(void) {
    static pid_t (*real)(void);
    if (!real) real = (pid_t (*)(void))dlsym(RTLD_NEXT, "getppid");
    return real();
}

void *next_plain(const char *name) {
    void *volatile found =
        dlsym(RTLD_NEXT, name); /* volatile: no sibling call, the address of the asker is ours */
    return found;
}

void *next_versioned(const char *name, const char *version) {
    void *volatile found = dlvsym(RTLD_NEXT, name, version);
    return found;
}
