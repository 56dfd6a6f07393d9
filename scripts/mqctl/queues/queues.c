/* queues.c - mqctl queues, create, remove and forget
 *
 * main calls queues_run, create_run, remove_run or forget_run, on the only
 * thread. Without --force, remove and forget refuse to lose messages.
 */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/cli/term_table.h"
#include "common/custody/custody.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/state/state_forget.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"

/* Numbers of a queue's messages in its store and custody. */
struct kept {
    int64_t waiting, spooled, dead, in_flight;
    struct problem unknown; /* why numbers are missing; status 0: none are */
};

#define KEPT_TEXT 256

/* Count the saved messages. A missing file has none. */
static void kept_count(struct kept *k, struct snapshot *v)
{
    char path[PATH_MAX];
    struct store *s;
    int err = snapshot_store(v, &s);

    *k = (struct kept){0};
    store_close(&s);
    if (err ? snapshot_unread(err) : v->store_err)
        k->unknown = v->no_store;
    else if (!err) {
        k->waiting = v->rows.waiting + v->rows.parked;
        k->spooled = v->rows.spooled;
        k->dead = v->rows.dead + v->rows.replayed;
    }
    if (v->custody >= 0)
        k->in_flight = v->custody;
    else if (runtimedir_file(&v->dir, RUNTIMEDIR_CUSTODY, path, &k->unknown) ==
                 0 &&
             access(path, F_OK) == 0)
        problem_fill(&k->unknown, EX_CANTCREAT, "%s cannot be read", path);
}

/* Return "3 waiting, 2 dead letters"; "" if nothing is saved. */
static const char *kept_text(const struct kept *k, char buf[KEPT_TEXT])
{
    const struct {
        int64_t n;
        const char *what;
    } all[] = {{k->waiting, "waiting"},
               {k->spooled, "in the spool"},
               {k->in_flight, "in flight"},
               {k->dead, k->dead == 1 ? "dead letter" : "dead letters"}};

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].n > 0)
            text_append(buf, KEPT_TEXT, "%s%" PRId64 " %s", *buf ? ", " : "",
                        all[i].n, all[i].what);
    return buf;
}

/* Remove the count of living handlers (process_stat.h) of a queue without a
 * worker. Call this before removing custody, which has the key of the count. */
static void kept_alive_remove(const struct statedir *dir)
{
    char path[PATH_MAX];
    uint64_t nonce = 0;

    if (runtimedir_file(dir, RUNTIMEDIR_CUSTODY, path, NULL) == 0)
        (void)custody_known(path, &nonce, NULL);
    if (nonce)
        alive_remove(alive_key(nonce));
}

/* ---- queues, create, remove ---- */

#define MEMORY_TEXT (PATH_MAX + 128)

#define COLUMN_WORKER 7

int queues_run(const struct options *o)
{
    static const struct term_column columns[] = {
        {"QUEUE", TERM_LEFT, TERM_MIDDLE}, {"DEPTH", TERM_RIGHT, TERM_WHOLE},
        {"MAX", TERM_RIGHT, TERM_WHOLE},   {"BYTES", TERM_RIGHT, TERM_WHOLE},
        {"SIZE", TERM_RIGHT, TERM_WHOLE},  {"CHARGED", TERM_RIGHT, TERM_WHOLE},
        {"PID", TERM_RIGHT, TERM_WHOLE},   {"WORKER", TERM_LEFT, TERM_END},
    };
    struct queue_list n = {0};
    struct term_table *t;
    const char *worker; /* its state, or why the queue cannot be opened */
    long charged, pid;  /* -1: not known, not running */
    int status = 0;
    json_t *line;

    if (queue_list_of_queues(&n, o->state_dir) < 0)
        return complain_memory();
    t = term_table_open(columns, sizeof columns / sizeof *columns);
    term_table_paint(t, COLUMN_WORKER, snapshot_state_colour);
    for (size_t i = 0; i < n.count; i++) {
        struct problem p;
        struct snapshot v;

        if (snapshot_open(&v, o->state_dir, n.at[i], false, &p) < 0) {
            status = complain_of(&p);
            continue;
        }
        charged = v.has_queue ? (long)mqlimit_cost((uint64_t)v.depth_max,
                                                   (uint64_t)v.message_size)
                              : -1;
        pid = v.worker == SNAPSHOT_RUNS ? (long)v.pid : -1;
        worker = v.worker == SNAPSHOT_NEVER ? "-" : snapshot_state_text(&v);
        if (!v.has_queue)
            worker = v.no_queue.status == EX_NOPERM    ? "no permission"
                     : v.no_queue.status == EX_NOINPUT ? "no queue"
                                                       : v.no_queue.text;
        if (o->json) {
            line = json_pack(
                "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "queue",
                json_printable(v.queue), "depth", json_known(v.depth),
                "queue_depth", json_known(v.depth_max), "bytes",
                json_known(v.bytes), "message_size", json_known(v.message_size),
                "charged", json_known(charged), "pid", json_known(pid),
                "worker", worker);
            if (json_print_line(line, stdout) < 0)
                status = complain_memory();
        } else {
            term_cellf(t, "%s", v.queue);
            term_cell_known(t, v.depth);
            term_cell_known(t, v.depth_max);
            term_cell_known(t, v.bytes);
            term_cell_known(t, v.message_size);
            term_cell_known(t, charged);
            term_cell_known(t, pid);
            term_cellf(t, "%s", worker);
        }
        snapshot_close(&v);
    }
    if (!o->json && n.count > 0 && term_table_print(t, stdout) < 0)
        status = complain_memory();
    term_table_close(&t);
    if (n.count == 0)
        complain(0, "no queue was found");
    if (n.missing[0])
        complain(0, "%s", n.missing);
    if (n.folder_trouble[0])
        complain(0, "workers are not shown: %s", n.folder_trouble);
    queue_list_free(&n);
    return status;
}

