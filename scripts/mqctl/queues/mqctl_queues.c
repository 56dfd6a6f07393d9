/* mqctl_queues.c - see mqctl.h */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/errno_text.h"
#include "common/custody/custody_look.h"
#include "common/text/json_line.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/text/term.h"
#include "common/text/term_table.h"
#include "scripts/mqctl/mqctl_proc.h"
#include "scripts/mqctl/mqctl_queue_list.h"
#include "common/text/complain.h"
#include "scripts/mqctl/mqctl_snapshot.h"
#include "scripts/mqctl/queues/mqctl_kept.h"

#define MEMORY_TEXT (PATH_MAX + 128)

#define COLUMN_WORKER 7
static const struct term_column columns[] = {
    {"QUEUE", TERM_LEFT, TERM_MIDDLE}, {"DEPTH", TERM_RIGHT, TERM_WHOLE},
    {"MAX", TERM_RIGHT, TERM_WHOLE},   {"BYTES", TERM_RIGHT, TERM_WHOLE},
    {"SIZE", TERM_RIGHT, TERM_WHOLE},  {"CHARGED", TERM_RIGHT, TERM_WHOLE},
    {"PID", TERM_RIGHT, TERM_WHOLE},   {"WORKER", TERM_LEFT, TERM_END},
};

/* charged - against RLIMIT_MSGQUEUE; -1: not known */
static long charged(const struct snapshot *v)
{
    return v->has_queue ? (long)mqlimit_cost((uint64_t)v->depth_max,
                                             (uint64_t)v->message_size)
                        : -1;
}

/* worker_text - its state, or why there is nothing to say of the queue */
static const char *worker_text(const struct snapshot *v)
{
    if (v->has_queue)
        return v->worker == SNAPSHOT_NEVER ? "-" : snapshot_state_text(v);
    return v->no_queue.status == EX_NOPERM    ? "no permission"
           : v->no_queue.status == EX_NOINPUT ? "no queue"
                                              : v->no_queue.text;
}

static void row(struct term_table *t, const struct snapshot *v)
{
    term_cellf(t, "%s", v->queue);
    term_cell_known(t, v->depth);
    term_cell_known(t, v->depth_max);
    term_cell_known(t, v->bytes);
    term_cell_known(t, v->message_size);
    term_cell_known(t, charged(v));
    term_cell_known(t, v->worker == SNAPSHOT_RUNS ? (long)v->pid : -1);
    term_cellf(t, "%s", worker_text(v));
}

static json_t *object(const struct snapshot *v)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "queue",
        json_printable(v->queue), "depth", json_known(v->depth), "queue_depth",
        json_known(v->depth_max), "bytes", json_known(v->bytes), "message_size",
        json_known(v->message_size), "charged", json_known(charged(v)), "pid",
        json_known(v->worker == SNAPSHOT_RUNS ? (long)v->pid : -1), "worker",
        worker_text(v));
}

/* list - all that were found */
static int list(const struct options *o, const struct queue_list *n)
{
    struct term_table *table =
        term_table_open(columns, sizeof columns / sizeof *columns);
    int status = 0;

    term_table_paint(table, COLUMN_WORKER, snapshot_state_colour);
    for (size_t i = 0; i < n->count; i++) {
        struct problem p;
        struct snapshot v;

        if (snapshot_open(&v, o->state_dir, n->at[i], false, &p) < 0) {
            status = complain_of(&p);
            continue;
        }
        if (!o->json)
            row(table, &v);
        else if (json_print_line(object(&v), stdout) < 0)
            status = complain_memory();
        snapshot_close(&v);
    }
    if (!o->json && n->count > 0 && term_table_print(table, stdout) < 0)
        status = complain_memory();
    term_table_close(&table);
    return status;
}

/* queues_run - all of them, then the places that could not be read */
int queues_run(const struct options *o)
{
    struct queue_list n = {0};
    int status;

    if (queue_list_of_queues(&n, o->state_dir) < 0)
        return complain_memory();
    status = list(o, &n);
    if (n.count == 0)
        complain(0, "no queue was found");
    if (n.missing[0])
        complain(0, "%s", n.missing);
    if (n.folder_trouble[0])
        complain(0, "workers are not shown: %s", n.folder_trouble);
    queue_list_free(&n);
    return status;
}

