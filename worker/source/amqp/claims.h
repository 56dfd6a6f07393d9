/* claims.h - the messages that a worker has from a broker
 *
 * WHAT   Keeps each message from its arrival to its end: lends it, holds it
 *        until its time, gives the outbox what follows from its verdict, and
 *        the inbox its acknowledgement. The claim of a message is its tag on
 *        the inbox's connection, and gone with that.
 * WHO    Any thread, but: arrived, place, due, begin, void, acks, take_back:
 *        the inbox. job_next, job_back, jobs_again, confirmed: the outbox. Of
 *        one lane the calls come from one thread at a time.
 * OWNS   Each message, from claims_arrived to its end.
 * FAILS  open: -errno. take, settle: as source.h says.
 *
 * A message is on one list at a time: incoming, arrived, held, lent, or due; or
 * it is with a lane, which may read it until its next call, or with nobody.
 * While it is lent, or a hop, it can be a job of the outbox, too.
 */
#ifndef WORKER_SOURCE_AMQP_CLAIMS_H
#define WORKER_SOURCE_AMQP_CLAIMS_H

#include "worker/source/amqp/amqp_message.h"

struct claims; /* opaque; body in claims.c */

int claims_open(struct claims **out, struct amqp_queue *queue);
void claims_close(struct claims **claims); /* NULL-safe; sets NULL */

/* ---- for the flow: operations of source.h ---- */

int claims_take(struct source *s, unsigned lane, uint64_t wall_ns,
                struct message **out);
int claims_take_due(struct source *s, unsigned lane, struct message **out);
int claims_settle(struct source *s, struct settle *list, size_t n);
void claims_release(struct source *s, struct message *m);
void claims_lane_rest(struct source *s, unsigned lane);
int claims_poll_fd(const struct source *s);
/* Numbers of messages; a snapshot. */
struct claims_counts {
    unsigned room;      /* may be lent in addition */
    unsigned arrived;   /* may be taken */
    unsigned held;      /* wait for their time */
    unsigned jobs;      /* verdicts on their way */
    bool starved;       /* none waits in hand, and fewer run than may */
    uint64_t oldest_ns; /* arrival of the first to be taken; 0: none is */
};
struct claims_counts claims_count(struct claims *c);
void claims_parts(struct source *s,
                  void (*visit)(void *arg, const struct source_part *part),
                  void *arg);
/* Return true if nothing came since the last call that found nothing either,
 * and no head of a group waits. */
bool claims_still_idle(struct claims *c);
void claims_clock_set(struct source *s);
/* Wait until no verdict is on its way, `limit_ns` at most. How many are. */
unsigned claims_drain(struct claims *c, uint64_t limit_ns);

/* ---- for the inbox ---- */

/* Accept a message that has all its bytes. It is placed by the next
 * claims_place. */
void claims_arrived(struct claims *c, struct amqp_message *m, bool redelivered);
/* Decide for all messages that have arrived where they are from here on. */
void claims_place(struct claims *c);
/* Let messages be taken whose time has come. How long until the next one;
 * UINT64_MAX: none. */
uint64_t claims_due(struct claims *c);
/* A new connection: claims on it are good from here on. */
void claims_begin(struct claims *c);
/* The connection is gone: forget messages that were not lent, and mark the lent
 * ones as stale. Returns true if there has been no good connection since the
 * last call. */
bool claims_void(struct claims *c);
/* Take the tags to acknowledge: *n, to be freed. `starved` as above. */
uint64_t *claims_acks(struct claims *c, size_t *n, bool *starved);
/* Take back what waits in hand: its tags, to be freed; NULL: nothing. */
uint64_t *claims_take_back(struct claims *c, size_t *n);
/* As much as this may be in hand from now on; 0: nothing is consumed. */
void claims_fetched(struct claims *c, unsigned n);

/* ---- for the outbox ---- */

/* The next job, off its list; NULL: none. */
struct amqp_job *claims_job_next(struct claims *c);
/* Put a job back in front of the others. */
void claims_job_back(struct claims *c, struct amqp_job *j);
/* Put all jobs of a lost connection back in front, in order. */
void claims_jobs_again(struct claims *c, struct confirms *confirms);
/* The broker has what follows from a verdict. */
void claims_confirmed(struct claims *c, struct amqp_job *j);
/* What the copy of a message says. */
void claims_change(const struct claims *c, const struct amqp_job *j,
                   struct envelope_change *out,
                   struct envelope_attempt *attempt);

#endif
