/* SPDX-License-Identifier: Apache-2.0
 *
 * hook/src/functions/functions.c and short_path.c alone: modules, libraries and contexts come and go at
 * random, and handles come again as a driver gives them. A launch that passes unseen must be of a function
 * that was looked at, in its context, since it got its handle.
 *
 *   first_launches SEED STEPS STRANGE FOREIGN
 *
 * One handle of STRANGE is got in a way that is not hooked, one of FOREIGN from a module of its library; 0:
 * none.
 *
 * Says what went wrong, then: passed N, looked N, shut N
 */
#include "functions/functions.h"
#include "functions/parameters.h"
#include "gate/gate.h"
#include "tables/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLES = 96, OWNERS = 8, CONTEXTS = 3, CHECK_ONE_IN = 50 };

extern const struct call_family *const __start_convgpu_families[]; /* of functions.c alone */
_Atomic uint32_t gate_state = GATE_UNUSED;
static unsigned strange, foreign, contexts = 1, wrong, passed, looked;
static bool shut;

/* What a driver knows. `owner` is 0 for a handle that names nothing; `seen` by contexts. */
static struct {
    unsigned owner, last_owner;
    bool is_kernel, is_foreign, got, seen[CONTEXTS];
} live[HANDLES];
static bool loaded[OWNERS + 1]; /* the second half are libraries */

/* As of functions/parameters.c. */
void parameters_forget(word function) {
    (void)function;
}

uint32_t growth_contexts(void) {
    return contexts;
}

static word handle_of(unsigned index) {
    return UINT64_C(0x55d00000a000) + index * 0x170;
}

static uint64_t owner_of(unsigned owner) {
    return UINT64_C(0x55e00000b000) + owner * 0x240;
}

static CUcontext context_of(unsigned context) {
    return (CUcontext)(uintptr_t)(0x1000 + context * 0x100);
}

static unsigned below(unsigned bound) {
    return (unsigned)random() % bound;
}

static void fail(const char *what, unsigned index) {
    printf("%s: handle %u of owner %u\n", what, index, live[index].owner);
    wrong++;
}

/* As the hook launches: by the bits, by the table, by what is known, and then with a look. */
static void launch(unsigned index, unsigned context) {
    word function = handle_of(index);
    uint32_t generation = functions_generation();
    bool is_open = short_path_is_open(function), is_there = functions_are_seen(function);
    bool is_known = functions_know(function, context_of(context));
    if ((is_open || is_there || is_known) && !live[index].seen[context])
        fail(is_open    ? "open, and not seen"
             : is_there ? "in the table, and not seen"
                        : "known, and not seen",
             index);
    if (is_open && shut) fail("open, and shut", index);
    if (is_open) passed++;
    if (is_open || is_there || is_known) return;
    looked++;
    live[index].seen[context] = true;
    functions_learn(function, context_of(context), generation);
    if (!live[index].got) shut = true;
}

static void forget_seen(void) {
    for (unsigned index = 0; index < HANDLES; index++)
        for (unsigned context = 0; context < CONTEXTS; context++) live[index].seen[context] = false;
}

static void get(unsigned index, unsigned owner) {
    bool is_foreign = foreign != 0 && index % foreign == 0;
    if (is_foreign) owner = OWNERS / 2 + 1 + index % (OWNERS / 2); /* so that it comes again as that one's */
    if (!loaded[owner]) return;
    if (live[index].owner == 0) {
        if (live[index].last_owner == owner) return;
        live[index].owner = owner;
        live[index].got = strange == 0 || below(strange) != 0;
        live[index].is_foreign = is_foreign;
        live[index].is_kernel = live[index].got && !live[index].is_foreign && owner > OWNERS / 2;
    }
    owner = live[index].owner;
    if (!live[index].got) return;
    if (live[index].is_foreign) functions_mix();
    functions_add(live[index].is_kernel ? FUNCTIONS_KERNEL : FUNCTIONS_FUNCTION, handle_of(index),
                  owner_of(owner) + (live[index].is_foreign ? 0x10 : 0));
}

