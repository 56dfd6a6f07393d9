/* ulid.h - message ids: 48 bits of milliseconds, 80 random bits
 *
 * WHAT   Makes, reads and prints ULIDs (github.com/ulid/spec): 26 characters
 *        of Crockford base32, sorted by time.
 * WHO    Any thread. ulid_make gives growing ids inside one thread.
 * FAILS  ulid_parse: -EINVAL. The others never.
 */
#ifndef COMMON_BASE_ULID_H
#define COMMON_BASE_ULID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ULID_TEXT 27 /* 26 characters and the NUL */

struct ulid {
    uint8_t bytes[16]; /* big-endian, as in the spec */
};

/* Make an id for the wall time `wall_ns`. Takes no system call: a thread seeds
 * the random part once from getrandom(2) and then counts up; a child of fork
 * seeds its own, so that it does not repeat the ids of its parent. */
struct ulid ulid_make(uint64_t wall_ns);
/* Parse exactly 26 bytes of text, in either case, the first at most '7'. */
int ulid_parse(const char *text, size_t size, struct ulid *out);
const char *ulid_print(struct ulid id, char buf[ULID_TEXT]);
/* Return true if all bytes are 0: the message has no id yet. */
bool ulid_is_none(const struct ulid *id);

#endif
