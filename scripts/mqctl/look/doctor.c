/* doctor.c - the verb, findings, and the checks of the machine (see
 * doctor.h) */
#include "scripts/mqctl/look/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/custody/custody.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"

#define MIB        UINT64_C(1048576)
#define BYTES_GOOD (8 * MIB)  /* RLIMIT_MSGQUEUE that is advised at least */
#define SPACE_LOW  (64 * MIB) /* warn below this free space, bytes */
#define SPACE_NONE (64 * UINT64_C(1024)) /* no room for a large commit */

/* ---- findings ---- */

static const struct {
    const char *name;
    enum term_colour colour;
} levels[] = {
    [FINE] = {"ok", TERM_GREEN},
    [NOTE] = {"note", TERM_DIM},
    [WARN] = {"warn", TERM_YELLOW},
    [BAD] = {"bad", TERM_RED},
};

#define INDENT 6 /* columns of "warn  " */

const char *fix(struct findings *f, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(f->fix, sizeof f->fix, fmt, args);
    va_end(args);
    return f->fix;
}

void finding_print(struct findings *f, const struct finding *what,
                   const char *fmt, ...)
{
    FILE *out = f->parts[what->level] ? f->parts[what->level] : stdout;
    char text[1024], line[2048];

    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    f->counts[what->level]++;
    if (f->quiet && what->level < WARN)
        return;
    if (f->json) {
        (void)json_print_line(
            json_pack("{s:o, s:s, s:s, s:o, s:o}", "queue",
                      f->queue ? json_printable(f->queue) : json_null(),
                      "check", what->check, "level", levels[what->level].name,
                      "text", json_printable(text), "fix",
                      what->fix ? json_printable(what->fix) : json_null()),
            stdout);
        return;
    }
    snprintf(line, sizeof line, "%s%s%s: %s", f->queue ? f->queue : "",
             f->queue ? " " : "", what->check, text);
    fprintf(out, "%s%-4s%s  ", term_colour(stdout, levels[what->level].colour),
            levels[what->level].name, term_colour(stdout, TERM_PLAIN));
    term_words(out, line, INDENT, INDENT, term_width(stdout));
    if (what->fix) { /* on one line, so that it can be copied */
        fprintf(out, "\n%*s-> ", INDENT, "");
        safe_text(out, what->fix, strlen(what->fix), true);
    }
    fputc('\n', out);
}

void findings_begin(struct findings *f)
{
    for (int level = FINE; !f->json && level < LEVELS; level++)
        f->parts[level] = open_memstream(&f->texts[level], &f->sizes[level]);
}

bool findings_end(struct findings *f)
{
    unsigned found = f->counts[BAD] + f->counts[WARN];

    for (int level = LEVELS - 1; level >= FINE; level--) {
        if (!f->parts[level])
            continue;
        fclose(f->parts[level]);
        fwrite(f->texts[level], 1, f->sizes[level], stdout);
        free(f->texts[level]);
    }
    if (f->json || f->quiet)
        return found > 0;
    printf("%s%u ok%s", term_colour(stdout, found ? TERM_BOLD : TERM_GREEN),
           f->counts[FINE], term_colour(stdout, TERM_PLAIN));
    if (f->counts[NOTE])
        printf(", %u note%s", f->counts[NOTE], term_plural(f->counts[NOTE]));
    printf(", %u finding%s", found, term_plural(found));
    if (found)
        printf(" (%u bad, %u warn)", f->counts[BAD], f->counts[WARN]);
    putchar('\n');
    return found > 0;
}

/* ---- the limits of the kernel ---- */

/* A process, its limit, and the queues charged to its user. */
struct payer {
    uid_t uid;
    uint64_t limit;    /* RLIMIT_MSGQUEUE of the process; UINT64_MAX: none */
    pid_t pid;         /* a worker; 0: this process */
    const char *queue; /* of the worker */
    uint64_t queues, bytes; /* charged queues that are visible from here */
};

#define PAYERS 64

/* Add the worker of a queue, unless there is already an equal payer, or the
 * worker's process is not visible from here. Returns the new count. */
