/* torture_feed.h - the producers of the torture program
 *
 * WHAT   Processes that keep the queue full of numbered messages, and runs of
 *        mqsend with the next message.
 * WHO    The driver.
 * OWNS   The processes; they exit with the driver.
 * FAILS  A producer that cannot send leaves its errno in the world; feed_ok
 *        reports that.
 */
#ifndef TESTS_CRASH_TORTURE_FEED_H
#define TESTS_CRASH_TORTURE_FEED_H

#include <stdbool.h>

#include "tests/crash/torture/torture.h"

/* Start the producers; they send at once unless a pause is on. */
void feed_start(struct torture_world *w, const char *queue);
/* Pause the producers. When feed_paused returns true, none of them sends. */
void feed_pause(struct torture_world *w);
bool feed_paused(struct torture_world *w);
void feed_resume(struct torture_world *w);
/* Return true if few numbers are left until the next audit. */
bool feed_spent(struct torture_world *w);
/* Return true if all producers live and can send. */
bool feed_ok(struct torture_world *w);
void feed_stop(struct torture_world *w);

/* Start mqsend as --path says; return its pid. */
pid_t feed_program(struct torture *t);
/* Check that the mqsend of feed_program sent its message or, if it was killed,
 * sent it or nothing. A message with a key is sent once more. `ended`: mqsend
 * was not killed. Return false after printing what is wrong. */
bool feed_program_over(struct torture *t, bool ended);

#endif
