/* steer.c - mqctl pause, resume, set, drain, stop and quit
 *
 * main and the children of mqctl serve call steer_run on their only thread. It
 * sends the order as one line to the control socket of each worker. A pause
 * outlives its worker, so resume also works without a worker.
 */
#include "scripts/mqctl/mqctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/state/pause_note.h"
#include "common/state/state_forget.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/queue_list.h"

#define SILENT_NS NS_PER_S /* a longer wait prints its reason */

/* The verbs, and what is printed once the worker has obeyed. */
static const struct {
    const char *name, *done;
} orders[VERB_COUNT] = {
    [VERB_PAUSE] = {"pause", "paused"}, [VERB_RESUME] = {"resume", "resumed"},
    [VERB_SET] = {"set", NULL},         [VERB_DRAIN] = {"drain", "draining"},
    [VERB_STOP] = {"stop", "stopping"}, [VERB_QUIT] = {"quit", "quitting"},
};

/* Return true for a set without NAME=VALUE, which lists the settings that the
 * worker can change. */
static bool settings_listed(const struct options *o)
{
    return o->line.verb == VERB_SET && o->line.operand_count == 1;
}

/* Print what the worker did, in words. */
static void answer_print(const struct options *o, const char *queue,
                         json_t *answer)
{
    json_t *all = json_object_get(answer, "settings"), *one;
    const char *keep = json_text_of(answer, "keep");
    const char *config = json_text_of(answer, "config");
    char from[JSON_TEXT], to[JSON_TEXT];
    const char *name, *old, *new;
    size_t i;

    if (json_is_false(json_object_get(answer, "was_paused"))) {
        printf("%s: was not paused\n", queue);
        return;
    }
    if (o->line.verb != VERB_SET) {
        printf("%s: %s%s%s\n", queue, orders[o->line.verb].done,
               o->pause_for                 ? " for "
               : o->line.verb == VERB_PAUSE ? " until mqctl resume, also "
                                              "across restarts"
                                            : "",
               o->pause_for ? o->pause_for : "");
        return;
    }
    json_object_foreach(all, name, one) if (json_as_text(one, to))
        printf("%s=%s\n", name, json_as_text(one, to));
    json_array_foreach(all, i, one)
    {
        name = json_text_of(one, "name");
        old = json_as_text(json_object_get(one, "old"), from);
        new = json_as_text(json_object_get(one, "new"), to);
        if (name && old && new)
            printf("%s: %s %s -> %s\n", queue, name, old, new);
    }
    if (keep && config)
        printf("%s: this lasts until the worker stops; to keep it, put %s into "
               "OPTIONS in %s\n",
               queue, keep, config);
    else if (keep)
        printf("%s: this lasts until the worker stops; to keep it, start the "
               "worker with %s, or with systemd put that into OPTIONS in "
               "/etc/mqworker/NAME.conf\n",
               queue, keep);
}

/* A worker that was given the order. */
struct ordered {
    struct statedir dir;
    char queue[QUEUE_NAME_MAX];
    pid_t pid;
};

/* Wait until the worker has exited, or until `end_ns`; returns an exit
 * status. */
static int gone_wait(const struct options *o, const struct ordered *w,
                     uint64_t end_ns)
{
    uint64_t now = clock_mono_ns(), left = now < end_ns ? end_ns - now : 0;
    uint64_t first = left < SILENT_NS ? left : SILENT_NS;
    char time[DURATION_TEXT];
    int err;

    fflush(stdout); /* show the lines of other workers before waiting */
    err = ask_until_gone(&w->dir, w->pid, first);
    if (err && left > first) {
        if (!o->quiet)
            complain(0,
                     "waiting for worker %d of %s to exit: handlers are "
                     "running; mqctl status %s shows them, mqctl quit %s "
                     "terminates them",
                     (int)w->pid, w->queue,
                     STATEDIR_OPERAND(w->dir.root, w->queue),
                     STATEDIR_OPERAND(w->dir.root, w->queue));
        err = ask_until_gone(&w->dir, w->pid, left - first);
    }
    if (!err) {
        if (!o->quiet && !o->json)
            printf("%s: worker stopped\n", w->queue);
        return 0;
    }
    return complain(
        EX_TEMPFAIL,
        "worker %d of %s has not exited after %s: handlers are "
        "running; see mqctl status %s, or terminate them with mqctl "
        "quit %s",
        (int)w->pid, w->queue, duration_print(o->wait_ns, time),
        STATEDIR_OPERAND(w->dir.root, w->queue),
        STATEDIR_OPERAND(w->dir.root, w->queue));
}

