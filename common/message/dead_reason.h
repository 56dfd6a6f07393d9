/* dead_reason.h - why a message is a dead letter
 *
 * WHAT   The reasons, and their names.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_MESSAGE_DEAD_REASON_H
#define COMMON_MESSAGE_DEAD_REASON_H

/* The store keeps the numbers: a new one goes before the last. */
enum dead_reason {
    REASON_NONE,
    REASON_EXHAUSTED,
    REASON_REJECTED,
    REASON_EXPIRED,
    REASON_CRASHED,
    REASON_BAD_HEADER,
    REASON_GROUP_CLOSED, /* it never held its group */
    REASON_COUNT,
};

const char *dead_reason_text(enum dead_reason reason); /* "bad-header" */
/* REASON_COUNT if it is none; "none" is no reason. */
enum dead_reason dead_reason_parse(const char *text);

#endif