/* create_run - a queue that exists is no success: it may be a different one */
int create_run(const struct options *o)
{
    struct queue_attr want = {.depth = o->depth,
                              .message_size = o->message_size,
                              .mode = (mode_t)o->mode};
    struct problem p = {0};
    char text[256];
    struct queue *q;
    bool created;
    int status = 0;

    if (queue_open(&q, o->line.operands[0], QUEUE_CREATE, &want, &created, &p) <
        0)
        return complain_of(&p);
    if (created && o->json)
        (void)json_print_line(
            json_pack("{s:o, s:b, s:I, s:I}", "queue",
                      json_printable(queue_label(q)), "created", 1,
                      "queue_depth", (json_int_t)queue_depth(q), "message_size",
                      (json_int_t)queue_message_size(q)),
            stdout);
    else if (created && !o->quiet)
        printf("%s: made, room for %zu messages of %zu bytes\n", queue_label(q),
               queue_depth(q), queue_message_size(q));
    else if (!created && queue_differs(q, &want, text, sizeof text))
        status = complain(EX_CANTCREAT,
                          "%s exists already, and differs: %s; remove it "
                          "first, with mqctl remove %s",
                          queue_label(q), text, queue_label(q));
    else if (!created)
        status = complain(
            EX_CANTCREAT,
            "%s exists already, with room for %zu messages of %zu bytes",
            queue_label(q), queue_depth(q), queue_message_size(q));
    queue_close(&q);
    return status;
}

/* worker_elsewhere - a worker with another state directory has the queue open;
 * 0: none */
static int worker_elsewhere(const struct snapshot *v)
{
    struct holder h;

    if (!v->has_queue || !holder_find(&h, v->queue))
        return 0;
    if (!h.there)
        return complain(
            EX_UNAVAILABLE,
            "an mqworker (pid %d) has %s open, and its state directory "
            "is not to be seen here; see mqctl doctor %s, or give "
            "--force",
            (int)h.pid, v->queue, v->queue);
    return complain(
        EX_UNAVAILABLE,
        "worker %d runs on %s, with its state in %s, and would create "
        "it again; stop it first, with mqctl drain --state-dir %.*s %s, "
        "or give --force",
        (int)h.pid, v->queue, h.folder,
        (int)(strrchr(h.folder, '/') - h.folder), h.folder, v->queue);
}

/* in_the_way - a removal would lose messages or a worker; 0: neither */
static int in_the_way(const struct snapshot *v)
{
    int status;

    if (v->worker == SNAPSHOT_UNSEEN)
        return complain(v->no_live.status,
                        "cannot see whether a worker runs on it: %s; or give "
                        "--force",
                        v->no_live.text);
    if (v->worker == SNAPSHOT_RUNS)
        return complain(
            EX_UNAVAILABLE,
            "worker %d runs on %s, and would create it again; stop it "
            "first, with mqctl drain %s, or give --force",
            (int)v->pid, v->queue, v->queue);
    status = worker_elsewhere(v);
    if (status)
        return status;
    if (v->depth > 0)
        return complain(
            EX_UNAVAILABLE,
            "%s holds %ld message%s, which would be lost; let a worker "
            "take %s, or give --force",
            v->queue, v->depth, term_plural((uint64_t)v->depth),
            v->depth == 1 ? "it" : "them");
    if (v->spooled > 0)
        return complain(EX_UNAVAILABLE,
                        "%s has %" PRId64 " message%s in its spool, in %s, "
                        "that %s not run; let a worker do that, or give "
                        "--force: then they stay there for the next one",
                        v->queue, v->spooled, term_plural((uint64_t)v->spooled),
                        v->dir.folder, v->spooled == 1 ? "has" : "have");
    if (v->spooled < 0 && snapshot_unread(v->store_err))
        return complain(v->no_store.status,
                        "cannot see whether it has messages in its spool: %s; "
                        "or give --force",
                        v->no_store.text);
    if (!v->has_queue && v->no_queue.status != EX_NOINPUT)
        return complain(
            v->no_queue.status,
            "cannot see whether it holds messages: %s; or give --force",
            v->no_queue.text);
    return 0;
}

/* memory_remove - remove the runtime folder of a worker that is gone, and tell;
 * the state directory stays as it is. As long as there are rows of a spool, the
 * folder has to stay: it has the ends of those that came to one. */
