/* explain_spool.c - a message that waits in the spool (see
 * search.h) */
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/search.h"

#include <inttypes.h>
#include <string.h>

#include "common/message/header.h"
#include "common/store/spool.h"
#include "common/text/term.h"

/* A message that is looked for there. */
struct spooled {
    const struct ulid *id;
    uint64_t before; /* rows that come before it */
    uint64_t received_ns;
    uint32_t crashes;
    bool cancelled;
};

/* spooled_match - visit: whether it is this one; one that has not run has its
 * id in its header, or none */
static int spooled_match(const struct store_spooled *row, void *arg)
{
    struct spooled *x = arg;
    char why[HEADER_WHY];
    struct header h;

    if (memcmp(&row->id, x->id, sizeof *x->id) != 0 &&
        (header_parse(row->data, row->size, &h, why) < 0 ||
         !(h.fields & HEADER_ID) || memcmp(&h.id, x->id, sizeof h.id) != 0)) {
        x->before++;
        return NO;
    }
    x->received_ns = row->received_ns;
    x->crashes = row->crashes;
    x->cancelled = row->flags & STORE_CANCELLED;
    return YES;
}

bool spool_search(struct search *s)
{
    struct spooled x = {.id = &s->id};
    char start[START_TEXT], time[DURATION_TEXT];
    int err = s->store && s->named
                  ? store_spool_each(s->store, 0, spooled_match, &x)
                  : NO;

    if (err < 0)
        store_unseen(s, err);
    if (err != YES)
        return false;
    put(s, "before", json_integer((json_int_t)x.before));
    put(s, "crashes", json_integer(x.crashes));
    if (x.cancelled) {
        found(s, "cancelled",
              "cancelled: it does not run, and ends as discarded when its turn "
              "in the spool comes");
        return true;
    }
    found(s, "spooled",
          "received %s ago and in the spool: it came faster than it runs; "
          "%" PRIu64 " message%s of the spool come%s before it",
          ago(x.received_ns, time), x.before, term_plural(x.before),
          x.before == 1 ? "s" : "");
    if (x.crashes)
        add(s, "; a worker died under it, %" PRIu32 " time%s", x.crashes,
            term_plural(x.crashes));
    if (s->v.worker != SNAPSHOT_RUNS)
        add(s, "; no worker is running, start one: %s",
            worker_start_text(s->v.queue, start));
    else if (snapshot_why(&s->v))
        add(s, "; nothing more is started now: %s", snapshot_why(&s->v));
    return true;
}
