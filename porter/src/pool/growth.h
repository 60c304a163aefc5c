/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that makes memory for the pool ahead of its use, and gives it back: pages touched by several
 * threads, registered with the driver part by part.
 */
#ifndef PORTER_GROWTH_H
#define PORTER_GROWTH_H

#include <stdbool.h>

#include "base/driver.h"

/* Starts the thread; it does nothing before the first context. `changed` is called when figures have changed.
 */
bool growth_start(void (*changed)(void));

/* Memory is registered in this context, for all contexts. Only the first call counts. */
void growth_context(CUcontext context);

#endif
