/* file_notices.c - what is said of files that are not where they belong (see
 * file_watch_inner.h) */
#include "worker/files/file_watch_inner.h"

#include <stdio.h>
#include <string.h>
#include <bsd/string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "worker/flow/flow.h"

#define HELD "nothing is taken; "

static const char *const what[] = {
    [AWAY] = "was moved away",
    [TAKEN] = "was replaced by another file",
    [REMOVED] = "was removed",
};

/* advice_for - what becomes of it, and what to do */
static const char *advice_for(enum state state, bool store)
{
    switch (state) {
    case REMOVED:
        return store ? HELD "wait: the worker writes it again by itself within "
                            "seconds; do not kill it before event=file_back"
                     : HELD "wait: the worker writes it again by itself once "
                            "what runs has ended; do not kill it before "
                            "event=file_back";
    case TAKEN:
        return HELD "move the other file away, then put the worker's own back; "
                    "if that was removed the worker writes it again; do not "
                    "kill it before event=file_back";
    default:
        return HELD "put it back there (mv, mount), and the worker goes on by "
                    "itself; do not kill it before event=file_back";
    }
}

/* trouble_write - of one file; its name alone says enough beside its path */
static void trouble_write(struct file_trouble *t, const struct file *f,
                          const char *wrong, const char *next)
{
    const char *slash = strrchr(f->path, '/');

    snprintf(t->text, sizeof t->text, "%.40s %s", slash ? slash + 1 : f->path,
             wrong);
    strlcpy(t->path, f->path, sizeof t->path);
    strlcpy(t->next, next + strlen(HELD), sizeof t->next);
}

void file_notices_publish(struct file_watch *w)
{
    const struct file *f = files_gone(w, STORE, CUSTODY), *ro = w->read_only;
    char mount[PATH_MAX];

    if (ro && !w->told_ro)
        snprintf(w->ro_next, sizeof w->ro_next,
                 HELD "look for its error in dmesg, then mount -o remount,rw "
                      "%s and the worker goes on by itself; after an error of "
                      "the disk stop it, umount, fsck, mount and start it",
                 mount_point(ro->path, mount));
    pthread_mutex_lock(&w->mtx);
    if (f)
        trouble_write(&w->trouble, f, what[f->state],
                      advice_for(f->state, f != &w->files[CUSTODY]));
    else if (ro)
        trouble_write(&w->trouble, ro, "is on a read-only file system",
                      w->ro_next);
    else
        w->trouble.text[0] = w->trouble.path[0] = w->trouble.next[0] = '\0';
    pthread_mutex_unlock(&w->mtx);
}

void file_watch_trouble(struct file_watch *w, struct file_trouble *out)
{
    pthread_mutex_lock(&w->mtx);
    *out = w->trouble;
    pthread_mutex_unlock(&w->mtx);
}

/* tell - once when one of `first` to `last` is gone, once when all are back */
static void tell(struct file_watch *w, enum part first, enum part last,
                 const char *advice)
{
    const struct file *f = files_gone(w, first, last);
    unsigned bit = 1u << first;

    if (f && !(w->told & bit)) {
        w->told |= bit;
        LOG_AT(first < PIDFILE ? LOG_ERROR : LOG_WARN, "file_gone",
               F_STR("queue", w->with.flow->set->queue), F_STR("file", f->path),
               F_STR("what", what[f->state]),
               F_STR("next",
                     advice ? advice : advice_for(f->state, first == STORE)));
    } else if (!f && w->told & bit) {
        w->told &= ~bit;
        w->told_error = false;
        log_info("file_back", F_STR("queue", w->with.flow->set->queue),
                 F_STR("file", w->files[first].path));
    }
}

/* tell_read_only - once, and when it is over */
static void tell_read_only(struct file_watch *w)
{
    const struct file *f = w->read_only;

    if (f && !w->told_ro)
        log_error("read_only", F_STR("queue", w->with.flow->set->queue),
                  F_STR("file", f->path), F_STR("next", w->ro_next));
    else if (!f && w->told_ro)
        log_info("writable_again", F_STR("queue", w->with.flow->set->queue));
    w->told_ro = f != NULL;
}

void file_notices_tell(struct file_watch *w)
{
    static const char note[] = "the worker goes on, and writes it again: it "
                               "says where messages in flight are";

    tell_read_only(w);
    tell(w, STORE, STORE_SHM, NULL);
    tell(w, CUSTODY, CUSTODY, NULL);
    tell(w, PIDFILE, PIDFILE,
         "no second worker can start all the same; it is written again");
    tell(w, COUNTERS, COUNTERS,
         "the worker goes on; mqctl cannot see its numbers before file_back: "
         "they are written again when no handler runs for a moment");
    tell(w, NOTE, NOTE, note);
    tell(w, OWNER, OWNER, note);
    tell(w, ENDS, ENDS,
         "the worker goes on, and writes it again; do not kill it before "
         "event=file_back, or messages of the spool run twice, and say so");
}

void file_not_written(struct file_watch *w, const char *path, const char *error)
{
    if (!w->told_error)
        log_error("file_not_written", F_STR("queue", w->with.flow->set->queue),
                  F_STR("file", path), F_STR("error", error),
                  F_STR("next", "nothing is taken; do what the error says: it "
                                "is tried again each second. Do not kill the "
                                "worker; what it has open is all there is"));
    w->told_error = true;
}