/* `unseen`: in a way that is not hooked, so that its handles come again as another's. */
static void unload(unsigned owner, bool unseen) {
    if (!unseen) functions_mark_owner(owner_of(owner));
    bool gone = unseen || below(8) != 0;
    if (!unseen) functions_end_owner(owner_of(owner), gone);
    if (!gone) return;
    loaded[owner] = false;
    for (unsigned index = 0; index < HANDLES; index++) {
        if (live[index].owner != owner) continue;
        memset(&live[index], 0, sizeof live[index]);
        if (unseen) live[index].last_owner = owner;
    }
}

/* In another context, another thread gets functions of a module that has the handle of an ended one's. */
static void get_amid_an_end(void) {
    for (int left = 4; left > 0; left--) {
        unsigned index = below(HANDLES);
        if (live[index].owner == 0 || live[index].is_kernel || !live[index].got) continue;
        memset(live[index].seen, 0, sizeof live[index].seen);
        get(index, live[index].owner);
        launch(index, 0);
    }
}

/* A context has ended: the functions of modules go with the last. */
static void end_context(void) {
    uint64_t sizes[1];
    const struct call_family *functions = *__start_convgpu_families;
    functions->mark(NULL);
    if (below(4) == 0) return functions->unmark(NULL); /* the driver refuses */
    get_amid_an_end();
    functions->drop(NULL, sizes);
    bool is_last = contexts == 1;
    if (is_last) contexts = 0;
    functions_end_last();
    if (is_last)
        for (unsigned index = 0; index < HANDLES; index++)
            if (live[index].owner != 0 && !live[index].is_kernel) memset(&live[index], 0, sizeof live[index]);
    if (is_last) contexts = 1; /* another one is made */
    functions_forget();
    forget_seen();
}

static void change_contexts(void) {
    if (below(2) == 0) return end_context();
    contexts = 1 + below(CONTEXTS);
    functions_forget();
    forget_seen();
}

/* Once all have been launched, nothing stays closed but for what went in a way that is not hooked. */
static void check_all_open(void) {
    if (shut || contexts > 1 || looked == 0) return;
    for (unsigned index = 0; index < HANDLES; index++)
        if (live[index].owner != 0) launch(index, 0);
    for (unsigned index = 0; index < HANDLES; index++) {
        bool may_wait = live[index].owner == 0 && live[index].last_owner != 0;
        if (!shut && !may_wait && foreign == 0 && !short_path_is_open(handle_of(index)))
            fail("nothing waits, and closed", index);
    }
}

static void step(void) {
    unsigned owner = 1 + below(OWNERS), index = below(HANDLES), what = below(100);
    if (!loaded[owner]) {
        loaded[owner] = true;
    } else if (what < 4) {
        unload(owner, what == 0 && !shut);
    } else if (what < 5 && below(foreign != 0 ? 50 : 1) == 0) {
        change_contexts();
    } else if (what < 30) {
        get(index, owner);
    } else if (live[index].owner != 0) {
        launch(index, live[index].is_kernel ? below(contexts) : 0);
    }
    if (below(CHECK_ONE_IN) == 0) check_all_open();
}

/* The first launch of all: later ones may pass where the path is open. */
static void start_strange(void) {
    live[0].owner = 1;
    loaded[1] = true;
    launch(0, 0);
}

int main(int count, char **words) {
    if (count != 5) return 2;
    strange = (unsigned)atoi(words[3]);
    foreign = (unsigned)atoi(words[4]);
    if (strange > 0) start_strange();
    srandom((unsigned)atoi(words[1]));
    for (int left = atoi(words[2]); left > 0 && wrong == 0; left--) step();
    printf("passed %u, looked %u, shut %d\n", passed, looked, shut);
    return wrong > 0;
}
