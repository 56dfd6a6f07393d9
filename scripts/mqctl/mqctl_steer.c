/* mqctl_steer.c - see mqctl.h */
#include "scripts/mqctl/mqctl.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/base/queue_name.h"
#include "common/state/pause_note.h"
#include "common/state/state_forget.h"
#include "common/state/statedir.h"
#include "common/text/json_line.h"
#include "scripts/mqctl/mqctl_ask.h"
#include "common/text/complain.h"
#include "scripts/mqctl/mqctl_snapshot.h"

#define SILENT_NS NS_PER_S /* a wait that is longer says what it is for */

/* line_make - the verb and what stands after the queue */
static int line_make(const struct options *o, char line[STATEDIR_REQUEST])
{
    strlcpy(line, mqctl_table.verbs[o->line.verb].name, STATEDIR_REQUEST);
    for (int i = 1; i < o->line.operand_count; i++) {
        const char *word = o->line.operands[i];

        if (strpbrk(word, " \t\r\n"))
            return complain(EX_USAGE,
                            "%s: \"%s\" has a space in it; give NAME="
                            "VALUE without any, like backoff=1s,5s",
                            mqctl_table.verbs[o->line.verb].name, word);
        strlcat(line, " ", STATEDIR_REQUEST);
        if (strlcat(line, word, STATEDIR_REQUEST) >= STATEDIR_REQUEST)
            return complain(EX_USAGE,
                            "%s: too much at once; give less than %d "
                            "bytes",
                            mqctl_table.verbs[o->line.verb].name,
                            STATEDIR_REQUEST);
    }
    if (o->line.verb == VERB_STOP && o->wait) /* it may be asked again */
        strlcat(line, " once", STATEDIR_REQUEST);
    return 0;
}

/* text_of - a string of an object, or NULL. Not json_unpack, which needs
 * memory: a success is not told as a failure for want of it. */
static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

/* Say that changed settings end with the worker, and how to keep them. */
static void keep_print(const char *queue, const json_t *answer)
{
    const char *keep = text_of(answer, "keep");
    const char *config = text_of(answer, "config");

    if (keep && config)
        printf("%s: this lasts until the worker stops; to keep it, put %s into "
               "OPTIONS in %s\n",
               queue, keep, config);
    else if (keep)
        printf("%s: this lasts until the worker stops; to keep it, start the "
               "worker with %s, or under systemd put that into OPTIONS in "
               "/etc/mqworker/NAME.conf\n",
               queue, keep);
}

/* told - for a person */
static void told(const struct options *o, const char *queue, json_t *answer)
{
    static const char *const words[VERB_COUNT] = {
        [VERB_PAUSE] = "paused",   [VERB_RESUME] = "resumed",
        [VERB_DRAIN] = "draining", [VERB_STOP] = "stopping",
        [VERB_QUIT] = "quitting",
    };
    json_t *all = json_object_get(answer, "settings"), *one;
    char from[JSON_TEXT], to[JSON_TEXT];
    const char *name, *old, *new;
    size_t i;

    if (json_is_false(json_object_get(answer, "was_paused"))) {
        printf("%s: it was not paused\n", queue);
        return;
    }
    if (o->line.verb != VERB_SET) {
        printf("%s: %s%s%s\n", queue, words[o->line.verb],
               o->line.operand_count > 1    ? " for "
               : o->line.verb == VERB_PAUSE ? " until mqctl resume, also "
                                              "across restarts"
                                            : "",
               o->line.operand_count > 1 ? o->line.operands[1] : "");
        return;
    }
    json_array_foreach(all, i, one)
    {
        name = text_of(one, "name");
        old = json_as_text(json_object_get(one, "old"), from);
        new = json_as_text(json_object_get(one, "new"), to);
        if (name && old && new)
            printf("%s: %s %s -> %s\n", queue, name, old, new);
    }
    keep_print(queue, answer);
}

/* gone_wait - until the worker that was told to end has gone; an exit status */
static int gone_wait(const struct options *o, const struct statedir *dir,
                     const char *queue, pid_t pid)
{
    uint64_t first = o->wait_ns < SILENT_NS ? o->wait_ns : SILENT_NS;
    char time[DURATION_TEXT];
    int err;

    fflush(stdout); /* what was told already is not kept back by the wait */
    err = ask_until_gone(dir, pid, first);
    if (err && o->wait_ns > first) {
        if (!o->quiet)
            complain(0,
                     "waiting until worker %d of %s has gone: handlers run; "
                     "mqctl status %s shows what, mqctl quit %s ends them",
                     (int)pid, queue, queue, queue);
        err = ask_until_gone(dir, pid, o->wait_ns - first);
    }
    if (!err) {
        if (!o->quiet && !o->json)
            printf("%s: its worker has gone\n", queue);
        return 0;
    }
    return complain(EX_TEMPFAIL,
                    "worker %d of %s has not gone after %s: handlers run; see "
                    "mqctl status %s, or end them with mqctl quit %s",
                    (int)pid, queue, duration_print(o->wait_ns, time), queue,
                    queue);
}

/* Remove the note of a pause while no worker is running, so that the next one
 * takes messages. The lock keeps a worker from starting, and from reading the
 * note, meanwhile. Returns an exit status, or -ENOENT: no pause is kept. */
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
        (void)json_print_line(json_pack("{s:b, s:b}", "ok", 1, "was_paused", 1),
                              stdout);
    else if (!o->quiet)
        printf("%s: resumed; no worker is running, and the next one takes "
               "messages\n",
               queue);
    return 0;
}

/* steer_run - ask, and tell what came of it */
int steer_run(const struct options *o)
{
    char line[STATEDIR_REQUEST], queue[QUEUE_NAME_MAX];
    static struct statedir dir;
    struct problem p = {0};
    const char *error;
    json_t *answer;
    pid_t pid;
    int err, status = line_make(o, line);

    if (status)
        return status;
    if (snapshot_name(o->line.operands[0], queue, &p) < 0)
        return complain_of(&p);
    err = snapshot_folder(&dir, o->state_dir, queue, &p);
    pid = err ? 0 : ask_runs(&dir); /* another may run when this one has gone */
    err = err ? err : ask(&dir, queue, line, &answer, &p);
    if (err && p.status == EX_UNAVAILABLE && o->line.verb == VERB_RESUME &&
        dir.folder[0]) {
        status = resume_here(o, &dir, queue);
        if (status >= 0)
            return status;
    }
    if (err) {
        if (p.status == EX_UNAVAILABLE) /* nobody to ask */
            (void)subcommand_names_check(&mqctl_table, &o->line, &p);
        return complain_of(&p);
    }
    if (!json_is_true(json_object_get(answer, "ok"))) {
        status = (int)json_integer_value(json_object_get(answer, "status"));
        status = status ? status : EX_SOFTWARE;
    }
    if (o->json)
        (void)json_print_line(json_incref(answer), stdout);
    else if (!status && !o->quiet)
        told(o, queue, answer);
    error = text_of(answer, "error");
    if (status)
        complain(status, "%s", error ? error : "it does not say why");
    error = text_of(answer, "not_saved");
    if (error)
        complain(0,
                 "%s: done, but it could not be saved in %s: %s; a restart "
                 "before that would not know of it",
                 queue, dir.folder, error);
    json_decref(answer);
    return status || !o->wait ? status : gone_wait(o, &dir, queue, pid);
}