/* Remove the note of a pause while no worker is running, so that the next
 * worker takes messages. Hold the lock during this, so that no worker starts
 * and reads the note. Returns an exit status, or -ENOENT if there is no
 * note. */
static int resume_here(const struct options *o, const struct statedir *dir,
                       const char *queue)
{
    struct state_forget lock;
    struct pause_note note;
    struct problem p;
    int err;

    if (pause_note_read(&note, dir->folder) < 0)
        return -ENOENT;
    err = state_forget_open(&lock, dir, &p);
    if (err == -ENOENT)
        return err;
    if (err)
        return complain_of(&p);
    err = pause_note_remove(dir->folder);
    state_forget_close(&lock);
    if (err)
        return complain(EX_CANTCREAT,
                        "cannot remove %s/pause: %s; run as the "
                        "worker's user or root",
                        dir->folder, errno_text(-err));
    if (o->json)
        (void)json_print_line(json_pack("{s:b, s:b, s:o}", "ok", 1,
                                        "was_paused", 1, "queue",
                                        json_printable(queue)),
                              stdout);
    else if (!o->quiet)
        printf("%s: resumed; no worker is running, and the next one will take "
               "messages\n",
               queue);
    return 0;
}

/* Give the order to the worker of one queue; returns an exit status. */
static int order_give(const struct options *o, const char *name,
                      const char *line, struct ordered *w)
{
    struct problem p = {0};
    json_t *answer = NULL, *all;
    const char *error, *unsaved;
    int err, status;

    *w = (struct ordered){.pid = 0};
    if (snapshot_name(name, w->queue, &p) < 0)
        return complain_of(&p);
    err = snapshot_named_folder(&w->dir, o->state_dir, w->queue, &p);
    if (!err) {
        w->pid = ask_runs(&w->dir); /* before a new worker can start */
        err = ask(&w->dir, w->queue, line, &answer, &p);
    }
    if (err && p.status == EX_UNAVAILABLE && o->line.verb == VERB_RESUME &&
        w->dir.folder[0]) {
        status = resume_here(o, &w->dir, w->queue);
        if (status >= 0)
            return status;
    }
    if (err)
        return complain_of(&p);
    status = ask_status(answer, &error);
    if (o->json && !status && settings_listed(o)) { /* drop other fields */
        all = json_incref(json_object_get(answer, "settings"));
        (void)json_object_clear(answer);
        (void)json_object_set_new(answer, "ok", json_true());
        (void)json_object_set_new(answer, "settings", all);
    }
    if (o->json) {
        (void)json_object_set_new(answer, "queue", json_printable(w->queue));
        (void)json_print_line(json_incref(answer), stdout);
    } else if (!status && !o->quiet) {
        answer_print(o, w->queue, answer);
    }
    if (status)
        complain(status, "%s: %s", w->queue, error);
    unsaved = json_text_of(answer, "not_saved");
    if (unsaved)
        complain(0,
                 "%s: done, but not yet saved in %s: %s. The worker keeps "
                 "trying; a restart before that loses the change",
                 w->queue, w->dir.folder, unsaved);
    json_decref(answer);
    return status;
}

/* Build the request from the verb and its arguments except the queues, give it
 * to each worker, then wait for the exiting ones. Returns the highest exit
 * status. */
