/* in_hand_limit.h - what stays in hand ends before the broker takes it back
 *
 * WHAT   Arithmetic on settings. With --partitions a message of a group that
 *        failed stays in hand, without an answer to the broker, which waits for
 *        30 minutes: all of its attempts, with the waits between them, take
 *        less than 20.
 * WHO    Any thread; settings may change meanwhile.
 * OWNS   Nothing.
 * FAILS  in_hand_limit_check: a problem with status 64.
 */
#ifndef WORKER_CONFIG_IN_HAND_LIMIT_H
#define WORKER_CONFIG_IN_HAND_LIMIT_H

#include "common/base/clock.h"
#include "worker/config/settings.h"

#define IN_HAND_LIMIT_NS (1200 * NS_PER_S)

/* The longest wait that a handler may ask for after so many failures; `b` is
 * the worker's backoff, here and below. */
uint64_t in_hand_limit_wait(const struct settings *s, const struct backoff *b,
                            uint32_t failures);
/* Whether all attempts fit: the waits between them, with all of --jitter, and
 * the longer one of --timeout and --max-timeout for each, if there is one. */
int in_hand_limit_check(const struct settings *s, const struct backoff *b,
                        struct problem *p);

#endif
