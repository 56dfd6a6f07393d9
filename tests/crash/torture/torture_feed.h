/* torture_feed.h - the producers of the torture program
 *
 * WHAT   Processes that keep the queue full with numbered messages; mqsend with
 *        the next one.
 * WHO    The driver.
 * OWNS   The processes; they end with the driver.
 * FAILS  A producer that cannot send leaves its errno in the world; feed_ok
 *        asks.
 */
#ifndef TESTS_CRASH_TORTURE_FEED_H
#define TESTS_CRASH_TORTURE_FEED_H

#include <stdbool.h>

#include "tests/crash/torture/torture.h"

/* They begin at once, unless a pause is on. */
void feed_start(struct torture_world *w, const char *queue);
/* No more is sent once feed_paused, and nobody has the queue open for long. */
void feed_pause(struct torture_world *w);
bool feed_paused(struct torture_world *w);
void feed_resume(struct torture_world *w);
/* Hardly any numbers are left until the next audit. */
bool feed_spent(struct torture_world *w);
/* All of them live, and can send. */
bool feed_ok(struct torture_world *w);
void feed_stop(struct torture_world *w);

/* mqsend, as --path says; its pid ... */
pid_t feed_program(struct torture *t);
/* ... which `ended`, or was killed: the message is in the queue or it was never
 * sent, and one with a key was sent once more. False: not so; that was told. */
bool feed_program_over(struct torture *t, bool ended);

#endif
