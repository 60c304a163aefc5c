/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/orders.h"

#include <unistd.h>

/* Made by the linker: REGISTER_ORDERS of all files; NULL without any. */
extern const struct order_handler *const __start_convgpu_orders[] __attribute__((weak, visibility("hidden")));
extern const struct order_handler *const __stop_convgpu_orders[] __attribute__((weak, visibility("hidden")));

bool orders_welcome(uint32_t page_flags) {
    const struct order_handler *const *handler = __start_convgpu_orders;
    return handler == __stop_convgpu_orders || (*handler)->welcomed(page_flags);
}

bool orders_is_one(const struct convgpu_header *header) {
    return header->id >= CONVGPU_ORDER_ID && header->kind >= CONVGPU_CARRIER && header->kind <= CONVGPU_WATCH;
}

bool orders_is_of_able(enum convgpu_kind kind) {
    return (kind > CONVGPU_ABLE && kind <= CONVGPU_STATE) || kind == CONVGPU_IDLE;
}

bool orders_carry_out(uint16_t kind, const void *body, int descriptor) {
    const struct order_handler *const *handler = __start_convgpu_orders;
    if (handler < __stop_convgpu_orders)
        return (*handler)->ordered((enum convgpu_kind)kind, body, descriptor);
    if (descriptor >= 0) close(descriptor);
    return false;
}
