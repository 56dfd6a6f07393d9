/* environment.h - the variables a handler is given
 *
 * WHAT   The worker's own environment plus MQW_* of one delivery.
 * WHO    base_open: open of the handlers and of --on-dead, on the engine's
 *        thread. build: the thread that is about to start a handler, into a
 *        buffer of its own.
 * OWNS   Strings live in the struct; pointers are valid until the next build.
 * FAILS  environment_base_open: -ENOMEM.
 */
#ifndef WORKER_PROCESS_ENVIRONMENT_H
#define WORKER_PROCESS_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/rules/delivery.h"

#define ENVIRONMENT_VARS  (17 + HEADER_X_FIT)
#define ENVIRONMENT_BYTES (4096 + 2 * HEADER_MAX)

/* The variables of all deliveries: environ without MQW_*, then MQW_QUEUE and
 * MQW_MAX_ATTEMPTS. */
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
    char **vars; /* the base's and the delivery's, NULL-terminated */
    size_t at;   /* index of the delivery's first variable */
    size_t count, used;
    char text[ENVIRONMENT_BYTES];
};
/* Fill in the variables of a delivery; 0 or -ENOMEM. `e` starts zeroed and may
 * be filled in again. `max_attempts` may have changed since the base was made.
 * `letter` is the number of the dead letter that the delivery became; 0: none.
 */
int environment_build(struct environment *e, const struct environment_base *b,
                      struct delivery *d, uint64_t max_attempts,
                      int64_t letter);
void environment_close(struct environment *e);

/* Print "MQW_DELIVERY=<nonce>-<seq>". The processes of a delivery inherit this
 * variable, so recovery finds them in any process group or session. */
#define ENVIRONMENT_MARK 64
const char *environment_mark(uint64_t nonce, uint64_t seq,
                             char buf[ENVIRONMENT_MARK]);
/* Return true, and the mark's seq, if an environment has a mark with this
 * nonce. `env` is from proc_pid_environ(5), with another NUL at its end. */
bool environment_marked(const char *env, size_t size, uint64_t nonce,
                        uint64_t *seq);

#endif
