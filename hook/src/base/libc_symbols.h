/* SPDX-License-Identifier: Apache-2.0
 *
 * The real dlsym and dlvsym, which ours hide. They cannot be asked for by name (that is what they are for),
 * so they are read from the dynamic symbol table of the loaded libc.
 */
#ifndef CONVGPU_LIBC_SYMBOLS_H
#define CONVGPU_LIBC_SYMBOLS_H

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

/* Work at any time, also before this library's constructors; allocate nothing; any number of threads may call
 * them at once. End the process with a line on stderr when there is no such symbol, for no door could be
 * watched then. */
dlsym_function *libc_dlsym(void);
dlvsym_function *libc_dlvsym(void);

#endif