/* Create a queue. Fail if it exists, because its sizes may be different. */
int create_run(const struct options *o)
{
    struct queue_attr want = {.depth = o->depth,
                              .message_size = o->message_size,
                              .mode = (mode_t)o->mode};
    struct problem p = {0};
    char text[256], room[128];
    const char *name;
    struct queue *q;
    bool created;
    int status = 0;

    if (queue_open(&q, o->line.operands[0], QUEUE_CREATE, &want, &created, &p) <
        0)
        return complain_of(&p);
    name = queue_label(q);
    snprintf(room, sizeof room, "%zu message%s of up to %zu byte%s",
             queue_depth(q), term_plural(queue_depth(q)), queue_message_size(q),
             term_plural(queue_message_size(q)));
    if (created && o->json)
        (void)json_print_line(
            json_pack("{s:o, s:b, s:I, s:I}", "queue", json_printable(name),
                      "created", 1, "queue_depth", (json_int_t)queue_depth(q),
                      "message_size", (json_int_t)queue_message_size(q)),
            stdout);
    else if (created && !o->quiet)
        printf("created %s (%s)\n", name, room);
    else if (!created && queue_differs(q, &want, text, sizeof text))
        status = complain(EX_CANTCREAT,
                          "%s exists already, and differs: %s; remove it "
                          "first, with mqctl remove %s",
                          name, text, SHELL_QUEUE(name));
    else if (!created)
        status = complain(EX_CANTCREAT, "%s exists already (%s)", name, room);
    queue_close(&q);
    return status;
}

/* Complain if the queue has a worker, or if its removal would lose messages.
 * The user did not name an orphan, so an orphan also stays if messages are
 * saved for its next worker. Returns an exit status; 0: remove it. */
