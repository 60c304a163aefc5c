/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks symbols up and says where they are: `lookups WHERE NAME [VERSION]`, WHERE being a file for dlopen,
 * `default`, `next` or `preloaded` (asked by next.c, a library preloaded behind the hook). Writes
 * FILE:SYMBOL, or `none` and dlerror().
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *ask(void *handle, const char *name, const char *version) {
    return version ? dlvsym(handle, name, version) : dlsym(handle, name);
}

/* By the functions of next.c, whose own RTLD_NEXT it is. */
static void *ask_preloaded(const char *name, const char *version) {
    if (version) {
        void *(*versioned)(const char *, const char *) =
            (void *(*)(const char *, const char *))dlsym(RTLD_DEFAULT, "next_versioned");
        return versioned(name, version);
    }
    void *(*plain)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "next_plain");
    return plain(name);
}

int main(int count, char **words) {
    const char *version = count > 3 ? words[3] : NULL;
    void *found;
    if (strcmp(words[1], "default") == 0) {
        found = ask(RTLD_DEFAULT, words[2], version);
    } else if (strcmp(words[1], "next") == 0) {
        found = ask(RTLD_NEXT, words[2], version);
    } else if (strcmp(words[1], "preloaded") == 0) {
        found = ask_preloaded(words[2], version);
    } else {
        void *handle = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
        if (!handle) return printf("%s\n", dlerror()), 2;
        found = ask(handle, words[2], version);
    }
    Dl_info info;
    if (!found || !dladdr(found, &info)) return printf("none %s\n", dlerror()), 1;
    const char *slash = strrchr(info.dli_fname, '/');
    printf("%s:%s\n", slash ? slash + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "?");
    return 0;
}
