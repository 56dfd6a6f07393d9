/* file_watch.c - files of a running worker that are removed, moved or replaced
 * (see file_watch.h)
 *
 * A descriptor keeps a file alive even if its name is removed: without a check,
 * the worker would run as before and lose everything when it exits. So each
 * file is checked by its name and by its link count. The check is a chore on a
 * pool thread, because a file system may take long to answer.
 */
#include "worker/files/file_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "worker/files/pid_file.h"
#include "worker/flow/flow.h"
#include "worker/loop/chore.h"
#include "worker/loop/loop.h"
#include "worker/source/mq/source_mq.h"

#define AGAIN_NS NS_PER_S        /* between checks while a file is missing */
#define SLOW_NS  (60 * NS_PER_S) /* between checks without inotify, when idle */

/* Changes of names and attributes; ordinary writes cause no event. */
#define FOLDER_EVENTS                                                  \
    (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define ABOVE_EVENTS (IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* The files, most important first: if several are gone, the first is reported.
 * The worker takes no messages unless all files before PIDFILE are in place. */
enum part {
    STORE,
    STORE_WAL,
    STORE_SHM,
    CUSTODY,
    PIDFILE,
    COUNTERS,
    NOTE,    /* in the state folder; has the path of the runtime folder */
    CONTROL, /* the socket; may not exist */
    ENDS,    /* exists only after the spool was turned on */
    PARTS
};

static const struct {
    const char *name;
    bool runtime; /* in the runtime folder, not in the state folder */
} places[PARTS] = {
    [STORE] = {STATEDIR_STORE, false},
    [STORE_WAL] = {STATEDIR_STORE "-wal", false},
    [STORE_SHM] = {STATEDIR_STORE "-shm", false},
    [CUSTODY] = {RUNTIMEDIR_CUSTODY, true},
    [PIDFILE] = {STATEDIR_PIDFILE, false},
    [COUNTERS] = {RUNTIMEDIR_COUNTERS, true},
    [NOTE] = {RUNTIMEDIR_NOTE, false},
    [CONTROL] = {STATEDIR_CONTROL, false},
    [ENDS] = {RUNTIMEDIR_ENDS, true},
};

enum state {
    THERE,
    AWAY,    /* moved to another name, or below an unmounted path */
    TAKEN,   /* replaced: another file has its name */
    REMOVED, /* without a name: lost when this process exits */
};

struct file {
    char path[PATH_MAX]; /* constant after open */
    int fd;              /* O_PATH; -1: there is no such file to watch */
    struct stat id;      /* of fd */
    struct stat name;    /* of the file that has the name, if state is TAKEN */
    enum state state;
};

/* c = constant after open   m = under mtx
 * The other fields belong to the chore while the worker is running, and to the
 * engine's thread before and after. */
struct file_watch {
    struct file_watch_setup with; /* c */
    struct loop_source source;    /* c  inotify; fd -1: none */
    struct chore chore;           /* runs the checks */
    struct file files[PARTS];
    const struct file *read_only; /* file on a read-only file system, or NULL */
    struct stat copy; /* a copy of the store that files_restore wrote but could
                         not open */
    unsigned lost; /* number of files that were not THERE at the last check */
    uint64_t calm_ns; /* earliest time of a restart: AGAIN_NS after a loss */
    const struct file *logged_gone; /* in the last event=file_gone, or NULL */
    enum state logged_state;        /* state of that file in the log */
    bool logged_ro;                 /* event=read_only was logged */
    bool stopped;                   /* the chore was stopped */
    bool saved;                     /* the store was copied to another name */
    bool logged_error;              /* event=file_not_written was logged */
    char ro_next[FILE_NEXT];        /* what to do about `read_only` */
    pthread_mutex_t mtx;
    struct file_trouble trouble; /* m */
};

/* ---- checking ---- */

/* Return true if no name leads to the file. */
static bool file_is_unnamed(const struct file *f)
{
    struct stat now;

    return f->fd >= 0 && fstat(f->fd, &now) == 0 && now.st_nlink == 0;
}

/* Watch the file that has the name now. The descriptor is O_PATH: closing it
 * drops no lock that SQLite has on the file (fcntl(2)), and it does not keep
 * the content alive on its own. */
static void file_adopt(struct file *f)
{
    fd_close(&f->fd);
    f->fd = open(f->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (f->fd >= 0)
        (void)fstat(f->fd, &f->id);
    f->state = THERE;
}

/* Return the first file from `first` to `last` that is not THERE, or NULL. */
static const struct file *file_find_gone(const struct file_watch *w,
                                         enum part first, enum part last)
{
    for (enum part i = first; i <= last; i++)
        if (w->files[i].state != THERE)
            return &w->files[i];
    return NULL;
}

/* Return true if the file takes no more writes. statvfs(3) does not report the
 * read-only state after an error (ext4 since Linux 6.15, xfs), but an open for
 * writing fails in that state, and changes nothing otherwise. The path in /proc
 * leads to this file even if another file has its name. */
static bool file_is_read_only(const struct file *f)
{
    char path[64];
    int fd;

    if (f->fd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", f->fd);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == EROFS || errno == EIO;
    close(fd);
    return false;
}

/* ---- the log, and mqctl status ---- */

#define HELD "nothing is taken; "

static const char *const states[] = {
    [AWAY] = "was moved away",
    [TAKEN] = "was replaced by another file",
    [REMOVED] = "was removed",
};

/* Return the advice for a missing file: what the worker does next, and what the
 * operator should do. */
static const char *advice_for(const struct file_watch *w, const struct file *f)
{
    if (f >= &w->files[PIDFILE])
        return "the worker restarts by itself and makes the file again";
    switch (f->state) {
    case REMOVED:
        return HELD "wait: when its handlers have finished, or after --grace, "
                    "the worker writes its messages in flight into the store "
                    "and restarts; do not kill it before event=started";
    case TAKEN:
        return HELD "move the other file away, then put the original back; if "
                    "the original was removed, the worker restarts by itself; "
                    "do not kill it before event=file_back or event=started";
    default:
        return HELD "put it back there (mv, mount), and the worker resumes by "
                    "itself; do not kill it before event=file_back";
    }
}

/* Publish the file that keeps messages from being taken. The text has only the
 * name of the file, because the path is in a field of its own. */
static void trouble_publish(struct file_watch *w)
{
    const struct file *f = file_find_gone(w, STORE, CUSTODY);
    const struct file *ro = w->read_only, *at = f ? f : ro;
    const char *wrong = f ? states[f->state] : "is on a read-only file system";
    const char *slash = at ? strrchr(at->path, '/') : NULL;
    struct file_trouble *t = &w->trouble;
    char mount[PATH_MAX];

    if (ro && !w->logged_ro)
        snprintf(w->ro_next, sizeof w->ro_next,
                 HELD "look for the error in dmesg, then mount -o remount,rw "
                      "%s, and the worker resumes by itself; after a disk "
                      "error, stop the worker, umount, fsck, mount, start it",
                 mount_point(ro->path, mount));
    pthread_mutex_lock(&w->mtx);
    t->text[0] = t->path[0] = t->next[0] = '\0';
    if (at) {
        snprintf(t->text, sizeof t->text, "%.40s %s",
                 slash ? slash + 1 : at->path, wrong);
        strlcpy(t->path, at->path, sizeof t->path);
        strlcpy(t->next, (f ? advice_for(w, f) : w->ro_next) + strlen(HELD),
                sizeof t->next);
    }
    pthread_mutex_unlock(&w->mtx);
}

void file_watch_trouble(struct file_watch *w, struct file_trouble *out)
{
    pthread_mutex_lock(&w->mtx);
    *out = w->trouble;
    pthread_mutex_unlock(&w->mtx);
}

/* Log, once until it works, that a file or folder cannot be written. */
static void error_log(struct file_watch *w, const char *path, const char *error)
{
    if (!w->logged_error)
        log_error("file_not_written", F_STR("queue", w->with.flow->set->queue),
                  F_STR("file", path), F_STR("error", error),
                  F_STR("next", "fix the error: the worker tries again every "
                                "second, then restarts. Do not kill it: only "
                                "this process still has the data"));
    w->logged_error = true;
}

/* `on`: hold the gate for each kind of file that is missing or read-only.
 * Otherwise release the holds whose reason has passed. */
static void holds_set(struct file_watch *w, bool on)
{
    const struct {
        unsigned bit;
        bool held;
    } holds[] = {
        {HOLD_STORE_GONE, file_find_gone(w, STORE, STORE_SHM) != NULL},
        {HOLD_CUSTODY_GONE, file_find_gone(w, CUSTODY, CUSTODY) != NULL},
        {HOLD_READ_ONLY, w->read_only != NULL},
    };
    struct gate *g = &w->with.flow->gate;

    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
        if (holds[i].held != on || gate_held(g, holds[i].bit) == on)
            continue;
        if (on)
            gate_hold(g, holds[i].bit);
        else
            gate_unhold(g, holds[i].bit);
    }
}

/* Check all files, then update the gate, the log and the source. Returns true
 * if all files are in place and writable. The gate is held before a loss is
 * logged and released after event=file_back: no message is taken in between.
 * Each change is logged once. */
static bool files_look(struct file_watch *w)
{
    const struct log_field queue = F_STR("queue", w->with.flow->set->queue);
    const struct file *gone, *ro;
    unsigned lost = 0;

    for (enum part i = 0; i < PARTS; i++) {
        struct file *f = &w->files[i];
        bool named;

        if (i == ENDS && f->fd < 0)
            file_adopt(f);
        named = stat(f->path, &f->name) == 0;
        f->state = f->fd < 0 || (named && file_same(&f->name, &f->id)) ? THERE
                   : named                                             ? TAKEN
                   : file_is_unnamed(f)                                ? REMOVED
                                                                       : AWAY;
        lost += f->state != THERE;
    }
    /* To find out whether the store is read-only, open the pidfile beside it:
     * to open and close the store would drop SQLite's locks (fcntl(2)). */
    ro = file_is_read_only(&w->files[PIDFILE])   ? &w->files[STORE]
         : file_is_read_only(&w->files[CUSTODY]) ? &w->files[CUSTODY]
                                                 : NULL;
    w->read_only = ro;
    gone = file_find_gone(w, STORE, ENDS);
    if (lost > w->lost) /* more files may be lost soon */
        w->calm_ns = clock_mono_ns() + AGAIN_NS;
    w->lost = lost;
    trouble_publish(w);
    atomic_store(&w->with.mq->store_gone,
                 file_find_gone(w, STORE, STORE_SHM) != NULL);
    holds_set(w, true);
    if (ro && !w->logged_ro)
        log_error("read_only", queue, F_STR("file", ro->path),
                  F_STR("next", w->ro_next));
    else if (!ro && w->logged_ro)
        log_info("writable_again", queue);
    w->logged_ro = ro != NULL;
    if (gone && (gone != w->logged_gone || gone->state != w->logged_state)) {
        LOG_AT(gone < &w->files[PIDFILE] ? LOG_ERROR : LOG_WARN, "file_gone",
               queue, F_STR("file", gone->path),
               F_STR("what", states[gone->state]),
               F_STR("next", advice_for(w, gone)));
        w->logged_state = gone->state;
    } else if (!gone && w->logged_gone) {
        w->logged_error = false;
        log_info("file_back", queue, F_STR("file", w->logged_gone->path));
    }
    w->logged_gone = gone;
    holds_set(w, false);
    return lost == 0 && !ro;
}

/* ---- after a removal ---- */

/* Return true if the worker can restart: a file is missing, the store takes
 * writes, and no file of the store or custody might still be put back. */
static bool may_restart(const struct file_watch *w)
{
    for (enum part i = STORE; i < PIDFILE; i++) {
        const struct file *f = &w->files[i];

        if (f->state == AWAY ||
            (f->state == TAKEN && !file_same(&w->copy, &f->name)))
            return false;
    }
    return w->lost > 0 && !w->read_only;
}

/* Make the folders and the store again, so that the stop can write messages in
 * flight into the store. If that fails, the worker keeps running without taking
 * messages and tries again later, because only its descriptors still lead to
 * the data.
 * Crash before the store has its name: its content is lost with the process.
 * Crash before or after the note: a start with this worker's runtime folder
 * finds the messages in flight there, and the store. */
static int files_restore(struct file_watch *w)
{
    struct file *f = w->files;
    /* The new file may replace the store itself, if only its -wal or -shm is
     * missing, and an earlier copy that could not be opened. */
    const struct stat replace[2] = {f[STORE].id, w->copy};
    const struct settings *set = w->with.flow->set;
    const char *folder = w->with.dir->folder, *why = "";
    char runtime[PATH_MAX];
    struct problem p = {0};
    struct pid_file *lock;
    struct statedir dir;
    int err = 0;

    /* A new state folder is locked before anything is written there, because
     * another worker may have been started on it. Only then is the lock of the
     * removed folder released. */
    if (!pid_file_has_folder(*w->with.lock)) {
        err = statedir_open(&dir, set->state_dir, set->queue, true, &p);
        if (!err)
            err = pid_file_open(&lock, f[PIDFILE].path, set->queue, &p);
        if (!err) {
            pid_file_close(w->with.lock);
            *w->with.lock = lock;
            file_adopt(&f[PIDFILE]);
        }
        why = p.text;
    }
    if (!err) {
        folder = w->with.runtime->folder;
        strlcpy(runtime, folder, sizeof runtime);
        err = folder_make(runtime);
        why = errno_text(-err);
    }
    if (err) {
        error_log(w, folder, why);
        return -ENOENT;
    }
    if (file_find_gone(w, STORE, STORE_SHM)) {
        err = store_put_back(w->with.mq->store, f[STORE].path, replace, &p);
        if (err) {
            if (err == -EEXIST || stat(f[STORE].path, &w->copy) < 0)
                w->copy = (struct stat){0};
            error_log(w, f[STORE].path, p.text);
            return -ENOENT;
        }
        for (enum part i = STORE; i <= STORE_SHM; i++)
            file_adopt(&f[i]);
    }
    /* Without the note, a start after a kill would look for messages in flight
     * in the default folder of the state directory, but this worker's runtime
     * folder may be another one. */
    if (f[NOTE].state != THERE) {
        FAULT_POINT("restart_note_before");
        err = runtimedir_note(w->with.runtime, w->with.dir);
        if (err) {
            error_log(w, f[NOTE].path, errno_text(-err));
            return err;
        }
        FAULT_POINT("restart_note_after");
        file_adopt(&f[NOTE]);
    }
    return 0;
}

/* ---- when to check ---- */

/* Watch both folders, and each folder above them. Called after each loss, since
 * there may be new folders at the same paths; watching a folder twice is
 * harmless. */
static void folders_watch(struct file_watch *w)
{
    const char *folders[] = {w->with.dir->folder, w->with.runtime->folder};
    char path[PATH_MAX];
    char *slash;

    for (size_t i = 0; i < 2 && w->source.fd >= 0; i++) {
        strlcpy(path, folders[i], sizeof path);
        (void)inotify_add_watch(w->source.fd, path, FOLDER_EVENTS);
        while ((slash = strrchr(path, '/')) != NULL && slash > path) {
            *slash = '\0';
            (void)inotify_add_watch(w->source.fd, path,
                                    ABOVE_EVENTS | IN_MASK_ADD);
        }
    }
}

/* Chore: check the files, and restart the worker if a file was removed. The
 * restart waits until no file has been lost for a second, so that it does not
 * race with a running `rm -r`. */
static int files_watch_run(struct chore *chore)
{
    struct file_watch *w = CONTAINER_OF(chore, struct file_watch, chore);
    bool fine = files_look(w);

    if (!fine && clock_mono_ns() >= w->calm_ns && may_restart(w) &&
        files_restore(w) == 0) {
        (void)files_look(w); /* verdicts can be written again */
        w->with.there(w->with.pause);
        timers_start(w->with.flow->timers, w->with.again, clock_mono_ns());
        return 0;
    }
    if (!fine) {
        folders_watch(w);
        return -ENOENT;
    }
    w->with.there(w->with.pause);
    if (w->source.fd < 0)
        chore_after(chore, SLOW_NS);
    return 0;
}

/* Check the files soon after a name changed in one of the folders or above. */
static void folder_changed(struct loop_source *source)
{
    struct file_watch *w = CONTAINER_OF(source, struct file_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    chore_soon(&w->chore);
}

void file_watch_soon(struct file_watch *w)
{
    if (w)
        chore_soon(&w->chore);
}

/* Hold the gate until the first check is complete, which releases the hold.
 * Another thread may have begun that check already. */
void file_watch_start(struct file_watch *w)
{
    gate_hold(&w->with.flow->gate, HOLD_READ_ONLY);
    chore_run(&w->chore);
}

int file_watch_open(struct file_watch **out,
                    const struct file_watch_setup *setup, struct problem *p)
{
    struct flow *flow = setup->flow;
    struct file_watch *w = calloc(1, sizeof *w);
    int err = 0, unwatched;

    *out = NULL;
    if (!w)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    w->with = *setup;
    w->chore = (struct chore){.run = files_watch_run,
                              .first_ns = AGAIN_NS,
                              .most_ns = AGAIN_NS,
                              .timers = flow->timers,
                              .pool = &flow->pool};
    chore_init(&w->chore);
    pthread_mutex_init(&w->mtx, NULL);
    w->source.ready = folder_changed;
    w->source.fd = -1;
    for (enum part i = 0; i < PARTS; i++)
        w->files[i].fd = -1;
    for (enum part i = 0; i < PARTS && !err; i++) {
        struct file *f = &w->files[i];
        const char *folder =
            places[i].runtime ? setup->runtime->folder : setup->dir->folder;

        if (!folder_join(f->path, folder, "/", places[i].name))
            err = problem_set(p, EX_CANTCREAT, ENAMETOOLONG, "%s/%s: %s",
                              folder, places[i].name, errno_text(ENAMETOOLONG));
        else
            file_adopt(f);
        if (!err && f->fd < 0 && i < COUNTERS)
            err = problem_set(p, EX_CANTCREAT, errno, "%s: %s", f->path,
                              errno_text(errno));
    }
    *out = w;
    if (err) {
        file_watch_close(out);
        return err;
    }
    w->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    unwatched =
        w->source.fd < 0 ? -errno : loop_add(flow->loop, &w->source, EPOLLIN);
    if (unwatched) {
        fd_close(&w->source.fd);
        log_info("files_not_watched", F_STR("queue", flow->set->queue),
                 F_STR("error", errno_text(-unwatched)),
                 F_STR("next", "the worker notices a removed file within "
                               "seconds while messages arrive (later if "
                               "millions wait in the store), otherwise within "
                               "a minute; to be notified immediately, raise "
                               "fs.inotify.max_user_instances"));
    }
    folders_watch(w);
    return 0;
}

void file_watch_last(struct file_watch *w)
{
    const struct file *store = &w->files[STORE];
    const char *queue = w->with.flow->set->queue;
    char saved[PATH_MAX];
    int err;

    if (!w->stopped) {
        chore_stop(&w->chore);
        w->stopped = true;
        w->logged_error = false;
    }
    if (files_look(w))
        return;
    if ((!may_restart(w) || files_restore(w) < 0) && !w->saved &&
        file_is_unnamed(store)) {
        /* The store could not be written under its own name. */
        snprintf(saved, sizeof saved, "%.4000s.saved-%d", store->path,
                 (int)getpid());
        err = store_put_back(w->with.mq->store, saved, NULL, NULL);
        /* Even a copy that could not be opened is complete. */
        if (err == -EEXIST || (err && access(saved, F_OK) < 0))
            log_error("store_lost", F_STR("queue", queue),
                      F_STR("file", store->path),
                      F_STR("error", errno_text(-err)),
                      F_STR("next",
                            "retries and dead letters are lost; messages with "
                            "an unwritten verdict are in custody"));
        else
            log_error("store_saved", F_STR("queue", queue),
                      F_STR("file", saved),
                      F_STR("next", "it has all retries and dead letters: move "
                                    "it to store.db before the next start"));
        w->saved = true;
    }
    (void)files_look(w);
}

void file_watch_close(struct file_watch **watch)
{
    struct file_watch *w = *watch;

    if (!w)
        return;
    *watch = NULL;
    timers_cancel_sync(w->with.flow->timers, &w->chore.timer);
    fd_close(&w->source.fd);
    for (enum part i = 0; i < PARTS; i++)
        fd_close(&w->files[i].fd);
    pthread_mutex_destroy(&w->mtx);
    free(w);
}
