/* mqctl_move.h - a move of one POSIX queue to a broker, and its parts
 *
 * WHAT   Messages are put to the broker in batches; a batch that the broker has
 *        confirmed is taken away here.
 * WHO    move_run, one thread, which has the lock of the queue's folder.
 * OWNS   The publisher, and the properties of one batch.
 * FAILS  A problem; what was not confirmed stays where it was.
 */
#ifndef SCRIPTS_MQCTL_AMQP_MQCTL_MOVE_H
#define SCRIPTS_MQCTL_AMQP_MQCTL_MOVE_H

#include "common/amqp/envelope_made.h"
#include "common/amqp/publisher.h"
#include "common/broker/broker_password.h"
#include "common/store/store.h"
#include "common/text/term_progress.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/mqctl_snapshot.h"

#define MOVE_BATCH 64

enum move_from {
    MOVE_CUSTODY, /* an earlier move had it when it was killed */
    MOVE_SPOOL,
    MOVE_QUEUE,
    MOVE_WAITING,
    MOVE_LETTERS,
    MOVE_FROM_COUNT
};

struct move {
    const struct options *o;
    struct broker_operand to;
    char password[BROKER_PASSWORD];
    struct topology topology;
    struct publisher *publisher;
    unsigned declared; /* bits of wait queues that are there */
    char machine[65];
    struct snapshot v; /* of the queue, before it began */
    struct statedir dir;
    struct store *store; /* NULL: there is none */
    struct envelope_made batch[MOVE_BATCH];
    size_t count; /* of the batch */
    uint64_t moved[MOVE_FROM_COUNT], total;
    uint64_t over;    /* replays whose letter is settled: they are not sent */
    uint64_t own;     /* had a backoff, attempts or a key of their own */
    uint64_t grouped; /* letters of groups, which stay */
    struct term_progress bar;
};

/* One message. */
struct move_message {
    struct ulid id;
    uint32_t priority;
    const void *data; /* with its header */
    size_t size;
    uint64_t attempt, first_ns;
    uint64_t due_ns;                /* wall; 0: as its header says */
    bool doubt;                     /* it may have run, or was sent already */
    int64_t row;                    /* its attempts are there; 0: it has none */
    const struct store_row *letter; /* as which it died; NULL: it is none */
};
/* Why a message of a group stays: -ENOTSUP. */
int move_grouped(const struct move *m, const struct move_message *msg,
                 struct problem *p);
/* 0; -ENOTSUP: it is of a group, and has not been put. */
int move_put(struct move *m, const struct move_message *msg, struct problem *p);
/* All of the batch is on the broker. */
int move_flush(struct move *m, enum move_from from, struct problem *p);

/* What is in the kernel's queue, and in custody. */
int move_queue(struct move *m, struct problem *p);
/* What waits in the spool; for its time; dead letters. */
int move_spool(struct move *m, struct problem *p);
int move_waiting(struct move *m, struct problem *p);
int move_letters(struct move *m, struct problem *p);

#endif
