/* messages.h - every message of a queue that was received and is unfinished
 *
 * WHAT   Lists custody and store as one: first running messages, then others in
 *        slots, due, spooled, delayed and parked ones. A list can be continued
 *        after any message. Works with and without a worker.
 * WHO    list, groups, group, run-now and cancel, on the only thread of the
 *        process; some of them in children of mqctl serve.
 * OWNS   The store, and a copy of each slot.
 * FAILS  messages_open: an exit status, after an error on stderr.
 *        messages_each: -errno, or what `visit` returned.
 */
#ifndef SCRIPTS_MQCTL_LOOK_MESSAGES_H
#define SCRIPTS_MQCTL_LOOK_MESSAGES_H

#include <jansson.h>

#include "common/base/safe_text.h"
#include "common/custody/custody.h"
#include "common/state/statedir.h"
#include "common/store/waiting.h"
#include "scripts/mqctl/mqctl.h"

/* A message in a slot, copied. */
struct slot_seen {
    enum waiting_state state;
    struct custody_seen c;  /* its pointers into the message are invalid */
    char *data;             /* the header, and up to filter.body_most bytes */
    size_t body_size, size; /* of the body: copied, and whole */
    char last_stderr[ERROR_TEXT]; /* of a running message; "": none */
};

/* Return true if the slot `a` comes before `b` in the order of their group. */
static inline bool slot_is_before(const struct slot_seen *a,
                                  const struct slot_seen *b)
{
    return a->c.priority != b->c.priority ? a->c.priority > b->c.priority
                                          : a->c.seq < b->c.seq;
}

struct messages {
    char queue[QUEUE_NAME_MAX];
    struct statedir dir;
    struct waiting_filter filter;
    bool runs;               /* a worker is running */
    char separator;          /* behind a group's key in a body; 0: none */
    struct store *store;     /* NULL: there is none */
    struct slot_seen *slots; /* by state, then by receipt */
    size_t count, room;
    uint64_t *seqs; /* of the slots, sorted */
};

/* A message of custody or the store. Pointers are valid during the visit. */
struct message_seen {
    enum waiting_state state;
    bool in_slot;                 /* false: it is only in the store */
    const struct slot_seen *slot; /* the slot, if in_slot */
    struct ulid id;               /* all 0: no id yet */
    int64_t row; /* 0: it is not in the store, or in the spool */
    uint64_t seq, received_ns;
    uint64_t due_ns;     /* 0: the message is not waiting for a time */
    uint64_t started_ns; /* of a running message; else 0 */
    uint32_t priority, failures, crashes;
    uint32_t attempt;  /* of a running message; else 0 */
    int32_t pid;       /* of its handler; 0: none */
    const char *group; /* NULL: none */
    size_t group_size;
    const char *error;       /* of its last failure; NULL: none */
    const char *error_text;  /* the text beside the error; NULL: none */
    const char *last_stderr; /* last line that it has written while it is
                              * running; NULL: none, or not asked for */
    const char *header;      /* NULL: not read, as the message has a row */
    size_t header_size;
    const char *body;
    size_t body_size; /* of `body` */
    size_t size;      /* of the whole body */
};

typedef int message_visit(const struct message_seen *seen, void *arg);

/* Open the messages of a queue; `o` has the queue and the filter. */
int messages_open(struct messages *m, const struct options *o);
void messages_close(struct messages *m);

/* Visit the messages after `cursor` ("": from the first on). -EINVAL: it is no
 * cursor. */
int messages_each(struct messages *m, const char *cursor, message_visit *visit,
                  void *arg);
/* Print the place behind a message, as --after takes it. */
#define CURSOR_TEXT 600
const char *messages_cursor(const struct message_seen *seen,
                            char text[CURSOR_TEXT]);

/* Return the object of mqctl list --json; NULL: no memory. */
json_t *message_json(const char *queue, const struct message_seen *seen);

/* Visit the rows of the spool behind that key (0: from the first) that the
 * filter chooses; with `all`, also rows that are in a slot. */
int messages_spooled_each(struct messages *m, int64_t after, bool all,
                          message_visit *visit, void *arg);
int64_t messages_spooled_key(const struct message_seen *seen);
/* Mark the rows (below 0: keys of the spool, with a minus) whose messages are
 * in slots of the killed worker. Custody is read again, because since
 * messages_open another worker may have started and been killed. Call this
 * while no worker has the lock. Returns 0, -ENOENT if there is no custody, or
 * -errno. */
int messages_in_slots(struct messages *m, const int64_t *rows, size_t count,
                      bool *in_slot);
/* Mark the keys of the spool whose messages the killed worker had finished;
 * other entries of `ran` are kept. Returns false if that is not known. */
bool messages_spooled_ran(struct messages *m, const int64_t *rows, size_t count,
                          bool *ran);

#endif