static const char *memory_remove(const struct snapshot *v,
                                 char buf[MEMORY_TEXT])
{
    char folder[PATH_MAX];
    int err = -ENOENT;

    buf[0] = '\0';
    if (v->spooled > 0) {
        snprintf(buf, MEMORY_TEXT,
                 "; what has not run stays, and runs when a worker is started: "
                 "%" PRId64 " in the spool, %" PRId64 " in flight",
                 v->spooled, v->custody > 0 ? v->custody : 0);
        return buf;
    }
    if (v->has_folder && v->worker != SNAPSHOT_RUNS &&
        v->worker != SNAPSHOT_UNSEEN) {
        kept_alive_remove(&v->dir);
        err = runtimedir_remove(&v->dir, custody_holds, folder);
    }
    if (err == -ENOTEMPTY)
        snprintf(buf, MEMORY_TEXT,
                 "; %" PRId64 " message%s in flight stay%s in %s, and run%s "
                 "when a worker is started",
                 v->custody, v->custody == 1 ? "" : "s",
                 v->custody == 1 ? "s" : "", folder,
                 v->custody == 1 ? "s" : "");
    else if (err && err != -ENOENT)
        snprintf(buf, MEMORY_TEXT, "; %s stays: %s", folder, errno_text(-err));
    return buf;
}

/* kept_tell - what is left of a queue, where, and what throws that away; what
 * `memory` tells is not said twice */
static void kept_tell(struct snapshot *v, const char *memory)
{
    char text[KEPT_TEXT];
    struct kept k = {0};

    kept_count(&k, v);
    if (memory[0])
        k.spooled = k.in_flight = 0;
    kept_text(&k, text);
    printf("; %s kept in %s until mqctl forget %s%s\n",
           k.unknown.status ? "what it had is"
           : text[0]        ? text
                            : "no message of it is left, its numbers are",
           v->dir.folder, v->queue, memory);
}

/* removed_tell - `lost`: messages that went with the queue, below 0: not
 * known */
static void removed_tell(const struct options *o, struct snapshot *v, long lost)
{
    char memory[MEMORY_TEXT], thrown[64] = "";

    memory_remove(v, memory);
    if (lost > 0)
        snprintf(thrown, sizeof thrown, " with %ld message%s in it", lost,
                 lost == 1 ? "" : "s");
    if (o->json)
        (void)json_print_line(
            json_pack("{s:o, s:b, s:o, s:o}", "queue", json_printable(v->queue),
                      "removed", 1, "lost", json_known(lost), "kept_in",
                      v->has_folder ? json_printable(v->dir.folder)
                                    : json_null()),
            stdout);
    if (o->json || o->quiet)
        return;
    printf("%s: removed%s", v->queue, thrown);
    if (v->has_folder)
        kept_tell(v, memory);
    else
        putchar('\n');
}

/* unlink_counted - how many messages went with it: a program that has it open
 * may send until then; 0 or -errno */
static int unlink_counted(const char *name, long *lost)
{
    struct queue *q = NULL;
    int err;

    *lost = -1;
    (void)queue_open(&q, name, 0, NULL, NULL, NULL);
    err = queue_unlink(name);
    if (!err && q)
        *lost = queue_length(q);
    queue_close(&q);
    return err;
}

/* remove_run - the queue; its retries and letters stay */
int remove_run(const struct options *o)
{
    struct problem p = {0};
    struct snapshot v;
    int status, err;
    long lost;

    if (snapshot_open(&v, o->state_dir, o->line.operands[0], true, &p) < 0)
        return complain_of(&p);
    status = o->force ? 0 : in_the_way(&v);
    if (!status) {
        err = unlink_counted(v.queue, &lost);
        if (err == -ENOENT)
            status = complain(EX_NOINPUT,
                              "there is no queue %s; mqctl queues lists those "
                              "that are%s%s",
                              v.queue,
                              v.has_folder ? "; what was kept of it goes with "
                                             "mqctl forget "
                                           : "",
                              v.has_folder ? v.queue : "");
        else if (err)
            status = complain(err == -EACCES ? EX_NOPERM : EX_OSERR,
                              "cannot remove %s: %s; its owner and root may",
                              v.queue, errno_text(-err));
        else
            removed_tell(o, &v, lost);
    }
    snapshot_close(&v);
    return status;
}
