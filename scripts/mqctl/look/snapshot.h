/* snapshot.h - everything about one queue and its worker, at one moment
 *
 * WHAT   Reads the kernel queue, counters, custody and store of one queue, and
 *        asks its worker. Each part may be missing; then a problem says why.
 * WHO    status, doctor, metrics, top, explain and other verbs, on the only
 *        thread of the process; some of them in children of mqctl serve.
 * OWNS   The counters and the worker's answer, until snapshot_close.
 * FAILS  snapshot_open: a problem, if no queue can have that name.
 */
#ifndef SCRIPTS_MQCTL_LOOK_SNAPSHOT_H
#define SCRIPTS_MQCTL_LOOK_SNAPSHOT_H

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/term.h"
#include "common/mq/queue.h"
#include "common/state/counters.h"
#include "common/state/pause_note.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "common/store/store.h"

enum snapshot_worker {
    SNAPSHOT_NEVER,  /* no worker has run, or it left no trace */
    SNAPSHOT_ENDED,  /* the last worker stopped in an orderly way */
    SNAPSHOT_KILLED, /* the last worker was killed */
    SNAPSHOT_RUNS,
    SNAPSHOT_UNSEEN, /* its lock cannot be checked from here */
};

/* The rows of a store, except those whose message is in custody. */
struct snapshot_rows {
    int64_t waiting, parked, spooled, dead, replayed; /* -1: not known */
    struct store_ages ages; /* `due`: of the rows without a slot */
};

struct snapshot {
    char queue[QUEUE_NAME_MAX];
    bool broker;        /* the queue is on a broker, and so are its messages */
    const char *engine; /* "mq": in the kernel; "amqp": on a broker */
    /* ---- the queue ---- */
    bool has_queue;
    long depth, depth_max, message_size, bytes; /* -1: not known */
    struct problem no_queue;                    /* why not has_queue */
    /* ---- its worker ---- */
    struct statedir dir;
    bool has_folder;
    bool shut; /* there is a folder that this process may not look into */
    struct counters *counters; /* NULL: none to read */
    struct problem no_counters;
    int counters_err; /* -errno beside no_counters; -ENOENT: there are none */
    struct counters_header head;
    struct counters_sum sum;    /* since the worker started */
    struct counters_sum totals; /* of this run and all earlier ones */
    bool in_all; /* numbers of messages are of `totals`, not `sum` */
    enum snapshot_worker worker; /* as its lock says */
    enum worker_phase phase;     /* of a running worker that did not answer */
    bool stopped;                /* by a signal, such as ^Z */
    pid_t pid;                   /* of the running worker, or of the last one */
    json_t *live; /* what the worker answered to `status`; NULL: nothing */
    struct problem no_live;
    /* ---- its store; -1: not known ---- */
    struct snapshot_rows rows;
    struct problem no_store;
    int store_err; /* -errno beside no_store; -ENOENT: there is none */
    /* Wall times; 0: none, or unknown. */
    uint64_t held_since_ns; /* receipt of the oldest message that is held */
    /* How long the message that was received last had waited in the queue, ns,
     * as its header says; 0: unknown, or the queue is empty. */
    uint64_t queue_wait_ns;
    /* ---- its custody; -1: not known ---- */
    int64_t custody;           /* messages received and not finished */
    int64_t held;              /* messages in custody without a handler */
    int64_t grouped;           /* held messages of an ordered group */
    struct problem no_custody; /* why it cannot be read; status 0: it was, or
                                * there is none */
};

/* Return true if the error means that a file exists, but cannot be read. */
static inline bool snapshot_unread(int err)
{
    return err && err != -ENOENT;
}

/* Take a snapshot of a queue. `ask`: also ask its worker. */
int snapshot_open(struct snapshot *v, const char *state_dir, const char *queue,
                  bool ask, struct problem *p);
/* What the last snapshot of a queue found in its store; all 0 before the
 * first. */
struct snapshot_last {
    bool locked;            /* the caller has the lock: no worker is running */
    struct store_mark mark; /* made before the store was read */
    bool known;             /* the store was read, and nothing was in custody */
    bool idle;              /* no worker ran */
    struct snapshot_rows rows;
};
/* Do the same as snapshot_open, but do not open a store that has not changed
 * since the last snapshot: opening takes most of the time and, if root does it,
 * wakes the worker. */
int snapshot_again(struct snapshot *v, struct snapshot_last *last,
                   const char *state_dir, const char *queue, bool ask,
                   struct problem *p);
