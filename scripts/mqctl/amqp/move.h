/* move.h - a move of one POSIX queue to a broker, and its parts
 *
 * WHAT   What is in the kernel's queue goes to the spool, on the disk. From
 *        there, and from the other tables of the store, messages go to the
 *        broker in batches:
 *          1. marked as redelivered, in one commit, but for what has expired
 *             and so does not run, which a mark would let it;
 *          2. sent, as they were marked before that commit;
 *          3. confirmed;
 *          4. removed here, in one commit.
 *        Crash before 1: they are here, as they were. From 1 on: they are here,
 *        and maybe there; the next move sends them again, marked and with the
 *        same ids, or a worker of the queue runs them, marked.
 * WHO    move_run, one thread, which has the lock of the queue's folder.
 * OWNS   The publisher, and the properties of one batch.
 * FAILS  A problem; messages that were not confirmed stay where they were.
 */
#ifndef SCRIPTS_MQCTL_AMQP_MOVE_H
#define SCRIPTS_MQCTL_AMQP_MOVE_H

#include "common/amqp/envelope.h"
#include "common/amqp/publisher.h"
#include "common/amqp/topology.h"
#include "common/broker/broker_operand.h"
#include "common/cli/term.h"
#include "common/store/store.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"

#define MOVE_BATCH 64

enum move_from {
    MOVE_QUEUE, /* and its spool */
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
    /* Of each part, bits of wait queues that are there. */
    unsigned declared[PARTITIONS_MAX];
    unsigned next; /* part, of the next message */
    char machine[65];
    struct snapshot v; /* of the queue, before it began */
    struct statedir dir;
    struct store *store;
    uint64_t commits; /* of the store, that its last worker had made */
    uint64_t
        doubt; /* what came to the spool up to this sequence may have run */
    struct envelope_made batch[MOVE_BATCH];
    size_t count; /* of the batch */
    uint64_t moved[MOVE_FROM_COUNT], total;
    uint64_t over;      /* replays whose letter is settled: they are not sent */
    uint64_t cancelled; /* by an operator: they are not sent */
    uint64_t repeats;   /* of a key: the first is sent */
    uint64_t inferred;  /* a kill came before their length was known */
    uint64_t own;       /* had a backoff, attempts or a key of their own */
    uint64_t grouped;   /* letters of groups, which stay */
    uint64_t untold;    /* letters that --on-dead is to be told of: they stay */
    int64_t elsewhere;  /* letters that were sent again, but not to here */
    struct term_progress bar;
};

/* One message. */
struct move_message {
    struct ulid id;
    uint32_t priority;
    const void *data; /* with its header */
    size_t size;
    int64_t at; /* its row, or its key in the spool: for ever */
    uint64_t received_ns;
    uint64_t attempt, first_ns;
    uint64_t due_ns;                /* wall; 0: as its header says */
    bool stored;                    /* as of move_read */
    bool doubt;                     /* it may have run, or was sent already */
    int64_t row;                    /* its attempts are there; 0: it has none */
    const struct store_row *letter; /* as which it died; NULL: it is none */
};
/* What a message says, as its worker would read it. */
struct move_said {
    struct header h;      /* all 0: it has none, or a broken one */
    char why[HEADER_WHY]; /* what is broken; "": nothing */
    bool grouped, expired;
};
/* `stored`: it was not in the queue last, but in a table of the store. */
void move_read(const struct move *m, const void *data, size_t size, bool stored,
               struct move_said *out);
/* Why a message of a group stays: -ENOTSUP. */
int move_grouped(const struct move *m, const struct ulid *id,
                 struct problem *p);
int move_put(struct move *m, const struct move_message *msg, struct problem *p);
/* All of the batch is on the broker. */
int move_flush(struct move *m, enum move_from from, struct problem *p);

/* mqctl move: the exit status. */
int move_broker_run(const struct options *o);

/* The way from the kernel's queue to the spool. */
struct intake; /* opaque; body in move_intake.c */
/* With the folder locked; m->store is opened, too. Messages that an earlier
 * move left in custody are in the spool then. */
int intake_open(struct intake **out, struct move *m, struct problem *p);
/* Some of what is in the queue; how many, 0: it was empty. Or -errno. */
int intake_some(struct intake *in, struct problem *p);
void intake_close(struct intake **intake); /* NULL-safe; sets NULL */

/* All of the spool; of what waits for its time; of dead letters. */
int move_spool(struct move *m, struct problem *p);
int move_waiting(struct move *m, struct problem *p);
int move_letters(struct move *m, struct problem *p);

#endif
