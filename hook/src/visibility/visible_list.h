/* SPDX-License-Identifier: Apache-2.0
 *
 * What CUDA_VISIBLE_DEVICES has to say so that the driver shows the chosen devices and no other. Pure.
 */
#ifndef CONVGPU_VISIBLE_LIST_H
#define CONVGPU_VISIBLE_LIST_H

#include "gpus/uuid_text.h"
#include "scheduler/account.h"

#include <stdbool.h>
#include <stddef.h>

enum { VISIBLE_LIST_SIZE = CONVGPU_MAX_DEVICES * UUID_TEXT_SIZE + 1 };

/* What came of the program's own list. */
struct visible_list {
    uint32_t count;      /* of devices in `text` */
    const char *unknown; /* the entry of the program's own at which the list ends, because no chosen device
                            has that number or UUID; NULL when it ends where it ends */
    char text[VISIBLE_LIST_SIZE];
};

/* Writes the value in place of `asked`, the program's own (NULL: all of the chosen). The program's list is
 * read as the driver would read it in a container that has the chosen devices only: numbers are positions
 * among them, UUIDs may be abbreviated, the first entry that names none ends the list. False for an instance
 * (MIG), which the scheduler never chooses: then `asked` stays as it is. */
bool visible_list_make(const char *asked, const struct account_chosen *chosen, struct visible_list *list);

#endif
