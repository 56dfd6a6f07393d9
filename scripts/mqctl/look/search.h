/* search.h - a message that is looked for
 *
 * WHAT   What explain has found so far, as a sentence and as fields.
 * WHO    explain.c, explain_spool.c, search.c.
 * OWNS   Nothing; explain_run owns the parts.
 * FAILS  Never. A sentence that is too long is cut; a place that cannot be
 *        looked into is passed over, and told of if no other has the message.
 */
#ifndef SCRIPTS_MQCTL_LOOK_SEARCH_H
#define SCRIPTS_MQCTL_LOOK_SEARCH_H

#include "common/base/clock.h"
#include "common/custody/custody_look.h"
#include "scripts/mqctl/look/snapshot.h"

struct search {
    struct snapshot v;
    struct store *store; /* NULL: none */
    struct ulid id;
    bool named;  /* false: only the row is known */
    int64_t row; /* that was asked for; 0: an id was */
    char text_id[ULID_TEXT];
    struct custody_seen slot; /* of the message */
    bool in_slot;
    struct problem unseen; /* a place that could not be looked into, or status
                            * 0 */
    const char *where;     /* in_flight, held, waiting, ..., unknown, unseen */
    char text[1024];       /* the sentence */
    json_t *more;          /* fields of the object */
};

/* The answer; `where` is static. */
void found(struct search *s, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* More of the sentence. */
void add(struct search *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The store cannot be read: -errno. */
void store_unseen(struct search *s, int err);
/* A field of the object. */
void put(struct search *s, const char *name, json_t *value);
/* "2026-... (in 3s)", or "now". */
#define SEARCH_UNTIL 96
const char *until(uint64_t wall_ns, char buf[SEARCH_UNTIL]);
/* How long since a wall time, to the millisecond. */
const char *ago(uint64_t wall_ns, char buf[DURATION_TEXT]);
/* Name the head of the group that the message waits in. */
void behind(struct search *s, const char *group);
/* Look in the spool, after the journal: a row may be there some 200 ms longer
 * than its message. True: it is there. */
bool spool_search(struct search *s);

#endif
