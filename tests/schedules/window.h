/* window.h - a long-lived handler that has several messages open
 *
 * WHAT   Takes the place of handler_stream for a work item (coprocess_ops).
 *        Sent messages finish later, the newest first, each after its time.
 * WHO    The scene; the calls are made by the thread that has the turn.
 * OWNS   The list of open messages.
 * FAILS  By turn_fault.
 */
#ifndef TESTS_SCHEDULES_WINDOW_H
#define TESTS_SCHEDULES_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/handlers/handler.h"

enum { WINDOW = 3 }; /* open messages of a coprocess */

/* Functions of the scene. */
struct window_scene {
    uint64_t (*begins)(struct delivery *d); /* return when it finishes,
                                             * monotonic ns */
    void (*ends)(struct delivery *d, struct outcome *out);
};

/* Start with nothing open. More than `coprocesses` in use are a fault. */
const struct coprocess_ops *window_open(const struct window_scene *scene,
                                        unsigned coprocesses);
/* Return true if a coprocess waits with room for a message and was not
 * woken. */
bool window_has_room(void);

#endif