static int removal_check(struct snapshot *v, bool orphan)
{
    char text[KEPT_TEXT];
    struct holder h;
    struct kept k;

    if (v->worker == SNAPSHOT_UNSEEN)
        return complain(v->no_live.status,
                        "cannot tell whether a worker is running on it: %s; or "
                        "give --force",
                        v->no_live.text);
    if (v->worker == SNAPSHOT_RUNS)
        return complain(
            EX_UNAVAILABLE,
            "worker %d is running on %s, and would create it again; stop it "
            "first, with mqctl drain --wait %s, or give --force",
            (int)v->pid, v->queue, STATEDIR_OPERAND(v->dir.root, v->queue));
    /* A worker with another state directory may have the queue open. */
    if (v->has_queue && holder_find(&h, v->queue, NULL))
        return h.there
                   ? complain(
                         EX_UNAVAILABLE,
                         "worker %d is running on %s, with its state in "
                         "%s, and would create it again; stop it first, "
                         "with mqctl drain --state-dir %.*s --wait %s, or give "
                         "--force",
                         (int)h.pid, v->queue, h.folder,
                         (int)(strrchr(h.folder, '/') - h.folder), h.folder,
                         SHELL_QUEUE(v->queue))
                   : complain(EX_UNAVAILABLE,
                              "an mqworker (pid %d) has %s open, and its state "
                              "directory cannot be seen here; see mqctl doctor "
                              "%s, or give --force",
                              (int)h.pid, v->queue,
                              STATEDIR_OPERAND(v->dir.root, v->queue));
    if (v->depth > 0)
        return complain(
            EX_UNAVAILABLE,
            "%s holds %ld message%s, which would be lost; let a worker "
            "take %s, or give --force",
            v->queue, v->depth, term_plural((uint64_t)v->depth),
            v->depth == 1 ? "it" : "them");
    if (v->rows.spooled > 0)
        return complain(EX_UNAVAILABLE,
                        "%s has %" PRId64 " message%s in its spool, in %s; "
                        "let a worker run %s first, or give --force to keep "
                        "the spool for the next worker",
                        v->queue, v->rows.spooled,
                        term_plural((uint64_t)v->rows.spooled), v->dir.folder,
                        v->rows.spooled == 1 ? "it" : "them");
    if (v->rows.spooled < 0 && snapshot_unread(v->store_err))
        return complain(v->no_store.status,
                        "cannot tell whether it has messages in its spool: %s; "
                        "or give --force",
                        v->no_store.text);
    if (!v->has_queue && v->no_queue.status != EX_NOINPUT)
        return complain(
            v->no_queue.status,
            "cannot tell whether it holds messages: %s; or give --force",
            v->no_queue.text);
    if (!orphan || !v->has_folder)
        return 0;
    kept_count(&k, v);
    if (k.unknown.status)
        return complain(k.unknown.status,
                        "%s was not removed: cannot check whether it has saved "
                        "messages: %s; or give --force",
                        v->queue, k.unknown.text);
    if (!*kept_text(&k, text))
        return 0;
    return complain(EX_UNAVAILABLE,
                    "%s was not removed: it has saved messages for its next "
                    "worker, in %s: %s; or give --force",
                    v->queue, v->dir.folder, text);
}

/* Print a removal as JSON. `lost` is the number of messages in the removed
 * queue; below 0: not known. */
static int removal_json(const struct snapshot *v, bool removed, long lost)
{
    json_t *line =
        json_pack("{s:o, s:b, s:o, s:o}", "queue", json_printable(v->queue),
                  "removed", removed, "lost", json_known(lost), "kept_in",
                  v->has_folder ? json_printable(v->dir.folder) : json_null());

    return json_print_line(line, stdout) < 0 ? complain_memory() : 0;
}

/* Print how many messages are lost with the queue, if any are. */
static void lost_print(long lost)
{
    if (lost > 0)
        printf(" with %ld message%s in it", lost, lost == 1 ? "" : "s");
}

/* Remove the runtime folder of a removed queue, unless the folder has
 * unfinished messages. Then print that the queue was removed, which state of it
 * is saved, where, and how to delete it. */
static void removed_print(const struct options *o, struct snapshot *v,
                          long lost)
{
    char memory[MEMORY_TEXT] = "", text[KEPT_TEXT], folder[PATH_MAX];
    struct kept k;
    int err = -ENOENT;

    /* While the spool has rows the folder has to stay: it records which of
     * their messages have finished. */
    if (v->rows.spooled > 0)
        snprintf(memory, MEMORY_TEXT,
                 "; unfinished messages stay, and run when a worker is "
                 "started: %" PRId64 " in the spool, %" PRId64 " in flight",
                 v->rows.spooled, v->custody > 0 ? v->custody : 0);
    else if (v->has_folder && v->worker != SNAPSHOT_RUNS &&
             v->worker != SNAPSHOT_UNSEEN) {
        kept_alive_remove(&v->dir);
        err = runtimedir_remove(&v->dir, custody_holds, folder);
    }
    if (err == -ENOTEMPTY)
        snprintf(memory, MEMORY_TEXT,
                 "; %" PRId64 " message%s in flight stay%s in %s, and run%s "
                 "when a worker is started",
                 v->custody, v->custody == 1 ? "" : "s",
                 v->custody == 1 ? "s" : "", folder,
                 v->custody == 1 ? "s" : "");
    else if (err && err != -ENOENT)
        snprintf(memory, MEMORY_TEXT, "; %s stays: %s", folder,
                 errno_text(-err));
    if (o->json)
        (void)removal_json(v, true, lost);
    if (o->json || o->quiet)
        return;
    printf("%s: removed", v->queue);
    lost_print(lost);
    if (v->has_folder) {
        kept_count(&k, v);
        if (memory[0]) /* it already has these two numbers */
            k.spooled = k.in_flight = 0;
        kept_text(&k, text);
        printf("; %s kept in %s until mqctl forget %s%s",
               k.unknown.status ? "its saved state is"
               : text[0]        ? text
                                : "it has no saved messages, its counters are",
               v->dir.folder, STATEDIR_OPERAND(v->dir.root, v->queue), memory);
    }
    putchar('\n');
}

