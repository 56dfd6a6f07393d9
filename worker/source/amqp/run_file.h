/* run_file.h - this machine's notes about the messages of a broker
 *
 * WHAT   A mapped file that survives a kill of the worker, but not a reboot. It
 *        says which handlers are running, so that the next worker terminates
 *        them and counts the crash; and which messages were settled here,
 *        because a broker without their acknowledgement delivers them again.
 * WHO    open, runs, crashed, close: the engine's thread. The others: claims.c,
 *        on the threads named below.
 * OWNS   The mapping.
 * FAILS  open: a problem. Nothing else fails.
 */
#ifndef WORKER_SOURCE_AMQP_RUN_FILE_H
#define WORKER_SOURCE_AMQP_RUN_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "common/base/ulid.h"
#include "worker/source/source.h"

#define RUN_SLOTS BROKER_LENT

struct run_file; /* opaque; body in run_file.c */

/* The key of one copy of a message: each copy that a worker publishes has a key
 * of its own. */
struct run_key {
    struct ulid id; /* mixed with its line (claims.h), or a hash of its body */
    uint32_t attempt; /* failures before it */
    uint16_t replay;  /* number of its replays as a dead letter */
    uint16_t hop;     /* number of queues that it has waited in */
};
/* Return true for the key of a copy, false for that of an original. */
static inline bool run_key_copy(const struct run_key *key)
{
    return key->attempt || key->replay || key->hop;
}
static inline bool run_key_equal(const struct run_key *a,
                                 const struct run_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Open or create the file. *nonce is the same for all its owners. The owner
 * numbers its messages from *first + 1 up, which no other owner does. */
int run_file_open(struct run_file **out, const char *path, uint64_t *nonce,
                  uint64_t *first, struct problem *p);
void run_file_close(struct run_file **file); /* NULL-safe; sets NULL */

/* ---- a handler: called by the thread that has the message ---- */

void run_file_run(struct run_file *f, unsigned index, const struct run_key *key,
                  uint64_t seq);
void run_file_handler(struct run_file *f, unsigned index, uint64_t mark,
                      uint64_t start, pid_t group);
void run_file_unrun(struct run_file *f, unsigned index);

/* ---- at start ---- */

/* Visit each handler that was running when the worker was killed. */
void run_file_runs(const struct run_file *f,
                   void (*visit)(void *arg, const struct source_run *run),
                   void *arg);
/* Count a crash for the message of each such handler, after the handlers were
 * terminated. Returns their number. */
unsigned run_file_crashed(struct run_file *f);

/* ---- under the mutex of the claims ---- */

/* Return how often a worker of this machine was killed while a handler had this
 * message. *alone: no other handler was running the last time. */
uint32_t run_file_crashes(const struct run_file *f, const struct run_key *key,
                          bool *alone);
/* Note that a message is settled, so that it does not run here again, and
 * forget its crashes. The file keeps the last 65,536 notes. */
void run_file_settled(struct run_file *f, const struct run_key *key);
bool run_file_was_settled(const struct run_file *f, const struct run_key *key);

#endif
