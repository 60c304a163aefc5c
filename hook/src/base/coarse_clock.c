/* SPDX-License-Identifier: Apache-2.0 */
#include "base/coarse_clock.h"

_Atomic uint32_t coarse_clock;
