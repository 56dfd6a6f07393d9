/* rate_text.h - at most so many deliveries in so long, as one number
 *
 * WHAT   "100/s,20" to a number that is set and read at once, and back.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  A problem with status 64.
 */
#ifndef WORKER_CONFIG_RATE_TEXT_H
#define WORKER_CONFIG_RATE_TEXT_H

#include <stdint.h>

#include "common/base/problem.h"

#define RATE_OFF  0 /* the number of no rate */
#define RATE_MOST 1000000
#define RATE_TEXT 32

/* N[/s|/m|/h][,BURST], or off. Without BURST it is what comes in a tenth of a
 * second, 1 at least. */
int rate_parse(const char *text, uint64_t *out, struct problem *p);
const char *rate_print(uint64_t rate, char out[RATE_TEXT]);

/* Of one that is not RATE_OFF: ns between two deliveries, rounded up, and how
 * many may come at once. */
uint64_t rate_interval_ns(uint64_t rate);
uint64_t rate_burst(uint64_t rate);

#endif
