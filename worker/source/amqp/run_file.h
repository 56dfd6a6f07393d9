/* run_file.h - what this machine knows of a broker's messages
 *
 * WHAT   A mapped file that outlives a kill of the worker, not the machine:
 *        which handlers run, so that the next worker ends them and counts the
 *        crash; and which messages were settled here, as a broker that lost
 *        the word of it gives them once more.
 * WHO    open, runs, crashed, close: the engine's thread. The rest: as said.
 * OWNS   The mapping.
 * FAILS  open: a problem. After it nothing fails.
 */
#ifndef WORKER_SOURCE_AMQP_RUN_FILE_H
#define WORKER_SOURCE_AMQP_RUN_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "common/base/ulid.h"
#include "worker/source/source.h"

#define RUN_SLOTS BROKER_LENT

struct run_file; /* opaque; body in run_file.c */

/* A message, and which copy of it: each that a worker publishes has another
 * key. */
struct run_key {
    struct ulid id;   /* mixed with what tells those of one id apart */
    uint32_t attempt; /* failures before it */
    uint16_t replay;  /* how often it came back as a letter */
    uint16_t hop;     /* how many queues it has waited in */
};

static inline bool run_key_copy(const struct run_key *key)
{
    return key->attempt || key->replay || key->hop;
}

int run_file_open(struct run_file **out, const char *path, struct problem *p);
void run_file_close(struct run_file **file); /* NULL-safe; sets NULL */
uint64_t run_file_nonce(const struct run_file *f);
/* The numbers of messages begin above this: no owner uses one again. */
uint64_t run_file_first(const struct run_file *f);

/* ---- a handler; the thread that has the message of that index ---- */

void run_file_run(struct run_file *f, unsigned index, const struct run_key *key,
                  uint64_t seq);
void run_file_handler(struct run_file *f, unsigned index, uint64_t mark,
                      uint64_t start);
void run_file_group(struct run_file *f, unsigned index, pid_t group);
void run_file_unrun(struct run_file *f, unsigned index);

/* ---- at start ---- */

/* Each handler that a kill cut off. */
void run_file_runs(const struct run_file *f,
                   void (*visit)(void *arg, const struct source_run *run),
                   void *arg);
/* They are ended: each is a crash of its message. How many. */
unsigned run_file_crashed(struct run_file *f);

/* ---- under the source's lock ---- */

/* How often a worker of this machine died while a handler had this message, and
 * whether nothing ran beside it the last time. */
uint32_t run_file_crashes(const struct run_file *f, const struct run_key *key,
                          bool *alone);
/* The broker has what follows from its verdict, or nothing follows: it does not
 * run here again, and its crashes are forgotten. Of these the file has the last
 * 65,536. */
void run_file_settled(struct run_file *f, const struct run_key *key);
bool run_file_was_settled(const struct run_file *f, const struct run_key *key);

#endif
