/* mqctl_view.h - all there is to know of one queue and its worker, at one
 * moment
 *
 * WHAT   Looks at the queue, the counters, the store and the control socket of
 *        one queue. Each part may be missing; then it says why.
 * WHO    One thread.
 * OWNS   What it holds, until view_close.
 * FAILS  view_open: a name that is none; a problem.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_VIEW_H
#define SCRIPTS_MQCTL_MQCTL_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/queue_name.h"
#include "common/state/counters.h"
#include "common/base/problem.h"
#include "common/mq/queue.h"
#include "common/state/statedir.h"
#include "common/store/store.h"

enum view_worker {
    VIEW_NEVER,  /* none has run here, as far as we can see */
    VIEW_ENDED,  /* in an orderly way */
    VIEW_KILLED, /* the last one died */
    VIEW_RUNS,
    VIEW_UNSEEN, /* we may not look from here */
};

struct view {
    char queue[QUEUE_NAME_MAX];
    /* ---- the queue ---- */
    bool has_queue;
    long depth, depth_max, message_size, bytes; /* -1: not known */
    struct problem no_queue;                    /* why not */
    /* ---- its worker ---- */
    struct statedir dir;
    bool has_folder;
    bool shut; /* there is a folder, and we may not look into it */
    struct counters *counters; /* NULL: none to read */
    struct problem no_counters;
    struct counters_header head;
    struct counters_sum sum;
    enum view_worker worker; /* as its lock says */
    pid_t pid;               /* of the one that runs, else of the last one */
    json_t *live; /* what the worker answered to `status`; NULL: nothing */
    struct problem no_live;
    /* ---- its store; -1: not known ---- */
    int64_t waiting, parked, dead, replayed; /* without what has a slot */
    struct problem no_store;
    /* ---- its custody; -1: not known ---- */
    int64_t custody; /* received and not finished */
    int64_t held;    /* of these, with no handler that runs */
    int64_t grouped; /* of the held: of an ordered group */
};

/* `ask`: also ask the worker itself. */
int view_open(struct view *v, const char *state_dir, const char *queue,
              bool ask, struct problem *p);
void view_close(struct view *v);

/* The folder of a queue, for one who looks: 69 there is none, 77 it is somebody
 * else's, 73 it is not to be trusted. 0 or -errno. */
int view_folder(struct statedir *out, const char *state_dir, const char *queue,
                struct problem *p);

/* "starting", "running", "paused", "breaker open", ..., "not running",
 * "killed", "not seen from here". */
const char *view_state(const struct view *v);
bool view_paused(const struct view *v);
/* Nothing is taken from the queue, as --max-waiting is reached. */
bool view_full(const struct view *v);
/* What the worker answered, else what it wrote. */
json_int_t view_number(const struct view *v, const char *name,
                       uint64_t otherwise);
unsigned view_cap(const struct view *v);
unsigned view_window(const struct view *v);
/* Messages that handlers may have at once: cap times window. */
unsigned view_capacity(const struct view *v);
uint64_t view_groups(const struct view *v);
/* Of these, those that wait until somebody deals with a dead letter. */
uint64_t view_groups_held(const struct view *v);
/* Messages that were received and are in no handler, for their turn, their time
 * or their group's head; -1: not known. */
int64_t view_waits(const struct view *v);
const char *view_breaker(const struct view *v); /* "closed" */
/* The object of mqctl status --json; the caller's. */
json_t *view_json(const struct view *v);
/* A quantile of handler times; no longer than the longest. */
uint64_t view_handler_ns(const struct view *v, const struct histogram_sum *h,
                         double q);
/* Open the store of a view to read; 0, or -errno with no_store set. */
int view_store(struct view *v, struct store **out);

#endif
