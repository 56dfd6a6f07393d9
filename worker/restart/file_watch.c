/* file_watch.c - the files of a worker that runs (see file_watch.h)
 *
 * A descriptor keeps a file alive whatever becomes of its name: the worker does
 * not notice by itself, and all that it wrote is gone when it ends. So:
 *   st_nlink 0     nothing can bring the file back but the worker. It makes
 *                  another one with the same content, under the same name.
 *   another name,  somebody moved it, or a folder above it, or unmounted or
 *   or none that   mounted over it. It may come back: it is waited for, and
 *   we can reach   nothing is written in its place.
 *   name taken     by another file: nothing is replaced; somebody has to move
 *                  that away.
 * O_PATH: closing such a descriptor drops no lock that SQLite has on the file
 * (fcntl(2)), and it is not the one that keeps the file alive.
 *
 * A look takes place in the peeker, which also writes custody and the pidfile
 * again; the store may be large, so it is written on a pool thread. It waits a
 * second before, so that it does not race with an `rm -r` that is still at it.
 */
#include "worker/restart/file_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/file/mount_point.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/flow/flow.h"
#include "worker/source/mq/pid_file.h"
#include "worker/loop/loop.h"
#include "worker/source/mq/group_hold_watch.h"

#define AGAIN_NS NS_PER_S        /* from one look to the next in trouble */
#define SLOW_NS  (60 * NS_PER_S) /* without inotify, when nothing is taken */
#define HELD     "nothing is taken; "

