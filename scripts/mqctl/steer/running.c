/* running.c - see running.h
 *
 * The order is given again at each look, to whatever runs still: a process that
 * was just about to be started was not there to be ended. So no answer of the
 * worker says what became of a message; custody does, and the journal.
 */
#include "scripts/mqctl/steer/running.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/text/complain.h"
#include "scripts/mqctl/ask.h"

#define BATCH    64               /* as many as a request may have */
#define PAUSE    (20 * NS_PER_MS) /* between two looks */
#define PATIENCE (60 * NS_PER_S)  /* for --kill-after, and the disk */
#define LOOKS    10               /* for the journal, once a slot is free */

int running_add(struct runs *r, const struct ulid *id, uint64_t started_ns)
{
    struct run *at = array_grow(r->at, r->count, &r->room, sizeof *at);

    if (!at)
        return -ENOMEM;
    r->at = at;
    r->at[r->count++] = (struct run){.id = *id, .started_ns = started_ns};
    return 0;
}

void running_free(struct runs *r)
{
    free(r->at);
    r->at = NULL;
    r->count = r->room = 0;
}

/* ---- one look ---- */

/* run_seen - visit: a slot; one of those that are waited for runs still */
static int run_seen(const struct custody_seen *c, void *arg)
{
    struct runs *r = arg;

    for (size_t i = 0; i < r->count && c->w.state == SLOT_RUNNING; i++)
        if (memcmp(&r->at[i].id, &c->id, sizeof c->id) == 0)
            r->at[i].runs = true;
    return 0;
}

/* slots_look - which of them run still; without custody none of them does */
static void slots_look(struct runs *r, const struct messages *m)
{
    char path[PATH_MAX];
    struct problem p;

    for (size_t i = 0; i < r->count; i++)
        r->at[i].runs = false;
    if (runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, &p) == 0)
        (void)custody_look(path, run_seen, r, &p);
}

/* journal_look - how the others ended, and count them; those of which nothing
 * is written yet stay, for some more looks */
static void journal_look(struct runs *r, const struct messages *m)
{
    struct counters *c = NULL;
    char path[PATH_MAX];
    struct problem p;
    size_t n = 0;

    if (runtimedir_file(&m->dir, RUNTIMEDIR_COUNTERS, path, &p) == 0)
        (void)counters_attach(&c, path, &p);
    for (size_t i = 0; i < r->count; i++) {
        struct run *run = &r->at[i];
        enum counters_end end;
        uint64_t wall_ns;

        if (!run->runs && c && counters_find(c, &run->id, &end, &wall_ns) &&
            wall_ns >= run->started_ns) {
            r->cancelled += end == COUNTERS_CANCELLED;
            r->ended += end != COUNTERS_CANCELLED;
            continue;
        }
        run->looks += !run->runs;
        r->at[n++] = *run;
    }
    r->count = n;
    counters_close(&c);
}

/* waits - whether another look may tell more */
static bool waits(const struct runs *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].runs || r->at[i].looks < LOOKS)
            return true;
    return false;
}

/* ---- the order ---- */

/* refused - the worker's own words */
static int refused(const json_t *answer)
{
    const char *why = json_string_value(json_object_get(answer, "error"));
    json_int_t status = json_integer_value(json_object_get(answer, "status"));

    return complain(status ? (int)status : EX_TEMPFAIL, "%s",
                    why ? why : "no answer");
}

/* order - up to BATCH of them from `from` on; 0, or the exit status. Of a
 * worker that ends, or has ended, the journal tells more. */
static int order(const struct runs *r, size_t from, const struct messages *m)
{
    char line[STATEDIR_REQUEST], text[ULID_TEXT];
    struct problem p;
    json_t *answer;
    int status = 0, err;
    int n = snprintf(line, sizeof line, "cancel-running");

    for (size_t i = from; i < r->count && i < from + BATCH; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %s",
                      ulid_print(r->at[i].id, text));
    err = ask(&m->dir, m->queue, line, &answer, &p);
    if (err == -ENOENT || err == -ECONNREFUSED || ask_runs(&m->dir) == 0) {
        json_decref(answer);
        return 0;
    }
    if (err)
        return complain_of(&p);
    if (!json_is_true(json_object_get(answer, "ok")))
        status = refused(answer);
    json_decref(answer);
    return status;
}

/* left - what a worker that has ended has left of them */
static int left(const struct runs *r, const struct messages *m)
{
    return complain(EX_TEMPFAIL,
                    "the worker of %s ended meanwhile; %zu of the messages %s "
                    "kept for the next one; give the same order again",
                    m->queue, r->count, r->count == 1 ? "is" : "are");
}

int running_cancel(struct runs *r, const struct messages *m)
{
    uint64_t until = ns_add(clock_mono_ns(), PATIENCE);
    const struct timespec pause = {.tv_nsec = PAUSE};
    bool runs = true;
    int status = 0;

    while (!status && runs && waits(r) && clock_mono_ns() < until) {
        for (size_t i = 0; i < r->count && !status; i += BATCH)
            status = order(r, i, m);
        runs = ask_runs(&m->dir) != 0; /* what it wrote is seen after this */
        slots_look(r, m);
        journal_look(r, m);
        if (!status && runs && waits(r))
            nanosleep(&pause, NULL);
    }
    if (!status && !runs && r->count)
        status = left(r, m);
    return status;
}
