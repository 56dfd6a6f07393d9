/* environment.h - the variables a handler is given
 *
 * WHAT   The worker's own environment plus MQW_* of one delivery.
 * WHO    base_open: once, before threads start. Building: any thread, each into
 *        a buffer of its own.
 * OWNS   Strings live in the struct; pointers are valid until it is built anew.
 * FAILS  environment_base_open: -ENOMEM.
 */
#ifndef WORKER_PROCESS_ENVIRONMENT_H
#define WORKER_PROCESS_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/rules/delivery.h"

#define ENVIRONMENT_VARS  (17 + HEADER_X_MAX)
#define ENVIRONMENT_BYTES (4096 + 2 * HEADER_MAX)

/* Of all deliveries: environ without MQW_*, then what is the same for them all;
 * the last one is MQW_MAX_ATTEMPTS. */
struct environment_base {
    char **vars; /* NULL-terminated; the strings of environ and our own */
    size_t count;
    char queue[300], max_attempts[40];
    uint64_t nonce;
};
int environment_base_open(struct environment_base *b, const char *queue,
                          uint64_t max_attempts, uint64_t nonce);
void environment_base_close(struct environment_base *b);

struct environment {
    char **vars; /* base's vars and ours, NULL-terminated; own allocation */
    size_t at;   /* first of ours */
    size_t count, used;
    char text[ENVIRONMENT_BYTES];
};
/* 0 or -ENOMEM; `e` starts zeroed and is reused. `max_attempts` as it is now:
 * it may have been another when the base was made. */
int environment_build(struct environment *e, const struct environment_base *b,
                      struct delivery *d, uint64_t max_attempts);
/* MQW_LETTER besides, once it is built. */
void environment_letter(struct environment *e, int64_t letter);
void environment_close(struct environment *e);

/* "MQW_DELIVERY=<nonce>-<seq>": marks every process of one delivery, so that
 * recovery finds it wherever it went. `buf` at least 64 bytes. */
#define ENVIRONMENT_MARK 64
const char *environment_mark(uint64_t nonce, uint64_t seq,
                             char buf[ENVIRONMENT_MARK]);
/* Whether an environment as proc_pid_environ(5) shows it (NUL-terminated
 * besides) carries a mark with this nonce; its seq. */
bool environment_marked(const char *env, size_t size, uint64_t nonce,
                        uint64_t *seq);

#endif
