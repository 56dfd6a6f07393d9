/* torture_place.c - files and queue of a run of the torture program (see
 * torture.h) */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <mqueue.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/state/runtimedir.h"
#include "tests/crash/torture/torture.h"
#include "tests/harness/custody_seal.h"

#define DEPTH    10
#define LOG_TAIL 4000
#define HEADED   256 /* room for a header, in bytes */
/* Offsets in the custody file (docs/formats/custody.md). */
#define AT_STRIDE 32
#define AT_NUMBER 56
#define AT_STORE  120
#define AT_SLOTS  4096

static const struct torture *here; /* the run to clean up at exit; NULL: none */
static pid_t here_pid;

void torture_die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("torture: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

const char *place_path(const struct torture *t, const char *file)
{
    static char paths[4][PATH_MAX];
    static unsigned at;
    char *path = paths[at++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", t->dir, file);
    return path;
}

/* Return the path of a file of the worker. Queue names start with a slash. */
static const char *state_path(const struct torture *t, const char *file)
{
    char name[128];

    snprintf(name, sizeof name, "state%s/%s", t->queue, file);
    return place_path(t, name);
}

const char *place_runtime(const struct torture *t, const char *file)
{
    static char path[PATH_MAX + 32];
    char root[80], above[PATH_MAX], home[PATH_MAX + 80], folder[PATH_MAX];

    snprintf(root, sizeof root, "%s/%c", t->runtime, t->moved ? 'b' : 'a');
    if (!realpath(t->dir, above))
        torture_die("%s: %s", t->dir, strerror(errno));
    snprintf(home, sizeof home, "%s/state%s", above, t->queue);
    if (!runtimedir_folder(folder, root, home))
        torture_die("%s is too long", root);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

static const char *torture_custody(const struct torture *t)
{
    return place_runtime(t, "custody");
}

/* ---- the queue ---- */

static mqd_t queue_make(const struct torture *t, uint32_t size)
{
    struct mq_attr attr = {.mq_maxmsg = DEPTH, .mq_msgsize = (long)size};
    mqd_t mq =
        mq_open(t->queue, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &attr);

    if (mq < 0)
        torture_die("queue %s of %d messages of %u bytes: %s%s", t->queue,
                    DEPTH, size, strerror(errno),
                    errno == EMFILE ? "; other queues take all of ulimit -q"
                                    : "");
    return mq;
}

/* A message that moves to another queue. */
struct moved {
    ssize_t size;
    unsigned priority;
    char data[TORTURE_MOST];
};

void place_resize(struct torture *t, uint32_t size)
{
    static struct moved moved[DEPTH];
    mqd_t mq = mq_open(t->queue, O_RDWR | O_NONBLOCK);
    int n = 0;

    if (mq < 0)
        torture_die("%s: %s", t->queue, strerror(errno));
    while (n < DEPTH &&
           (moved[n].size = mq_receive(mq, moved[n].data, sizeof moved[n].data,
                                       &moved[n].priority)) >= 0)
        n++;
    mq_close(mq);
    mq_unlink(t->queue);
    mq = queue_make(t, size);
    for (int i = 0; i < n; i++)
        if (mq_send(mq, moved[i].data, (size_t)moved[i].size,
                    moved[i].priority) < 0)
            torture_die("%s: %s", t->queue, strerror(errno));
    mq_close(mq);
    t->queue_size = size;
}

long place_queued(const struct torture *t)
{
    mqd_t mq = mq_open(t->queue, O_RDONLY);
    struct mq_attr attr;

    if (mq < 0 || mq_getattr(mq, &attr) < 0)
        torture_die("%s: %s", t->queue, strerror(errno));
    mq_close(mq);
    return attr.mq_curmsgs;
}

/* ---- the worker's state, read from outside ---- */

/* Count the slots in use and find the offset of the first. */
static unsigned slots_look(const struct torture *t, uint64_t *first)
{
    int fd = open(torture_custody(t), O_RDONLY | O_CLOEXEC);
    uint64_t stride = 0;
    uint32_t slots = 0;
    unsigned busy = 0;

    *first = 0;
    if (fd < 0)
        return 0;
    if (pread(fd, &stride, sizeof stride, AT_STRIDE) != sizeof stride ||
        pread(fd, &slots, sizeof slots, AT_NUMBER) != sizeof slots)
        torture_die("the custody file is cut short");
    for (uint32_t i = 0; i < slots; i++) {
        unsigned char state = 0;

        if (pread(fd, &state, 1, (off_t)(AT_SLOTS + stride * i)) != 1)
            torture_die("the custody file is cut short");
        if (state && busy++ == 0)
            *first = AT_SLOTS + stride * i;
    }
    close(fd);
    return busy;
}

unsigned place_slots(const struct torture *t)
{
    uint64_t first;

    return slots_look(t, &first);
}

uint64_t place_slot(const struct torture *t)
{
    uint64_t first;

    (void)slots_look(t, &first);
    return first;
}

int place_custody(const struct torture *t,
                  int (*visit)(const struct custody_seen *seen, void *arg),
                  void *arg)
{
    struct problem p;

    return custody_look(torture_custody(t), visit, arg, &p);
}

/* Do not checkpoint when closing. The last connection to a store otherwise
 * copies the -wal into it with the store locked; a worker that starts meanwhile
 * waits only 5 s, and a sync may take longer on a busy machine. */
static void look_only(sqlite3 *db)
{
    sqlite3_busy_timeout(db, 10000);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
}

long long place_store(const struct torture *t, const char *sql)
{
    const char *path = state_path(t, "store.db");
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    long long value = -1;
    int rc;

    if (access(path, F_OK) < 0)
        return -1;
    rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL);
    look_only(db);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc != SQLITE_OK)
        torture_die("%s: %s: %s", path, sql, sqlite3_errmsg(db));
    if (sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return value;
}

/* Check the queue and the slots twice, because messages move from the queue to
 * a slot and from there to the store without a lock. */
bool place_settled(const struct torture *t)
{
    return place_queued(t) == 0 && place_slots(t) == 0 &&
           place_store(t, "SELECT count(*) FROM messages WHERE state <> 3") <=
               0 &&
           place_store(t, "SELECT count(*) FROM spool") <= 0 &&
           place_slots(t) == 0 && place_queued(t) == 0;
}

void place_power_cut(const struct torture *t)
{
    int fd = open(torture_custody(t), O_RDWR | O_CLOEXEC);

    if (fd >= 0 && !custody_seal(fd, CUSTODY_OTHER_RUN))
        torture_die("the custody file: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    (void)place_store(t,
                      "UPDATE messages SET boot = 'another' WHERE state = 4");
}

size_t place_row(const struct torture *t, long long row, unsigned char *data)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    size_t size = 0;

    if (sqlite3_open_v2(state_path(t, "store.db"), &db, SQLITE_OPEN_READWRITE,
                        NULL) != SQLITE_OK)
        torture_die("the store: %s", sqlite3_errmsg(db));
    look_only(db);
    if (sqlite3_prepare_v2(db,
                           row > 0 ? "SELECT data FROM messages WHERE row = ?"
                                   : "SELECT data FROM spool WHERE key = ?",
                           -1, &st, NULL) != SQLITE_OK)
        torture_die("the store: %s", sqlite3_errmsg(db));
    sqlite3_bind_int64(st, 1, llabs(row));
    if (sqlite3_step(st) == SQLITE_ROW)
        size = (size_t)sqlite3_column_bytes(st, 0);
    if (size)
        memcpy(data, sqlite3_column_blob(st, 0), size);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return size;
}

void place_print_log(const struct torture *t)
{
    FILE *f = fopen(place_path(t, "log"), "re");
    char text[LOG_TAIL + 1];
    size_t n;

    worker_print_lives(t);
    if (!f)
        return;
    if (fseek(f, -LOG_TAIL, SEEK_END) < 0)
        rewind(f);
    n = fread(text, 1, LOG_TAIL, f);
    text[n] = '\0';
    if (n)
        fprintf(stderr, "torture: the end of the workers' log:\n%s", text);
    fclose(f);
}

/* ---- open, close ---- */

static int entry_remove(const char *path, const struct stat *st, int type,
                        struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void place_forget(const struct torture *t)
{
    nftw(place_path(t, "state"), entry_remove, 8, FTW_DEPTH | FTW_PHYS);
    nftw(t->runtime, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

void place_lose(const struct torture *t)
{
    nftw(place_runtime(t, ""), entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

void place_remove_ends(const struct torture *t)
{
    (void)unlink(place_runtime(t, "ends"));
}

void place_remove_note(const struct torture *t)
{
    (void)unlink(state_path(t, "runtime"));
}

void place_other_store(const struct torture *t)
{
    const uint64_t other = UINT64_C(0x0123456789abcdef);
    int fd = open(torture_custody(t), O_RDWR | O_CLOEXEC);

    if (fd >= 0 && pwrite(fd, &other, sizeof other, AT_STORE) != sizeof other)
        torture_die("the custody file: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void clean_up(void)
{
    if (!here || getpid() != here_pid)
        return;
    mq_unlink(here->queue);
    mq_unlink(letters_queue(here));
    if (here->options->keep || here->failed) {
        fprintf(stderr, "torture: all is kept in %s and %s\n", here->dir,
                here->runtime);
        return;
    }
    nftw(here->runtime, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
    nftw(here->dir, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Find the programs: in $MQW_BIN, or where make puts them; with --points, those
 * built for it. */
static const char *programs_find(bool points)
{
    const char *bins = getenv(points ? "MQW_POINTS_BIN" : "MQW_BIN");

    if (!bins)
        bins = points ? "build/points/bin" : "build/bin";
    return bins;
}

/* Tell the next worker its runtime directory. */
static void runtime_set(const struct torture *t)
{
    char path[80];

    snprintf(path, sizeof path, "%s/%c", t->runtime, t->moved ? 'b' : 'a');
    setenv("RUNTIME_DIRECTORY", path, 1);
}

void place_move(struct torture *t)
{
    t->moved = !t->moved;
    runtime_set(t);
}

/* Return the terms of the messages for these options. */
static struct torture_terms terms_of(const struct torture_options *o)
{
    static const enum torture_fate fates[PATHS] = {
        [PATH_DONE] = TORTURE_DONE,       [PATH_RETRY] = TORTURE_RETRY,
        [PATH_DEAD] = TORTURE_DEAD,       [PATH_LATER] = TORTURE_LATER,
        [PATH_DISCARD] = TORTURE_DISCARD, [PATH_GROUP] = TORTURE_DONE,
        [PATH_REPLAYED] = TORTURE_DEAD,   [PATH_RESUMED] = TORTURE_DONE,
        [PATH_RECOVERED] = TORTURE_DONE,  [PATH_REPLAY] = TORTURE_DEAD,
        [PATH_RAW] = TORTURE_DEAD,        [PATH_REMOVE] = TORTURE_DEAD,
        [PATH_IMPORT] = TORTURE_DEAD,     [PATH_SEND] = TORTURE_DONE,
        [PATH_UNIQUE] = TORTURE_DONE,     [PATH_AT] = TORTURE_DONE,
    };
    struct torture_terms terms = {
        .seed = o->seed, .fixed = (uint32_t)o->size, .failing = o->failing};

    terms.most = terms.fixed ? terms.fixed : 256;
    /* Without a number, two messages that die of a simulated power cut look
     * alike. */
    terms.tiny = !terms.fixed && !o->points && !o->stepped;
    terms.plain = o->stepped;
    terms.steered = o->steer;
    terms.hurried = o->steer || o->points;
    terms.grouped = o->stepped && o->path == PATH_GROUP;
    terms.only = o->stepped ? 1 + (uint32_t)fates[o->path] : 0;
    return terms;
}

/* Return true if one of our programs puts a header in front of the messages. */
static bool headed(const struct torture_options *o)
{
    return o->stepped && (o->path == PATH_REPLAY || o->path == PATH_REPLAYED ||
                          o->path == PATH_UNIQUE || o->path == PATH_AT);
}

void place_open(struct torture *t)
{
    const struct torture_options *o = t->options;
    struct torture_terms terms = terms_of(o);
    const char *tmp = getenv("TMPDIR");
    static bool cleans;

    t->bins = programs_find(o->points);
    if (access(t->bins, X_OK) < 0)
        torture_die("%s: %s; build and run it by make torture", t->bins,
                    strerror(errno));
    snprintf(t->dir, sizeof t->dir, "%.900s/mqw-torture.XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(t->dir))
        torture_die("%s: %s; set TMPDIR to a directory with room", t->dir,
                    strerror(errno));
    snprintf(t->runtime, sizeof t->runtime, "/dev/shm%.48s",
             strrchr(t->dir, '/'));
    runtime_set(t);
    snprintf(t->queue, sizeof t->queue, "/mqw-torture-%d-%d", (int)getpid(),
             (int)t->kind);
    here = t;
    here_pid = getpid();
    if (!cleans)
        atexit(clean_up);
    cleans = true;
    t->queue_size = terms.most + (headed(o) ? HEADED : 0);
    if (t->queue_size > TORTURE_MOST)
        t->queue_size = TORTURE_MOST;
    mq_close(queue_make(t, t->queue_size));
    t->world = torture_world_make(t->file, &terms);
}

void place_close(struct torture *t)
{
    torture_world_close(&t->world);
    clean_up();
    here = NULL;
}
