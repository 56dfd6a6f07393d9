/* json_line.h - JSON, one object a line
 *
 * WHAT   Prints an object on one line that cannot trick a terminal; makes the
 *        values that many objects have.
 * WHO    The programs mqsend, mqdlq and mqctl, in their only thread.
 * FAILS  -ENOMEM; NULL for a value without memory, which jansson refuses to put
 *        into an object.
 */
#ifndef COMMON_CLI_JSON_LINE_H
#define COMMON_CLI_JSON_LINE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/process_stat.h"

/* Call first in main, in a program without threads that reads JSON: if jansson
 * gets no memory, the program prints an error and exits with EX_OSERR, instead
 * of using a text that lacks bytes. */
void json_needs_memory(void);

/* Print and release `object`, which is NULL if it could not be made. */
int json_print_line(json_t *object, FILE *out);

/* Return a text of an object; NULL: it has none of that name. */
static inline const char *json_text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}
/* Make a number, or null for a number below 0, which is unknown. */
json_t *json_known(int64_t value);
#define JSON_TEXT 24
/* Return a string, or print a whole number to `buf`; NULL for other values. */
const char *json_as_text(const json_t *value, char buf[JSON_TEXT]);
/* Make a string of a text that need not be UTF-8, such as a queue's name. JSON
 * has only UTF-8, so \xNN stands for each other byte. */
json_t *json_printable(const char *text);
/* Make a time as text; null for 0. */
json_t *json_time(uint64_t wall_ns);
/* Add untrusted bytes as NAME: a string if they can be one, else base64 as
 * NAME_base64; null for `data` NULL. Returns 0 or -ENOMEM. */
int json_put_bytes(json_t *object, const char *name, const void *data,
                   size_t size);
/* Add a time for people as NAME, and in ns as NAME_ns; null and 0 if unknown.
 * Returns 0 or -ENOMEM. */
int json_put_time(json_t *object, const char *name, uint64_t wall_ns);
/* Add what a handler used: cpu_seconds, a number, and peak_memory_bytes; null
 * if unknown. Returns 0 or -ENOMEM. */
int json_put_usage(json_t *object, const struct usage *usage);

/* Encode bytes in base64 (RFC 4648, section 4, with padding). The caller frees
 * the text. NULL: no memory. */
char *base64_encode(const void *data, size_t size);
/* Decode base64. The caller frees the bytes; a NUL follows them. NULL: errno is
 * ENOMEM, or EINVAL if the text is not base64. */
void *base64_decode(const char *text, size_t size, size_t *out_size);

#endif