/* Complain that there is no queue of that name. */
static int no_queue_complain(const struct snapshot *v)
{
    return complain(
        EX_NOINPUT,
        "there is no queue %s; mqctl queues lists the existing ones%s%s",
        v->queue,
        v->has_folder ? "; to delete its saved state: mqctl forget " : "",
        v->has_folder ? STATEDIR_OPERAND(v->dir.root, v->queue) : "");
}

/* Remove one queue; its retries and letters stay. `orphan` describes a queue
 * that --orphans has found; it is NULL for a queue that the user named. Returns
 * an exit status. */
static int remove_one(const struct options *o, const char *name,
                      const char *orphan)
{
    struct problem p = {0};
    struct snapshot v;
    struct queue *q = NULL;
    int status, err;
    long lost = -1; /* messages in the removed queue; -1: not known */

    if (snapshot_open(&v, o->state_dir, name, true, &p) < 0)
        return complain_of(&p);
    status = o->force ? 0 : removal_check(&v, orphan != NULL);
    if (!status && o->dry_run) {
        if (!v.has_queue && v.no_queue.status == EX_NOINPUT)
            status = no_queue_complain(&v);
        else if (o->json)
            status = removal_json(&v, false, v.depth);
        else if (!o->quiet) {
            printf("%s: would be removed", v.queue);
            lost_print(v.depth);
            printf("%s%s\n", orphan ? ": " : "", orphan ? orphan : "");
        }
    } else if (!status) {
        /* A program that has the queue open may send until it is unlinked. */
        (void)queue_open(&q, v.queue, 0, NULL, NULL, NULL);
        err = queue_unlink(v.queue);
        if (!err && q)
            lost = queue_length(q);
        queue_close(&q);
        if (err == -ENOENT)
            status = no_queue_complain(&v);
        else if (err)
            status =
                complain(err == -EACCES ? EX_NOPERM : EX_OSERR,
                         "cannot remove %s: %s; only its owner and root can",
                         v.queue, errno_text(-err));
        else
            removed_print(o, &v, lost);
    }
    snapshot_close(&v);
    return status;
}

/* Remove the named queues. With --orphans, remove all queues that no process
 * has open and whose name, with or without its slash, matches the pattern. */
int remove_run(const struct options *o)
{
    const char *match = o->filter.match;
    struct orphans all = {0}, again;
    struct queue_list n = {0};
    char text[ORPHAN_TEXT];
    size_t found = 0;
    int status = 0, worst = 0, one;

    for (int i = 0; !o->orphans && i < o->line.operand_count; i++) {
        one = remove_one(o, o->line.operands[i], NULL);
        worst = worst > one ? worst : one;
    }
    if (!o->orphans)
        return worst;
    if (queue_list_of_queues(&n, o->state_dir) < 0)
        return complain_memory();
    if (orphans_find(&all, &n, o->state_dir, NULL) < 0)
        status = complain_memory();
    else if (all.hidden && !o->force && !o->dry_run)
        status = complain(EX_NOPERM,
                          "%zu process%s of other users cannot be inspected, "
                          "and may have queues open. Run as root, check mqctl "
                          "remove --orphans --dry-run, or give --force",
                          all.hidden, all.hidden == 1 ? "" : "es");
    for (size_t i = 0; !status && i < all.count; i++) {
        char *queue = (char *)(uintptr_t)all.at[i].queue;
        const struct queue_list name = {.at = &queue, .count = 1};

        if (match && fnmatch(match, queue, 0) != 0 &&
            fnmatch(match, queue + 1, 0) != 0)
            continue;
        /* A program may have opened the queue since the list was made. */
        if (orphans_find(&again, &name, o->state_dir, NULL) < 0) {
            status = complain_memory();
            break;
        }
        if (again.count == 1) {
            found++;
            one = remove_one(o, queue, orphan_text(&all.at[i], text));
            worst = worst > one ? worst : one;
        }
        orphans_free(&again);
    }
    if (!status && found == 0 && !o->quiet && !o->json && match)
        printf("no orphan has a name that matches %s\n", match);
    else if (!status && found == 0 && !o->quiet && !o->json)
        puts("no orphans: each accessible queue is open in some process, or "
             "has a worker");
    if (all.hidden && o->dry_run)
        complain(0,
                 "%zu process%s of other users cannot be inspected, and may "
                 "have these queues open",
                 all.hidden, all.hidden == 1 ? "" : "es");
    orphans_free(&all);
    queue_list_free(&n);
    return status ? status : worst;
}