/* Read the same as snapshot_open, except the counts of messages, which take
 * long if there are many: they are -1. */
int snapshot_begin(struct snapshot *v, const char *state_dir, const char *queue,
                   bool ask, struct problem *p);
void snapshot_close(struct snapshot *v);

/* Copy the label of a queue: "/orders", or the operand of a queue on a broker
 * without its user. 0 or -errno. */
int snapshot_name(const char *text, char out[QUEUE_NAME_MAX],
                  struct problem *p);
/* Find the folder of a queue. Exit statuses: 69 there is none, 77 another user
 * owns it, 73 it is not to be trusted. 0 or -errno. */
int snapshot_folder(struct statedir *out, const char *state_dir,
                    const char *queue, struct problem *p);
/* Find the folder of a queue that the user named: like snapshot_folder, but
 * with exit status 66 if there is no such queue. */
int snapshot_named_folder(struct statedir *out, const char *state_dir,
                          const char *queue, struct problem *p);

/* Return the first of several state directories in which a queue has a folder;
 * the first of all if it has none. */
const char *snapshot_dir(const char *const *dirs, size_t count,
                         const char *queue);

enum worker_state snapshot_state(const struct snapshot *v);
const char *snapshot_state_text(const struct snapshot *v);
enum worker_severity snapshot_severity(const struct snapshot *v);
/* Return the table style of a state's text. */
enum term_colour snapshot_state_colour(const char *text);
/* Return why the worker takes no messages, from its answer or its counters;
 * NULL: it takes messages, or no worker is running. */
const char *snapshot_why(const struct snapshot *v);
/* Return true if the worker is starting or stopping, so that its files and its
 * socket may be missing. */
bool snapshot_changing(const struct snapshot *v);
bool snapshot_paused(const struct snapshot *v);
/* Return the pause in force, or the pause of the next worker; false if there is
 * none. */
bool snapshot_pause(const struct snapshot *v, struct pause_note *out);
/* Return true if --rate allows no more deliveries now. */
bool snapshot_rate_reached(const struct snapshot *v);
/* Return a text of the worker's answer; NULL: there is none. */
const char *snapshot_text(const struct snapshot *v, const char *name);
/* Return a setting of the running worker; NULL: not known. */
json_t *snapshot_setting(const struct snapshot *v, const char *name);
/* Return a number that the worker answered, else `otherwise`. */
json_int_t snapshot_number(const struct snapshot *v, const char *name,
                           uint64_t otherwise);
unsigned snapshot_cap(const struct snapshot *v);
unsigned snapshot_window(const struct snapshot *v);
/* Return the number of messages that handlers may have: cap times window. */
unsigned snapshot_capacity(const struct snapshot *v);
uint64_t snapshot_groups(const struct snapshot *v);
/* Return the number of groups that are held by a dead letter. */
uint64_t snapshot_groups_held(const struct snapshot *v);
/* Return the number of received messages without a handler: they wait for their
 * turn, their time or the head of their group. -1: not known. */
int64_t snapshot_waits(const struct snapshot *v);
const char *snapshot_breaker(const struct snapshot *v); /* "closed" */

/* The fields of a queue, in the order of mqctl status --json. */
enum snapshot_when {
    SNAPSHOT_ALWAYS,  /* even if no worker has ever run */
    SNAPSHOT_COUNTED, /* if there are counters, even without a worker */
    SNAPSHOT_RUNNING, /* only while a worker is running */
};
struct snapshot_field {
    const char *json; /* its name in JSON; NULL: not in JSON */
    enum snapshot_when when;
    int64_t number;            /* below 0: not known */
    const char *metric, *help; /* of mqctl metrics; NULL: no metric */
    const char *label;         /* the metric's label `state`; NULL: none */
    json_t *value;             /* JSON, if not the number */
};
#define SNAPSHOT_FIELDS 72 /* some at the end are all 0 */
struct snapshot_fields {
    struct snapshot_field at[SNAPSHOT_FIELDS];
};
/* Return the object of mqctl status --json, the caller's; NULL: no memory. */
json_t *snapshot_json(const struct snapshot *v);
/* Return all fields with the numbers of their metrics; a number below 0 is left
 * out. */
void snapshot_metrics(const struct snapshot *v, struct snapshot_fields *out);
/* Open the store of the queue to read it. Returns 0, -ENOENT if there is none,
 * or -errno, and sets no_store. */
int snapshot_store(struct snapshot *v, struct store **out);

#endif
