/* json_line.h - JSON, an object a line
 *
 * WHAT   Prints an object on one line that no terminal can be tricked by; makes
 *        the values that many objects have.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  -ENOMEM; NULL for a value that could not be made, which jansson
 *        refuses to put into an object.
 */
#ifndef COMMON_TEXT_JSON_LINE_H
#define COMMON_TEXT_JSON_LINE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Takes over `object`, also when it fails. NULL: it could not be made. */
int json_print_line(json_t *object, FILE *out);

/* A number that may be unknown: null below 0. */
json_t *json_known(int64_t value);
/* A time as text; 0, which has not come: null. */
json_t *json_time(uint64_t wall_ns);

#endif