/* ---- forget: delete the saved state of a removed queue ---- */

/* Print what was forgotten, or would be. */
static void forgotten_print(const struct options *o, const char *queue,
                            const struct kept *k)
{
    char text[KEPT_TEXT];

    kept_text(k, text);
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
               *text ? ", and deleted: " : "", text,
               k->unknown.status ? ", and unreadable messages" : "");
}

/* Delete the saved state. The caller holds the lock, so that no worker can
 * start meanwhile. Count the messages again, because a worker may have run
 * since the first count. Returns an exit status. */
static int forget_locked(const struct options *o, struct state_forget *f,
                         const char *queue)
{
    struct problem p = {0};
    const char *word;
    char text[KEPT_TEXT];
    struct snapshot_last last = {.locked = true};
    struct snapshot v;
    struct kept k;

    if (snapshot_again(&v, &last, o->state_dir, queue, false, &p) < 0)
        return complain_of(&p);
    kept_count(&k, &v);
    kept_text(&k, text);
    snapshot_close(&v);
    word = STATEDIR_OPERAND(v.dir.root, queue);
    /* Messages of a queue on a broker are not here. */
    if (!o->force && !v.broker &&
        (v.has_queue || v.no_queue.status != EX_NOINPUT))
        return complain(EX_UNAVAILABLE,
                        "queue %s still exists; remove it first, with mqctl "
                        "remove %s, or give --force to keep it and delete its "
                        "saved state",
                        queue, word);
    if (!o->force && k.unknown.status)
        return complain(k.unknown.status,
                        "cannot tell whether messages of %s are saved: %s; or "
                        "give --force",
                        queue, k.unknown.text);
    if (!o->force && *text)
        return complain(EX_UNAVAILABLE,
                        "messages of %s are saved in %s: %s; see mqctl list %s "
                        "and mqdlq list %s, or give --force to delete them",
                        queue, v.dir.folder, text, word, word);
    if (!o->dry_run) {
        kept_alive_remove(&v.dir);
        if (state_forget_run(f, &p) < 0)
            return complain_of(&p);
    }
    forgotten_print(o, queue, &k);
    return 0;
}

/* Delete the saved state of one queue; returns an exit status. */
static int forget_one(const struct options *o, const char *name)
{
    struct problem p = {0};
    struct state_forget f;
    struct snapshot v;
    int status = 0, err, found;

    if (snapshot_open(&v, o->state_dir, name, false, &p) < 0)
        return complain_of(&p);
    /* Refuse while a worker is running, even with --force. */
    if (v.worker == SNAPSHOT_RUNS)
        status = complain(
            EX_UNAVAILABLE,
            "worker %d is running on %s; stop it first, with mqctl stop "
            "--wait %s",
            (int)v.pid, v.queue, STATEDIR_OPERAND(v.dir.root, v.queue));
    else if (v.worker == SNAPSHOT_UNSEEN)
        status = complain(v.no_live.status,
                          "cannot tell whether a worker is running on %s: %s",
                          v.queue, v.no_live.text);
    else if (v.shut)
        status = complain(EX_NOPERM, "%s", v.no_store.text);
    err = status ? -EBUSY : state_forget_open(&f, &v.dir, &p);
    if (!err) {
        status = forget_locked(o, &f, v.queue);
        state_forget_close(&f);
    } else if (!status && err == -ENOENT) {
        /* There is no folder. If an earlier call was interrupted, finish its
         * work; that is a success. */
        found = o->dry_run ? NO : state_forget_finish(&v.dir, &p);
        if (found == NO)
            status = complain(EX_NOINPUT,
                              "nothing is saved of %s in %s; mqctl queues "
                              "lists the queues; see --state-dir",
                              v.queue, v.dir.root);
        else if (found < 0)
            status = complain_of(&p);
        else
            forgotten_print(o, v.queue, &(struct kept){0});
    } else if (!status) {
        status = complain_of(&p);
    }
    snapshot_close(&v);
    return status;
}

/* Forget the named queues. Returns the highest status. */
int forget_run(const struct options *o)
{
    int worst = 0, one;

    for (int i = 0; i < o->line.operand_count; i++) {
        one = forget_one(o, o->line.operands[i]);
        worst = worst > one ? worst : one;
    }
    return worst;
}
