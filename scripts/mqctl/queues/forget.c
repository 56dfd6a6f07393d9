/* forget.c - what was kept of a queue that is gone (see mqctl.h) */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sysexits.h>

#include "common/base/safe_text.h"
#include "common/state/state_forget.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/queues/kept.h"

/* worker_in_the_way - nothing is forgotten under one, whatever was given */
static int worker_in_the_way(const struct snapshot *v)
{
    if (v->worker == SNAPSHOT_RUNS)
        return complain(
            EX_UNAVAILABLE,
            "worker %d is running on %s; stop it first, with mqctl stop "
            "--wait %s",
            (int)v->pid, v->queue, SHELL_QUEUE(v->queue));
    if (v->worker == SNAPSHOT_UNSEEN)
        return complain(v->no_live.status,
                        "cannot see whether a worker runs on %s: %s", v->queue,
                        v->no_live.text);
    return 0;
}

/* kept_in_the_way - a queue that is there still, or messages */
static int kept_in_the_way(const struct snapshot *v, const struct kept *k)
{
    char text[KEPT_TEXT];

    /* Of one on a broker there are no messages here. */
    if (!v->broker && (v->has_queue || v->no_queue.status != EX_NOINPUT))
        return complain(EX_UNAVAILABLE,
                        "queue %s is there still; remove it first, with mqctl "
                        "remove %s, or give --force: then it stays, and what "
                        "was kept of it goes",
                        v->queue, SHELL_QUEUE(v->queue));
    if (k->unknown.status)
        return complain(k->unknown.status,
                        "cannot see whether messages of %s were kept: %s; or "
                        "give --force",
                        v->queue, k->unknown.text);
    if (kept_sum(k) == 0)
        return 0;
    return complain(EX_UNAVAILABLE,
                    "messages of %s were kept, in %s: %s; see mqctl list %s "
                    "and mqdlq list %s, or give --force, which throws them "
                    "away",
                    v->queue, v->dir.folder, kept_text(k, text),
                    SHELL_QUEUE(v->queue), SHELL_QUEUE(v->queue));
}

/* forgotten_tell - or what would be */
static void forgotten_tell(const struct options *o, const char *queue,
                           const struct kept *k)
{
    char text[KEPT_TEXT];

    if (o->json)
        (void)json_print_line(
            json_pack("{s:o, s:b, s:I, s:I, s:I, s:I}", "queue",
                      json_printable(queue), "forgotten", !o->dry_run,
                      "waiting", (json_int_t)k->waiting, "spooled",
                      (json_int_t)k->spooled, "in_flight",
                      (json_int_t)k->in_flight, "dead", (json_int_t)k->dead),
            stdout);
    else if (!o->quiet)
        printf("%s: %s%s%s%s\n", queue,
               o->dry_run ? "would be forgotten" : "forgotten",
               kept_sum(k) ? ", and thrown away: " : "", kept_text(k, text),
               k->unknown.status ? ", and what could not be read" : "");
}

/* look - at all of it; 0 or an exit status */
static int look(struct snapshot *v, struct kept *k, const struct options *o,
                const char *queue)
{
    struct problem p = {0};

    *k = (struct kept){0};
    if (snapshot_open(v, o->state_dir, queue, false, &p) < 0)
        return complain_of(&p);
    kept_count(k, v);
    return 0;
}

/* locked_run - no worker can start now: numbers counted before may be old */
static int locked_run(const struct options *o, struct state_forget *f,
                      const char *queue)
{
    struct problem p = {0};
    struct snapshot v;
    struct kept k;
    int status = look(&v, &k, o, queue);

    if (status)
        return status;
    if (!o->force)
        status = kept_in_the_way(&v, &k);
    snapshot_close(&v);
    if (status)
        return status;
    if (!o->dry_run) {
        kept_alive_remove(&v.dir);
        if (state_forget_run(f, &p) < 0)
            return complain_of(&p);
    }
    forgotten_tell(o, queue, &k);
    return 0;
}

/* unknown - there is no folder; it is a success that an earlier call, which was
 * ended in the middle, comes to its end now */
static int unknown(const struct options *o, const struct statedir *dir,
                   const char *queue)
{
    struct problem p = {0};
    int found = o->dry_run ? NO : state_forget_finish(dir, &p);

    if (found < 0)
        return complain_of(&p);
    if (found == NO)
        return complain(EX_NOINPUT,
                        "nothing was kept of %s in %s; mqctl queues lists "
                        "what there is, and --state-dir looks elsewhere",
                        queue, dir->root);
    forgotten_tell(o, queue, &(struct kept){0});
    return 0;
}

/* forget_run - its folders */
int forget_run(const struct options *o)
{
    struct problem p = {0};
    struct state_forget f;
    struct snapshot v;
    struct kept k;
    int status = look(&v, &k, o, o->line.operands[0]), err;

    if (status)
        return status;
    status = worker_in_the_way(&v);
    if (!status && v.shut)
        status = complain(EX_NOPERM, "%s", v.no_store.text);
    if (!status) {
        err = state_forget_open(&f, &v.dir, &p);
        status = err == -ENOENT ? unknown(o, &v.dir, v.queue)
                 : err          ? complain_of(&p)
                                : locked_run(o, &f, v.queue);
        if (!err)
            state_forget_close(&f);
    }
    snapshot_close(&v);
    return status;
}
