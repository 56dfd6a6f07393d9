/* queue_name.h - the name of a queue
 *
 * WHAT   Checks a name as mq_overview(7) has it, and gives it its slash.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  A problem with status 64.
 */
#ifndef COMMON_BASE_QUEUE_NAME_H
#define COMMON_BASE_QUEUE_NAME_H

#include "common/base/problem.h"

#define QUEUE_NAME_MAX  256 /* "/", up to 254 bytes, NUL */
#define QUEUE_NAME_SAFE 100 /* of one in a sentence, so that the rest fits */

/* "/orders" or "orders" to "/orders" in `out`. Refuses an empty name, "." and
 * "..", a second slash, control bytes, over 254 bytes. */
int queue_name(const char *text, char out[QUEUE_NAME_MAX], struct problem *p);

#endif