/* No ordinary write to a file is among them. */
#define FOLDER_EVENTS                                                  \
    (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define ABOVE_EVENTS (IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* The store first: its -wal and -shm are worth nothing without it. */
enum part {
    STORE,
    STORE_WAL,
    STORE_SHM,
    CUSTODY,
    PIDFILE,
    COUNTERS,
    NOTE,  /* of the state folder, where the runtime folder is */
    OWNER, /* of that, whose it is */
    PARTS
};

enum state {
    THERE,
    AWAY,    /* it has another name, or one that we cannot reach */
    TAKEN,   /* and another file has its name */
    REMOVED, /* no name leads to it */
};

enum job_state { JOB_NONE, JOB_RUNS, JOB_OVER };

/* p = peeker only   c = constant after open */
struct file {
    char path[PATH_MAX]; /* c */
    int fd;              /* p  O_PATH; -1: there is no such file to watch */
    struct stat id;      /* p  of fd */
    struct stat name;    /* p  what has the name, if state is TAKEN */
    enum state state;    /* p */
};

struct file_watch {
    struct file_watch_setup with; /* c */
    struct loop_source source;    /* c  inotify; fd -1: none */
    struct timer timer;
    struct pool_job job;
    struct file files[PARTS];
    char text[100];               /* p  file_watch_text */
    const struct file *first;     /* p  that it is about; NULL: none */
    char ro_next[PATH_MAX + 256]; /* p  what to do if that is read-only */
    struct stat copy; /* p  a copy of the store that could not be opened */
    unsigned lost;    /* p  files that were not there at the last look */
    unsigned told;    /* p  parts (bits) whose loss was told */
    bool told_error;  /* p  that one of them cannot be put back */
    bool told_ro;     /* p */
    uint64_t calm_ns; /* p  nothing is put back before */
    _Atomic(enum job_state) job_state;
    bool replace;           /* the job's */
    int result;             /* the job's */
    struct problem problem; /* the job's */
};

/* same - two looks at one file */
static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* ---- looking ---- */

/* unnamed - no name leads to it, anywhere */
static bool unnamed(const struct file *f)
{
    struct stat now;

    return f->fd >= 0 && fstat(f->fd, &now) == 0 && now.st_nlink == 0;
}

/* file_look - by its name and by its link count */
static void file_look(struct file *f)
{
    bool named = stat(f->path, &f->name) == 0;

    if (f->fd < 0 || (named && same(&f->name, &f->id)))
        f->state = THERE;
    else if (named)
        f->state = TAKEN;
    else
        f->state = unnamed(f) ? REMOVED : AWAY;
}

/* file_again - the file that has the name now is the one to watch */
static void file_again(struct file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = open(f->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (f->fd >= 0)
        (void)fstat(f->fd, &f->id);
    f->state = THERE;
}

/* gone - some part from `first` to `last` is not there; the first of these */
static const struct file *gone(const struct file_watch *w, enum part first,
                               enum part last)
{
    for (enum part i = first; i <= last; i++)
        if (w->files[i].state != THERE)
            return &w->files[i];
    return NULL;
}

/* read_only - its file system takes no more writes: remounted, or after an
 * error
 * statvfs(3) does not tell of an error's read-only state (ext4 since Linux
 * 6.15, xfs), but opening to write fails then, and writes nothing. It is the
 * very file that is opened, whatever has its name; never one of the store:
 * closing that would drop SQLite's locks (fcntl(2)).
 */
static bool read_only(const struct file *f)
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

/* ---- telling ---- */

static const char *const what[] = {
    [AWAY] = "was moved away",
    [TAKEN] = "was replaced by another file",
    [REMOVED] = "was removed",
};

const char *file_watch_text(const struct file_watch *w)
{
    return w->text;
}

const char *file_watch_path(const struct file_watch *w)
{
    return w->first ? w->first->path : "";
}

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

const char *file_watch_next(const struct file_watch *w)
{
    const struct file *f = w->first;

    if (!f)
        return "";
    return (f->state == THERE ? w->ro_next
                              : advice_for(f->state, f != &w->files[CUSTODY])) +
           strlen(HELD);
}

/* text_write - the first of all that keeps messages from being taken */
static void text_write(struct file_watch *w, const struct file *ro)
{
    const struct file *f = gone(w, STORE, CUSTODY);
    char mount[PATH_MAX];
    const char *slash;

    w->first = f ? f : ro;
    w->text[0] = '\0';
    if (w->first) {
        slash = strrchr(w->first->path, '/');
        snprintf(w->text, sizeof w->text, "%.40s %s",
                 slash ? slash + 1 : w->first->path,
                 f ? what[f->state] : "is on a read-only file system");
    }
    if (ro && !w->told_ro)
        snprintf(w->ro_next, sizeof w->ro_next,
                 HELD "look for its error in dmesg, then mount -o remount,rw "
                      "%s and the worker goes on by itself; after an error of "
                      "the disk stop it, umount, fsck, mount and start it",
                 mount_point(ro->path, mount));
}

/* tell - once when something is gone, once when it is back */
static void tell(struct file_watch *w, enum part part, const struct file *f,
                 const char *advice)
{
    const char *queue = w->with.flow->set->queue;
    unsigned bit = 1u << part;

    if (f && !(w->told & bit)) {
        w->told |= bit;
        LOG_AT(part < PIDFILE ? LOG_ERROR : LOG_WARN, "file_gone",
               F_STR("queue", queue), F_STR("file", f->path),
               F_STR("what", what[f->state]), F_STR("next", advice));
    } else if (!f && w->told & bit) {
        w->told &= ~bit;
        w->told_error = false;
        log_info("file_back", F_STR("queue", queue),
                 F_STR("file", w->files[part].path));
    }
}

static const char note_advice[] =
    "the worker goes on, and writes it again: it says where messages in flight "
    "are";

/* tell_all - part by part */
static void tell_all(struct file_watch *w)
{
    const struct file *f = gone(w, STORE, STORE_SHM);

    tell(w, STORE, f, f ? advice_for(f->state, true) : NULL);
    f = gone(w, CUSTODY, CUSTODY);
    tell(w, CUSTODY, f, f ? advice_for(f->state, false) : NULL);
    tell(w, PIDFILE, gone(w, PIDFILE, PIDFILE),
         "no second worker can start all the same; it is written again");
    tell(w, COUNTERS, gone(w, COUNTERS, COUNTERS),
         "the worker goes on; mqctl cannot see its numbers before file_back: "
         "they are written again when no handler runs for a moment");
    tell(w, NOTE, gone(w, NOTE, NOTE), note_advice);
    tell(w, OWNER, gone(w, OWNER, OWNER), note_advice);
}

/* tell_read_only - once, and when it is over */
static void tell_read_only(struct file_watch *w, const struct file *f)
{
    const char *queue = w->with.flow->set->queue;

    if (f && !w->told_ro)
        log_error("read_only", F_STR("queue", queue), F_STR("file", f->path),
                  F_STR("next", w->ro_next));
    else if (!f && w->told_ro)
        log_info("writable_again", F_STR("queue", queue));
    w->told_ro = f != NULL;
}

/* not_put_back - once, until something is back */
static void not_put_back(struct file_watch *w, const char *path,
                         const char *error)
{
    if (!w->told_error)
        log_error("file_not_written", F_STR("queue", w->with.flow->set->queue),
                  F_STR("file", path), F_STR("error", error),
                  F_STR("next", "nothing is taken; do what the error says: it "
                                "is tried again each second. Do not kill the "
                                "worker; what it has open is all there is"));
    w->told_error = true;
}

/* ---- holding ---- */

/* hold - one bit, as it must be */
static void hold(struct file_watch *w, unsigned bit, bool on)
{
    bool is = (atomic_load(&w->with.flow->gate.holds) & bit) != 0;

    if (on && !is)
        gate_hold(&w->with.flow->gate, bit);
    else if (!on && is)
        gate_unhold(&w->with.flow->gate, bit);
}

/* hold_all - before anything is told: nothing more is taken */
static void hold_all(struct file_watch *w)
{
    const struct file *ro = read_only(&w->files[PIDFILE])   ? &w->files[STORE]
                            : read_only(&w->files[CUSTODY]) ? &w->files[CUSTODY]
                                                            : NULL;

    text_write(w, ro);
    hold(w, HOLD_STORE_GONE, gone(w, STORE, STORE_SHM) != NULL);
    hold(w, HOLD_CUSTODY_GONE, gone(w, CUSTODY, CUSTODY) != NULL);
    hold(w, HOLD_READ_ONLY, ro != NULL);
    tell_read_only(w, ro);
}

/* ---- putting back ---- */

/* may_put_back - all that is not there has lost its last name, and has been for
 * a while */
static bool may_put_back(const struct file_watch *w)
{
    for (enum part i = STORE; i < PIDFILE; i++) {
        const struct file *f = &w->files[i];

        if (f->state == AWAY ||
            (f->state == TAKEN && !same(&w->copy, &f->name)))
            return false;
    }
    return clock_mono_ns() >= w->calm_ns;
}

/* folders_ready - there again, and ours alone; or a problem */
static int folders_ready(struct file_watch *w, struct problem *p)
{
    struct flow *flow = w->with.flow;
    struct statedir dir;
    int err =
        statedir_open(&dir, flow->set->state_dir, flow->set->queue, true, p);

    if (err)
        return err;
    err = pid_file_put_back(w->with.lock);
    if (err == -EEXIST)
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "another worker has %s; stop that one", dir.folder);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err, "the pidfile in %s: %s",
                           dir.folder, strerror(-err));
    file_again(&w->files[PIDFILE]);
    if (!gone(w, STORE, OWNER))
        return 0;
    err = runtimedir_put_back(w->with.runtime, w->with.dir, p);
    if (err)
        return err;
    file_again(&w->files[NOTE]);
    file_again(&w->files[OWNER]);
    return 0;
}

/* still - no slots are added, no work item has a slot but to wait with, and no
 * verdict waits to be
 * written: true, and none gets one before items_go_on
 * A verdict that waits (unsettled.h) frees its slot before it is counted out.
 */
static bool still(struct flow *flow)
{
    if (atomic_load(&flow->growing) || !items_still(&flow->items))
        return false;
    if (unsettled_count(&flow->unsettled) == 0)
        return true;
    items_go_on(&flow->items);
    return false;
}

/* custody_again - while no work item has a slot; else at a later look */
static int custody_again(struct file_watch *w, struct problem *p)
{
    struct flow *flow = w->with.flow;
    int err;

    if (!still(flow))
        return 0;
    err = custody_put_back(flow->custody, p);
    items_go_on(&flow->items);
    if (!err)
        file_again(&w->files[CUSTODY]);
    return err;
}

/* counters_again - likewise; others see no numbers meanwhile, so nothing is
 * held and nothing more is told of it */
static void counters_again(struct file_watch *w)
{
    struct file *f = &w->files[COUNTERS];
    struct flow *flow = w->with.flow;

    if (f->state != REMOVED || !still(flow))
        return;
    if (counters_put_back(flow->counters, f->path) == 0)
        file_again(f);
    items_go_on(&flow->items);
}

/* store_job - the copy takes as long as the store is large */
static void store_job(struct pool_job *job)
{
    struct file_watch *w = CONTAINER_OF(job, struct file_watch, job);

    w->result = store_put_back(w->with.flow->store, w->files[STORE].path,
                               w->replace, &w->problem);
    atomic_store(&w->job_state, JOB_OVER);
    timers_start(w->with.flow->timers, &w->timer, clock_mono_ns());
}

/* store_replaces - what has the name of the store is ours: the store itself, of
 * which the -wal or -shm is gone, or a copy that could not be opened */
static bool store_replaces(const struct file_watch *w)
{
    struct stat name;

    return stat(w->files[STORE].path, &name) == 0 &&
           (same(&name, &w->files[STORE].id) || same(&name, &w->copy));
}

/* store_back - what came of store_put_back */
static int store_back(struct file_watch *w, int err)
{
    if (err) {
        if (err == -EEXIST || stat(w->files[STORE].path, &w->copy) < 0)
            w->copy = (struct stat){0};
        return err;
    }
    for (enum part i = STORE; i <= STORE_SHM; i++)
        file_again(&w->files[i]);
    if (w->with.flow->group_hold_watch)
        group_hold_watch_store_changed(w->with.flow->group_hold_watch);
    return 0;
}

/* put_back - what has no name; a part that cannot be is tried again */
static void put_back(struct file_watch *w)
{
    const struct file *store = gone(w, STORE, STORE_SHM);
    const struct file *custody = gone(w, CUSTODY, CUSTODY);
    struct problem p = {0};

    if (folders_ready(w, &p) < 0) {
        if (store || custody)
            not_put_back(w, w->with.dir->folder, p.text);
        return;
    }
    counters_again(w);
    if (custody && custody_again(w, &p) < 0)
        not_put_back(w, custody->path, p.text);
    if (!store)
        return;
    w->replace = store_replaces(w);
    atomic_store(&w->job_state, JOB_RUNS);
    if (pool_submit(w->with.flow->pool, &w->job) < 0)
        atomic_store(&w->job_state, JOB_NONE);
}

/* ---- when ---- */

/* folder_watch - a folder, and each above it; it may be watched already */
static void folder_watch(struct file_watch *w, const char *folder)
{
    char path[PATH_MAX];
    char *slash;

    if (w->source.fd < 0)
        return;
    strlcpy(path, folder, sizeof path);
    (void)inotify_add_watch(w->source.fd, path, FOLDER_EVENTS);
    while ((slash = strrchr(path, '/')) != NULL && slash > path) {
        *slash = '\0';
        (void)inotify_add_watch(w->source.fd, path, ABOVE_EVENTS | IN_MASK_ADD);
    }
}

/* look - each file, then what follows from it */
static bool look(struct file_watch *w)
{
    unsigned lost = 0;

    for (enum part i = 0; i < PARTS; i++) {
        file_look(&w->files[i]);
        lost += w->files[i].state != THERE;
    }
    if (lost > w->lost) /* and maybe more soon */
        w->calm_ns = clock_mono_ns() + AGAIN_NS;
    w->lost = lost;
    hold_all(w);
    tell_all(w);
    return lost == 0 && !w->told_ro;
}

/* look_due - now, and again while something is wrong */
static void look_due(struct timer *timer)
{
    struct file_watch *w = CONTAINER_OF(timer, struct file_watch, timer);
    struct flow *flow = w->with.flow;
    bool fine;

    if (atomic_load(&w->job_state) == JOB_RUNS)
        return; /* it starts the timer when it is over */
    if (atomic_load(&w->job_state) == JOB_OVER) {
        atomic_store(&w->job_state, JOB_NONE);
        if (store_back(w, w->result) < 0)
            not_put_back(w, w->files[STORE].path, w->problem.text);
    }
    fine = look(w);
    if (!fine && may_put_back(w)) {
        put_back(w);
        fine = look(w);
    }
    if (fine)
        w->with.there(w->with.arg);
    if (!fine) {
        folder_watch(w, w->with.dir->folder); /* another one, maybe */
        folder_watch(w, w->with.runtime->folder);
        timers_start(flow->timers, timer, clock_mono_ns() + AGAIN_NS);
    } else if (w->source.fd < 0) {
        timers_start(flow->timers, timer, clock_mono_ns() + SLOW_NS);
    }
}

/* changed - a name in a folder of ours, or of one above */
static void changed(struct loop_source *source)
{
    struct file_watch *w = CONTAINER_OF(source, struct file_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    look_due(&w->timer);
}

void file_watch_soon(struct file_watch *w)
{
    timers_start_earlier(w->with.flow->timers, &w->timer, clock_mono_ns());
}

void file_watch_start(struct file_watch *w)
{
    look_due(&w->timer);
}

/* paths - of all files */
static int paths(struct file_watch *w, struct problem *p)
{
    static const char *const names[PARTS] = {
        [STORE] = STATEDIR_STORE,
        [STORE_WAL] = STATEDIR_STORE "-wal",
        [STORE_SHM] = STATEDIR_STORE "-shm",
        [CUSTODY] = RUNTIMEDIR_CUSTODY,
        [PIDFILE] = STATEDIR_PIDFILE,
        [COUNTERS] = RUNTIMEDIR_COUNTERS,
        [NOTE] = RUNTIMEDIR_NOTE,
        [OWNER] = RUNTIMEDIR_OWNER,
    };
    int err = 0;

    for (enum part i = 0; i < PARTS && !err; i++) {
        struct file *f = &w->files[i];

        err = i == CUSTODY || i == COUNTERS || i == OWNER
                  ? runtimedir_path(w->with.runtime, names[i], f->path, p)
                  : statedir_path(w->with.dir, names[i], f->path, p);
        f->fd = -1;
        if (!err)
            file_again(f);
        if (!err && f->fd < 0 && i < COUNTERS)
            err = problem_set(p, EX_CANTCREAT, errno, "%s: %s", f->path,
                              strerror(errno));
    }
    return err;
}

int file_watch_open(struct file_watch **out,
                    const struct file_watch_setup *setup, struct problem *p)
{
    struct flow *flow = setup->flow;
    struct file_watch *w = calloc(1, sizeof *w);
    int err;

    *out = NULL;
    if (!w)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    w->with = *setup;
    timer_init(&w->timer, look_due);
    w->job.run = store_job;
    w->source.ready = changed;
    w->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    err = paths(w, p);
    folder_watch(w, w->with.dir->folder);
    folder_watch(w, w->with.runtime->folder);
    if (w->source.fd >= 0 && !err &&
        loop_add(flow->loop, &w->source, EPOLLIN) < 0) {
        close(w->source.fd);
        w->source.fd = -1;
    }
    if (w->source.fd < 0)
        log_info("files_not_watched", F_STR("queue", flow->set->queue),
                 F_STR("error", strerror(errno)),
                 F_STR("next", "that a file of the worker is removed is "
                               "noticed within a second while messages come, "
                               "else within a minute; raise "
                               "fs.inotify.max_user_instances"));
    *out = w;
    if (err)
        file_watch_close(out);
    return err;
}

/* store_save - the last thing that can be done for it */
static void store_save(struct file_watch *w)
{
    struct flow *flow = w->with.flow;
    const char *path = w->files[STORE].path;
    char saved[PATH_MAX];
    int err;

    snprintf(saved, sizeof saved, "%.4000s.saved-%d", path, (int)getpid());
    err = store_copy(flow->store, saved);
    if (err)
        log_error("store_lost", F_STR("queue", flow->set->queue),
                  F_STR("file", path), F_STR("error", strerror(-err)),
                  F_STR("next", "retries and dead letters are lost; those of "
                                "which a verdict was waiting are in custody"));
    else
        log_error("store_saved", F_STR("queue", flow->set->queue),
                  F_STR("file", saved),
                  F_STR("next", "it has all retries and dead letters: move it "
                                "to store.db before the next start"));
}

/* job_wait - until the store is written, or could not be: what this process has
 * open is all there is of it */
static void job_wait(struct file_watch *w)
{
    const struct timespec tick = {.tv_nsec = NS_PER_MS};

    while (atomic_load(&w->job_state) == JOB_RUNS)
        nanosleep(&tick, NULL);
}

/* file_watch_last - no slot is in use by a thread, and nobody writes
 * A file that was moved away has all that was written; it is waited for by
 * whoever starts the next worker.
 */
void file_watch_last(struct file_watch *w)
{
    struct flow *flow = w->with.flow;
    struct problem p = {0};
    bool ready;

    job_wait(w); /* there is none where the pool is closed */
    w->told_error = false;
    if (atomic_exchange(&w->job_state, JOB_NONE) == JOB_OVER)
        (void)store_back(w, w->result);
    if (look(w))
        return;
    w->calm_ns = 0;
    ready = may_put_back(w) && folders_ready(w, &p) == 0;
    if (ready && w->files[CUSTODY].state == REMOVED &&
        custody_put_back(flow->custody, &p) < 0)
        not_put_back(w, w->files[CUSTODY].path, p.text);
    w->replace = store_replaces(w);
    if (ready && gone(w, STORE, STORE_SHM))
        ready = store_back(w, store_put_back(flow->store, w->files[STORE].path,
                                             w->replace, &p)) == 0;
    if (!ready && unnamed(&w->files[STORE]))
        store_save(w);
    (void)look(w);
}

void file_watch_close(struct file_watch **watch)
{
    struct file_watch *w = *watch;

    if (!w)
        return;
    *watch = NULL;
    timers_cancel_sync(w->with.flow->timers, &w->timer);
    if (w->source.fd >= 0)
        close(w->source.fd);
    for (enum part i = 0; i < PARTS; i++)
        if (w->files[i].fd >= 0)
            close(w->files[i].fd);
    free(w);
}
