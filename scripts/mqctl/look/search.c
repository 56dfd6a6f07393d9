/* search.c - see search.h */
#include "scripts/mqctl/look/search.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/state/runtimedir.h"
#include "common/text/term.h"

/* found - the answer */
void found(struct search *s, const char *where, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(s->text, sizeof s->text, fmt, args);
    va_end(args);
    s->where = where;
}

/* add - to the sentence */
void add(struct search *s, const char *fmt, ...)
{
    size_t used = strlen(s->text);

    va_list args;

    va_start(args, fmt);
    vsnprintf(s->text + used, sizeof s->text - used, fmt, args);
    va_end(args);
}

void store_unseen(struct search *s, int err)
{
    problem_set(&s->unseen, EX_IOERR, -err,
                "%s/%s cannot be read: %s; see mqctl doctor %s",
                s->v.dir.folder, STATEDIR_STORE, errno_text(-err),
                SHELL_QUEUE(s->v.queue));
}

void put(struct search *s, const char *name, json_t *value)
{
    (void)json_object_set_new(s->more, name, value);
}

/* until - "2026-… (in 3s)", or "now" */
const char *until(uint64_t wall_ns, char buf[SEARCH_UNTIL])
{
    uint64_t now = clock_wall_ns();
    char time[TIME_TEXT], left[DURATION_TEXT];

    if (wall_ns <= now)
        strlcpy(buf, "now", SEARCH_UNTIL);
    else
        snprintf(buf, SEARCH_UNTIL, "%s (in %s)", term_time(wall_ns, time),
                 duration_rough(wall_ns - now, left));
    return buf;
}

struct head {
    const char *group;
    const struct custody_seen *self; /* NULL: it is not in a slot */
    struct custody_seen first;
    bool seen;
};

/* head_slot - the message of a group that runs, else the first in its order */
static int head_slot(const struct custody_seen *seen, void *arg)
{
    struct head *h = arg;
    bool before;

    if (strcmp(seen->group, h->group) != 0 ||
        (h->self && seen->seq == h->self->seq))
        return 0;
    before = seen->w.state == SLOT_RUNNING ||
             (h->first.w.state != SLOT_RUNNING && seen->seq < h->first.seq);
    if (!h->seen || before)
        h->first = *seen;
    h->seen = true;
    return 0;
}

const char *ago(uint64_t wall_ns, char buf[DURATION_TEXT])
{
    uint64_t now = clock_wall_ns();

    return duration_rough(now > wall_ns ? now - wall_ns : 0, buf);
}

/* behind - name the head of the group that a message waits in */
void behind(struct search *s, const char *group)
{
    struct head h = {.group = group, .self = s->in_slot ? &s->slot : NULL};
    char path[PATH_MAX], id[ULID_TEXT], when[SEARCH_UNTIL];
    struct store_group g = {0};
    struct store_row m;
    struct problem p;

    if (runtimedir_file(&s->v.dir, RUNTIMEDIR_CUSTODY, path, &p) == 0)
        (void)custody_look(path, head_slot, &h, &p);
    if (s->store) /* one that it does not have has no head there */
        (void)store_get_group(s->store, group, strlen(group), &g);
    put(s, "group_parked", json_integer((json_int_t)g.parked));
    if (h.seen && h.first.w.state == SLOT_RUNNING) {
        put(s, "head", json_string(ulid_print(h.first.id, id)));
        add(s, "; its head %s is in flight", ulid_print(h.first.id, id));
    } else if (g.head && store_get(s->store, g.head, &m, NULL, 0, NULL) == 0) {
        put(s, "head", json_string(ulid_print(m.id, id)));
        add(s, "; its head %s failed %" PRIu32 " time%s and waits until %s", id,
            m.attempts, m.attempts == 1 ? "" : "s", until(m.due_ns, when));
    } else if (g.letters) {
        add(s, "; the group has a dead letter, and with --on-group-dead hold "
               "waits until mqdlq replays or discards it");
    }
}
