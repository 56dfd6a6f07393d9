/* window.h - a long-lived handler that has several messages open
 *
 * WHAT   What handler_stream is to a work item (coprocess_ops): messages that
 *        were sent end later, the newest first, each after its time.
 * WHO    The scene; the calls are made by the thread that has the turn.
 * OWNS   Its places for messages, for ever.
 * FAILS  By turn_fault.
 */
#ifndef TESTS_SCHEDULES_WINDOW_H
#define TESTS_SCHEDULES_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/handlers/handler.h"

enum { WINDOW = 3 }; /* of each coprocess */

/* What a message is to the scene. */
struct window_scene {
    uint64_t (*begins)(struct delivery *d); /* until when it runs, mono ns */
    void (*ends)(struct delivery *d, struct outcome *out);
};

/* Nothing is open. At most that many are used at a time. */
const struct coprocess_ops *window_open(const struct window_scene *scene,
                                        unsigned coprocesses);
/* One waits with room for a message, and nobody has woken it. */
bool window_has_room(void);

#endif