static size_t payer_add(struct payer *all, size_t count, const char *state_dir,
                        const char *queue)
{
    static const char name[] = "Max msgqueue size";
    struct payer y = {.queue = queue};
    char path[32], text[4096], *at;
    struct holder h;
    struct stat st;

    if (worker_lock_find(state_dir, queue, &y.pid, NULL) != WORKER_RUNS ||
        !y.pid || !holder_is(&h, y.pid, queue) ||
        !proc_text(text, sizeof text, "/proc/%d/limits", (int)y.pid) ||
        !(at = strstr(text, name)))
        return count;
    at += strlen(name);
    at += strspn(at, " ");
    y.limit =
        strncmp(at, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
    snprintf(path, sizeof path, "/proc/%d", (int)y.pid);
    if (stat(path, &st) < 0)
        return count;
    y.uid = st.st_uid;
    for (size_t i = 0; i < count; i++)
        if (all[i].uid == y.uid && all[i].limit == y.limit)
            return count;
    all[count] = y;
    return count + 1;
}

/* Test whether the payer may create one more queue: 0, -errno, or -ENOSYS if
 * the test is impossible. Root tests for another user in a child process. */
static int payer_probe(const struct payer *y, const struct options *o,
                       uint64_t depth, uint64_t size)
{
    const struct rlimit limit = {
        .rlim_cur = y->limit == UINT64_MAX ? RLIM_INFINITY : y->limit,
        .rlim_max = RLIM_INFINITY};
    int status = 0;
    pid_t child;

    if (o->look_only || (y->pid && geteuid() != 0))
        return -ENOSYS;
    if (!y->pid)
        return queue_probe(depth, size);
    child = fork();
    if (child == 0) {
        if (setrlimit(RLIMIT_MSGQUEUE, &limit) < 0 ||
            setresuid(y->uid, y->uid, y->uid) < 0)
            _exit(ENOSYS);
        _exit(-queue_probe(depth, size));
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -ENOSYS;
    return -WEXITSTATUS(status);
}

/* Check RLIMIT_MSGQUEUE of one payer, which counts for its user as a whole. */
static void payer_check(struct findings *f, const struct options *o,
                        const struct mqlimit *l, const struct payer *y)
{
    char user[FOLDER_USER], whose[QUEUE_NAME_MAX + 64] = "", how[160];
    uint64_t depth = 0, size = 0, cost, need;
    const char *raise;
    bool fails;
    int err;

    mqlimit_fill(l, &depth, &size);
    cost = mqlimit_cost(depth, size);
    if (y->pid)
        snprintf(whose, sizeof whose, " that worker %d of %s may have",
                 (int)y->pid, y->queue);
    if (y->limit == UINT64_MAX) {
        FOUND(f, FINE, "limits", NULL,
              "no limit on bytes (ulimit -q) for queues of %s%s",
              folder_user(y->uid, user), whose);
        return;
    }
    fails = y->bytes + cost > y->limit;
    err = payer_probe(y, o, depth, size);
    if (err == -ENOSYS)
        snprintf(how, sizeof how,
                 "should %s, judging by the queues of this IPC namespace",
                 fails ? "fail, with EMFILE" : "fit");
    else if (err)
        snprintf(how, sizeof how, "fails, with %s%s",
                 err == -EMFILE ? "EMFILE" : errno_text(-err),
                 err != -EMFILE || fails
                     ? ""
                     : ": queues of other IPC namespaces, or removed ones that "
                       "a process still has open, use the rest");
    else
        snprintf(how, sizeof how, "fits: one was created and removed");
    fails = err == -ENOSYS ? fails : err != 0;
    /* The limit has to allow what all queues of the user use already. */
    need = y->bytes + cost > BYTES_GOOD ? y->bytes + cost : BYTES_GOOD;
    raise = y->pid
                ? fix(f,
                      "LimitMSGQUEUE=%" PRIu64 " in its unit (systemctl edit "
                      "mqworker@%s), or ulimit -q %" PRIu64 " before it is "
                      "started, or remove unused queues with mqctl remove; "
                      "mqctl remove --orphans -n lists them",
                      need, SHELL_QUEUE(y->queue + 1), need)
                : fix(f,
                      "ulimit -q %" PRIu64 " (systemd: LimitMSGQUEUE=%" PRIu64
                      "; docker: --ulimit msgqueue=%" PRIu64 ":%" PRIu64
                      "), or remove unused queues with mqctl remove; mqctl "
                      "remove --orphans -n lists them",
                      need, need, need, need);
    FOUND(f, fails ? WARN : FINE, "limits", fails ? raise : NULL,
          "%" PRIu64 " queue%s of %s here %s charged %" PRIu64 " of %" PRIu64
          " bytes%s (depth x size + 96 x depth each); one more of %" PRIu64
          " x %" PRIu64 " bytes costs %" PRIu64 " and %s",
          y->queues, term_plural(y->queues), folder_user(y->uid, user),
          y->queues == 1 ? "is" : "are", y->bytes, y->limit, whose, depth, size,
          cost, how);
}

/* Check the limits of the kernel and how much of them is used. */
static void limits_check(struct findings *f, const struct options *o,
                         const struct queue_list *n)
{
    struct payer all[PAYERS] = {{.uid = getuid()}};
    size_t count = 1;
    struct mqlimit l;
    struct problem p;
    struct queue *q;
    struct stat st;

    mqlimit_read(&l);
    all[0].limit = l.bytes;
    /* The user or the unit of a worker may have other limits than this
     * process. */
    for (size_t i = 0; i < n->count && count < PAYERS; i++)
        count = payer_add(all, count, o->state_dir, n->at[i]);
    /* Count the payers' queues as the kernel charges them. */
    for (size_t i = 0; i < n->count; i++) {
        if (queue_open(&q, n->at[i], 0, NULL, NULL, &p) < 0)
            continue;
        for (size_t k = 0; k < count && fstat(queue_fd(q), &st) == 0; k++)
            if (st.st_uid == all[k].uid) {
                all[k].queues++;
                all[k].bytes +=
                    mqlimit_cost(queue_depth(q), queue_message_size(q));
            }
        queue_close(&q);
    }
    for (size_t i = 0; i < count; i++)
        payer_check(f, o, &l, &all[i]);
    FOUND(f, n->count >= l.queues_max ? BAD : FINE, "limits",
          n->count >= l.queues_max ? "sysctl fs.mqueue.queues_max=1024" : NULL,
          "%zu of %" PRIu64 " queue%s%s", n->count, l.queues_max,
          term_plural(l.queues_max), n->complete ? "" : ", as far as visible");
    FOUND(f, FINE, "limits", NULL,
          "a queue holds at most %" PRIu64 " message%s of %" PRIu64
          " bytes (fs.mqueue.msg_max, msgsize_max)",
          l.depth_max, term_plural(l.depth_max), l.message_size_max);
    if (n->missing[0])
        FOUND(f, NOTE, "queues",
              "mkdir -p /dev/mqueue && mount -t mqueue none /dev/mqueue", "%s",
              n->missing);
}

/* ---- queues that no process has open ---- */

#define ORPHANS_SHOWN 10
/* A queue that was used for the last time before this is worth a warning; its
 * user may still want one that is younger. */
#define ORPHAN_OLD_NS (600 * NS_PER_S)

/* Print the orphans that no worker has ever used. The other orphans appear
 * among the queues whose worker is not running. */
static void orphans_check(struct findings *f, const struct options *o,
                          const struct queue_list *queues)
{
    char text[ORPHAN_TEXT], unseen[96] = "";
    struct orphans all;
    size_t shown = 0;

    if (orphans_find(&all, queues, o->state_dir) < 0)
        return;
    if (all.hidden)
        snprintf(unseen, sizeof unseen,
                 " (%zu process%s of other users cannot be inspected)",
                 all.hidden, all.hidden == 1 ? "" : "es");
    for (size_t i = 0; i < all.count; i++) {
        const struct orphan *orphan = &all.at[i];

        if (orphan->has_folder || shown++ >= ORPHANS_SHOWN)
            continue;
        FOUND(f, all.hidden ? NOTE : WARN, "orphans",
              fix(f, "mqctl remove%s %s", orphan->depth > 0 ? " --force" : "",
                  SHELL_QUEUE(orphan->queue)),
              "no process has %s open%s: %s", orphan->queue, unseen,
              orphan_text(orphan, text));
    }
    if (shown > ORPHANS_SHOWN)
        FOUND(f, all.hidden ? NOTE : WARN, "orphans",
              "mqctl remove --orphans --dry-run lists all of them",
              "no process has %zu more queue%s open", shown - ORPHANS_SHOWN,
              term_plural(shown - ORPHANS_SHOWN));
    orphans_free(&all);
}

/* ---- the state directory ---- */

/* Check the space that is left for retries and dead letters. Removing a letter
 * needs some space itself, so it does not help once the disk is full. */
static void room_check(struct findings *f, const char *root,
                       const struct statvfs *s, const char *mount)
{
    struct stat st;
    /* The owner of the folder writes there. Root may also use the file system's
     * reserved blocks. */
    bool all = stat(root, &st) == 0 && st.st_uid == 0;
    uint64_t left =
        (uint64_t)(all ? s->f_bfree : s->f_bavail) * s->f_frsize / 1024 * 1024;
    char text[SIZE_TEXT];
    const char *room;

    if (left >= 1024 * MIB)
        snprintf(text, sizeof text, "%.1f GiB", (double)left / (1024.0 * MIB));
    else if (left >= MIB)
        snprintf(text, sizeof text, "%" PRIu64 " MiB", left / MIB);
    else
        snprintf(text, sizeof text, "%" PRIu64 " KiB", left / 1024);
    room = fix(
        f,
        "df -h %s; free some space by deleting other files, or enlarge it; "
        "%s",
        mount,
        left < SPACE_NONE ? "waiting messages then resume on their own"
                          : "old dead letters can be removed while there is "
                            "room: mqdlq purge --older-than 30d QUEUE");
    if (left < SPACE_NONE)
        FOUND(f, BAD, "state directory", room,
              "%s is full: %s free; retries and dead letters use the space "
              "that is left inside their file; once that is used up, the "
              "worker takes no more messages. Nothing is lost",
              root, text);
    else
        FOUND(f, left < SPACE_LOW ? WARN : FINE, "state directory",
              left < SPACE_LOW ? room : NULL, "%s has %s free", root, text);
}

/* Check that the state directory is there and can be written to. */
static void state_dir_check(struct findings *f, const struct options *o)
{
    char root[PATH_MAX], mount[PATH_MAX];
    struct problem p;
    struct statvfs s;
    int fd;

    if (statedir_root(root, o->state_dir, &p) < 0) {
        FOUND(f, BAD, "state directory", NULL, "%s", p.text);
        return;
    }
    fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        FOUND(f, NOTE, "state directory", NULL,
              "%s: %s; the first worker creates it", root, errno_text(ENOENT));
        return;
    }
    if (fd < 0) {
        (void)statedir_refuse(root, errno, &p);
        FOUND(f, BAD, "state directory", NULL, "%s", p.text);
        return;
    }
    close(fd);
    if (statvfs(root, &s) < 0) {
        FOUND(f, WARN, "state directory", NULL, "%s: %s", root,
              errno_text(errno));
        return;
    }
    mount_point(root, mount);
    if (s.f_flag & ST_RDONLY)
        FOUND(f, BAD, "state directory",
              fix(f,
                  "check dmesg for disk errors; after such errors run umount "
                  "and fsck first; then mount -o remount,rw %s",
                  mount),
              "%s is on a file system that is read-only, mounted at %s", root,
              mount);
    else
        room_check(f, root, &s, mount);
    if (s.f_files > 0 && s.f_favail < 16)
        FOUND(f, BAD, "state directory",
              fix(f, "df -i %s; remove files there", mount),
              "%s has no inodes left", root);
}

/* ---- the verb ---- */

/* Check one queue and its worker. */
static void queue_named_check(struct findings *f, const struct options *o,
                              const char *name)
{
    struct problem p;
    struct snapshot v;

    if (snapshot_open(&v, o->state_dir, name, true, &p) < 0) {
        f->queue = name;
        FOUND(f, BAD, "folder", NULL, "%s", p.text);
    } else {
        f->queue = v.queue;
        queue_check(f, &v);
        readers_check(f, &v);
        snapshot_close(&v);
    }
    f->queue = NULL;
}

int doctor_run(const struct options *o)
{
    struct findings f = {.json = o->json, .quiet = o->quiet};
    struct queue_list queues = {0}, workers = {0};
    char ours[64] = "", first[64] = ""; /* IPC namespaces */
    struct problem p;

    if (o->line.operand_count && broker_operand_is(o->line.operands[0])) {
        const struct broker_engine *engine =
            broker_engine_of(o->line.operands[0], &p);

        return engine ? engine->doctor(o) : complain_of(&p);
    }
    if (queue_list_of_queues(&queues, o->state_dir) < 0 ||
        queue_list_of_workers(&workers, o->state_dir) < 0) {
        queue_list_free(&queues);
        return complain_memory();
    }
    findings_begin(&f);
    limits_check(&f, o, &queues);
    if (o->line.operand_count == 0)
        orphans_check(&f, o, &queues);
    if (readlink("/proc/self/ns/ipc", ours, sizeof ours - 1) > 0 &&
        readlink("/proc/1/ns/ipc", first, sizeof first - 1) > 0 &&
        strcmp(ours, first) != 0)
        FOUND(&f, NOTE, "namespace", NULL,
              "these are the queues of %s; process 1 is in %s. Each namespace "
              "has its own limits",
              ours, first);
    else
        FOUND(&f, FINE, "namespace", NULL, "%s", ours);
    state_dir_check(&f, o);
    if (o->line.operand_count)
        queue_named_check(&f, o, o->line.operands[0]);
    else
        for (size_t i = 0; i < workers.count; i++)
            queue_named_check(&f, o, workers.at[i]);
    queue_list_free(&workers);
    queue_list_free(&queues);
    return findings_end(&f) ? 1 : 0;
}
