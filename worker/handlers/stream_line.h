/* stream_line.h - the lines between the worker and a long-lived handler
 *
 * WHAT   Writes the head of a message and reads an answer, as docs/handlers.md
 *        says:
 *          MSG <id> <bytes> attempt=<n> priority=<n> [group=<key>]
 *              [redelivered=1] [length-inferred=1] [x-name=value...]
 *          OK <id>
 *          RETRY <id> [delay=<dur>] [reason...]
 *          DEAD <id> [reason...]
 *          DISCARD <id>
 *        In a group's key and the value of an x- line, each byte that is not
 *        printable ASCII, and ' ', '%' and '=', is written as %XX. So a head is
 *        one line of ASCII, its words are separated by spaces, and a word has
 *        one '=' at most. Bytes beyond ASCII are escaped as well, because some
 *        languages also split words at the spaces of Unicode.
 * WHO    coprocess.c, on the pool thread that has the child. Pure functions.
 * OWNS   Nothing; names in an answer point into the line.
 * FAILS  stream_answer_parse: -EBADMSG.
 */
#ifndef WORKER_HANDLERS_STREAM_LINE_H
#define WORKER_HANDLERS_STREAM_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/rules/delivery.h"

#define STREAM_HEAD   4096 /* longest head */
#define STREAM_ANSWER 8192 /* longest answer with its newline */

/* Write the head of a message with its newline. Returns its length in bytes. */
size_t stream_head(char buf[STREAM_HEAD], struct delivery *d);

struct stream_answer {
    enum mqw_verdict verdict;
    struct header_text id; /* unchecked */
    bool delayed;          /* a retry with a delay of its own */
    uint64_t delay_ns;
    struct header_text reason; /* as it was written; may be empty */
};
/* Read one line, without its newline. */
int stream_answer_parse(const char *line, size_t size,
                        struct stream_answer *out);
/* Write the reason for an outcome: one line of printable UTF-8, cut if it is
 * too long; the name of the verdict if no reason was given. */
void stream_answer_error(const struct stream_answer *a,
                         char error[OUTCOME_ERROR]);

#endif
