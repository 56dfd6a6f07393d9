/* rate_text.h - a limit of deliveries per time, as one number
 *
 * WHAT   Converts "100/s,20" to a number that is set and read atomically, and
 *        back.
 * WHO    settings.c calls rate_parse and rate_print, for --rate on the main
 *        thread and for mqctl set in the loop. flow/limits.c uses and prints a
 *        rate on any thread.
 * OWNS   Nothing.
 * FAILS  A problem with status 64.
 */
#ifndef WORKER_CONFIG_RATE_TEXT_H
#define WORKER_CONFIG_RATE_TEXT_H

#include <stdint.h>

#include "common/base/problem.h"

#define RATE_OFF  0 /* no limit */
#define RATE_MOST 1000000
#define RATE_TEXT 32

/* Read N[/s|/m|/h][,BURST], or off, into a uint64_t (`call` of options.h).
 * Without BURST: what the rate allows in a tenth of a second, at least 1. */
int rate_parse(const char *text, void *into, struct problem *p);
const char *rate_print(uint64_t rate, char out[RATE_TEXT]);

/* Return the time between two deliveries, ns, rounded up. Do not call this, nor
 * rate_burst, with RATE_OFF. */
uint64_t rate_interval_ns(uint64_t rate);
uint64_t rate_burst(uint64_t rate);

#endif