static int orders_give(const struct options *o, char *const *names,
                       size_t count)
{
    uint64_t end_ns = ns_add(clock_mono_ns(), o->wait_ns);
    const char *verb = orders[o->line.verb].name;
    int end = o->line.verb == VERB_SET ? o->line.operand_count : 1;
    char line[STATEDIR_REQUEST];
    struct ordered *all;
    int status = 0, one;
    size_t ordered = 0;

    strlcpy(line, settings_listed(o) ? "status" : verb, sizeof line);
    for (int i = o->pause_for ? 0 : 1; i < end; i++) {
        const char *word = i == 0 ? o->pause_for : o->line.operands[i];

        if (strpbrk(word, " \t\r\n"))
            return complain(EX_USAGE,
                            "%s: \"%s\" contains a space; give NAME=VALUE "
                            "without spaces, like backoff=1s,5s",
                            verb, word);
        strlcat(line, " ", sizeof line);
        if (strlcat(line, word, sizeof line) >= sizeof line)
            return complain(EX_USAGE,
                            "%s: the arguments are too long; give less than %d "
                            "bytes",
                            verb, STATEDIR_REQUEST);
    }
    /* With "once", a repeated stop does not skip the rest of the grace. */
    if (o->line.verb == VERB_STOP && o->wait)
        strlcat(line, " once", sizeof line);
    all = calloc(count + 1, sizeof *all);
    if (!all)
        return complain_memory();
    for (size_t i = 0; i < count; i++) {
        one = order_give(o, names[i], line, &all[ordered]);
        ordered += one == 0;
        status = status > one ? status : one;
    }
    for (size_t i = 0; o->wait && i < ordered; i++) {
        one = gone_wait(o, &all[i], end_ns);
        status = status > one ? status : one;
    }
    free(all);
    return status;
}

int steer_run(const struct options *o)
{
    struct queue_list n = {0};
    static struct statedir dir;
    struct pause_note note;
    struct problem p = {0};
    size_t kept = 0;
    const int count = o->line.operand_count;
    const char *last = count > 1 ? o->line.operands[count - 1] : "/";
    char name[QUEUE_NAME_MAX];
    int status;

    /* Refuse a last operand of pause that is neither a duration nor a queue,
     * before pausing anything: it may be a mistyped duration. */
    if (o->line.verb == VERB_PAUSE && !o->pause_for && last[0] != '/' &&
        (snapshot_name(last, name, &p) < 0 ||
         (snapshot_folder(&dir, o->state_dir, name, &p) < 0 &&
          p.status != EX_NOPERM)))
        return complain(EX_USAGE,
                        "pause: \"%s\" is neither a duration like 10m nor a "
                        "queue that a worker has used; nothing was paused",
                        last);
    if (!o->all)
        return orders_give(o, o->line.operands,
                           o->line.verb == VERB_SET ? 1 : (size_t)count);
    if (queue_list_of_all_workers(&n, o->state_dir) < 0)
        return complain_memory();
    /* Keep the queues with a worker, and for resume also queues with a saved
     * pause. */
    for (size_t i = 0; i < n.count; i++)
        if (snapshot_folder(&dir, o->state_dir, n.at[i], &p) == 0 &&
            (worker_phase(&dir) != WORKER_PHASE_NONE ||
             (o->line.verb == VERB_RESUME &&
              pause_note_read(&note, dir.folder) == 0)))
            n.at[kept++] = n.at[i];
        else
            free(n.at[i]);
    n.count = kept;
    if (n.folder_trouble[0])
        status = complain(EX_CANTCREAT, "%s", n.folder_trouble);
    else if (n.count == 0)
        status = complain(EX_UNAVAILABLE, "no worker is running with this "
                                          "state directory; see --state-dir");
    else
        status = orders_give(o, n.at, n.count);
    queue_list_free(&n);
    return status;
}
