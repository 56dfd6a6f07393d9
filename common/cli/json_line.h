/* json_line.h - JSON, an object a line
 *
 * WHAT   Prints an object on one line that no terminal can be tricked by; makes
 *        the values that many objects have.
 * WHO    One thread.
 * FAILS  -ENOMEM; NULL for a value that could not be made, which jansson
 *        refuses to put into an object.
 */
#ifndef COMMON_CLI_JSON_LINE_H
#define COMMON_CLI_JSON_LINE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* For a program without threads that reads JSON, first of all in main: where
 * jansson gets no memory from here on, the program ends, with a line and
 * EX_OSERR, instead of using a text that lacks bytes. */
void json_needs_memory(void);

/* Takes over `object`, also when it fails. NULL: it could not be made. */
int json_print_line(json_t *object, FILE *out);

/* A number that may be unknown: null below 0. */
json_t *json_known(int64_t value);
#define JSON_TEXT 24
/* The text of a string, or of a whole number, in `buf`; NULL: it is neither. */
const char *json_as_text(const json_t *value, char buf[JSON_TEXT]);
/* A text that a queue's name may be in. Where that is no UTF-8, what people are
 * shown, with \xNN: JSON has no other text, and no queue is without a name. */
json_t *json_printable(const char *text);
/* A time as text; 0, which has not come: null. */
json_t *json_time(uint64_t wall_ns);
/* Untrusted bytes as field NAME: a string where they can be one, else base64 as
 * NAME_base64; null for `data` NULL. 0 or -ENOMEM. */
int json_put_bytes(json_t *object, const char *name, const void *data,
                   size_t size);
/* A time for people as NAME, and exact as NAME_ns; 0, which is not known: null
 * and 0. 0 or -ENOMEM. */
int json_put_time(json_t *object, const char *name, uint64_t wall_ns);

/* Encode bytes in base64 (RFC 4648, section 4, with padding). The caller frees
 * the text. NULL: no memory. */
char *base64_encode(const void *data, size_t size);
/* Decode base64. The caller frees the bytes; a NUL follows them. NULL: errno is
 * ENOMEM, or EINVAL if the text is not base64. */
void *base64_decode(const char *text, size_t size, size_t *out_size);

#endif
