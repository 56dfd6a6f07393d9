/* doctor.c - the verb, and what it finds of the machine (see doctor.h) */
#include "scripts/mqctl/look/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
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
#include "common/cli/term.h"
#include "common/custody/custody_look.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"

#define MIB    UINT64_C(1048576)
#define LITTLE (64 * MIB)            /* of free space in the state directory */
#define FULL   (64 * UINT64_C(1024)) /* no commit of some size has room */

/* A process, its limit, and the queues charged to its user. */
struct payer {
    uid_t uid;
    uint64_t limit;    /* RLIMIT_MSGQUEUE of the process; UINT64_MAX: none */
    pid_t pid;         /* a worker; 0: this process */
    const char *queue; /* of the worker */
    uint64_t queues, bytes; /* charged queues that are visible from here */
};

#define PAYERS 64

/* Count the payer's queues as the kernel charges them. */
static void charges_count(struct payer *y, const struct queue_list *n)
{
    struct problem p;
    struct stat st;
    struct queue *q;

    for (size_t i = 0; i < n->count; i++) {
        if (queue_open(&q, n->at[i], 0, NULL, NULL, &p) < 0)
            continue;
        if (fstat(queue_fd(q), &st) == 0 && st.st_uid == y->uid) {
            y->queues++;
            y->bytes += mqlimit_cost(queue_depth(q), queue_message_size(q));
        }
        queue_close(&q);
    }
}

/* Read the limit of another process; false if the process is not visible from
 * here. */
static bool limit_read(pid_t pid, uint64_t *limit)
{
    static const char name[] = "Max msgqueue size";
    char text[4096], *at;

    if (!proc_text(text, sizeof text, "/proc/%d/limits", (int)pid))
        return false;
    at = strstr(text, name);
    if (!at)
        return false;
    at += strlen(name);
    at += strspn(at, " ");
    *limit =
        strncmp(at, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
    return true;
}

/* Add the worker of a queue, unless there is already an equal payer. */
static size_t worker_add(struct payer *all, size_t count, const char *state_dir,
                         const char *queue)
{
    struct payer y = {.queue = queue};
    struct holder h;
    struct stat st;
    char path[32];

    if (worker_lock_find(state_dir, queue, &y.pid, NULL) != WORKER_RUNS ||
        !y.pid || !holder_is(&h, y.pid, queue) || !limit_read(y.pid, &y.limit))
        return count;
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

/* Return advice on raising the payer's limit. */
static const char *raised_by(struct findings *f, const struct payer *y)
{
    if (!y->pid)
        return "ulimit -q 8388608 (systemd: LimitMSGQUEUE=8M; docker: --ulimit "
               "msgqueue=8388608:8388608), or mqctl remove what nobody needs; "
               "mqctl remove --orphans -n lists that";
    return fix(f,
               "LimitMSGQUEUE=8M in its unit (systemctl edit mqworker@%s), or "
               "ulimit -q 8388608 before it is started, or mqctl remove what "
               "nobody needs; mqctl remove --orphans -n lists that",
               SHELL_QUEUE(y->queue + 1));
}

/* Check RLIMIT_MSGQUEUE of one payer, which counts for its user as a whole. */
static void payer_check(struct findings *f, const struct options *o,
                        const struct mqlimit *l, const struct payer *y)
{
    char user[FOLDER_USER], whose[QUEUE_NAME_MAX + 64] = "", how[160];
    uint64_t depth = 0, size = 0, cost;
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
    FOUND(f, fails ? WARN : FINE, "limits", fails ? raised_by(f, y) : NULL,
          "%" PRIu64 " queue%s of %s here %s charged %" PRIu64 " of %" PRIu64
          " bytes%s (depth x size + 96 x depth each); one more of %" PRIu64
          " x %" PRIu64 " bytes costs %" PRIu64 " and %s",
          y->queues, term_plural(y->queues), folder_user(y->uid, user),
          y->queues == 1 ? "is" : "are", y->bytes, y->limit, whose, depth, size,
          cost, how);
}

/* limits_check - the limits of the kernel, and what is used of them */
static void limits_check(struct findings *f, const struct options *o,
                         const struct queue_list *n)
{
    struct payer all[PAYERS] = {{.uid = getuid()}};
    size_t count = 1;
    struct mqlimit l;

    mqlimit_read(&l);
    all[0].limit = l.bytes;
    /* The user or the unit of a worker may have other limits than we. */
    for (size_t i = 0; i < n->count && count < PAYERS; i++)
        count = worker_add(all, count, o->state_dir, n->at[i]);
    for (size_t i = 0; i < count; i++) {
        charges_count(&all[i], n);
        payer_check(f, o, &l, &all[i]);
    }
    FOUND(f, n->count >= l.queues_max ? BAD : FINE, "limits",
          n->count >= l.queues_max ? "sysctl fs.mqueue.queues_max=1024" : NULL,
          "%zu of %" PRIu64 " queue%s%s", n->count, l.queues_max,
          term_plural(l.queues_max),
          n->complete ? "" : ", as far as can be seen");
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

#define ORPHANS_TOLD 10

/* Print the orphans that no worker has ever used; the others are printed as the
 * queue of a worker that is not running. */
static void orphans_check(struct findings *f, const struct options *o,
                          const struct queue_list *queues)
{
    char text[ORPHAN_TEXT], unseen[96] = "";
    struct orphans all;
    size_t told = 0;

    if (orphans_find(&all, queues, o->state_dir) < 0)
        return;
    if (all.hidden)
        snprintf(unseen, sizeof unseen,
                 " (%zu process%s of other users could not be looked into)",
                 all.hidden, all.hidden == 1 ? "" : "es");
    for (size_t i = 0; i < all.count; i++) {
        const struct orphan *orphan = &all.at[i];

        if (orphan->has_folder || told++ >= ORPHANS_TOLD)
            continue;
        FOUND(f, all.hidden ? NOTE : WARN, "orphans",
              fix(f, "mqctl remove%s %s", orphan->depth > 0 ? " --force" : "",
                  SHELL_QUEUE(orphan->queue)),
              "no process has %s open%s: %s", orphan->queue, unseen,
              orphan_text(orphan, text));
    }
    if (told > ORPHANS_TOLD)
        FOUND(f, all.hidden ? NOTE : WARN, "orphans",
              "mqctl remove --orphans --dry-run lists all of them",
              "no process has %zu more queue%s open", told - ORPHANS_TOLD,
              term_plural(told - ORPHANS_TOLD));
    orphans_free(&all);
}

/* ---- name spaces ---- */

/* ipc_of - the name space of queues that a process is in; "" if hidden */
static void ipc_of(const char *pid, char out[64])
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%s/ns/ipc", pid);
    n = readlink(path, out, 63);
    out[n > 0 ? n : 0] = '\0';
}

static void namespace_check(struct findings *f)
{
    char ours[64], first[64];

    ipc_of("self", ours);
    ipc_of("1", first);
    if (first[0] && strcmp(ours, first) != 0)
        FOUND(f, NOTE, "namespace", NULL,
              "these are the queues of %s, not of %s, where process 1 is; "
              "each has its own limits",
              ours, first);
    else
        FOUND(f, FINE, "namespace", NULL, "%s", ours);
}

/* ---- the state directory ---- */

/* left_check - retries and dead letters need room. Removing a letter needs
 * some, too, so it does not help once the disk is full. */
static void left_check(struct findings *f, const char *root,
                       const struct statvfs *s, const char *mount)
{
    struct stat st;
    /* The owner of the folder uses it; root may use the reserve, too. */
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
    room =
        fix(f,
            "df -h %s; make room there by what is not mqworker's, or enlarge "
            "it; %s",
            mount,
            left < FULL ? "the messages that wait run by themselves"
                        : "old dead letters can be removed while there is "
                          "room: mqdlq purge --older-than 30d QUEUE");
    if (left < FULL)
        FOUND(f, BAD, "state directory", room,
              "%s is full: %s free; retries and dead letters have only the "
              "room that is left in their file, and after that nothing is "
              "taken; nothing is lost",
              root, text);
    else
        FOUND(f, left < LITTLE ? WARN : FINE, "state directory",
              left < LITTLE ? room : NULL, "%s has %s free", root, text);
}

/* space_check - whether it can be written to */
static void space_check(struct findings *f, const char *root)
{
    struct statvfs s;
    char mount[PATH_MAX];

    if (statvfs(root, &s) < 0) {
        FOUND(f, WARN, "state directory", NULL, "%s: %s", root,
              errno_text(errno));
        return;
    }
    mount_point(root, mount);
    if (s.f_flag & ST_RDONLY)
        FOUND(f, BAD, "state directory",
              fix(f,
                  "dmesg, for errors of the disk: umount and fsck come first "
                  "then; mount -o remount,rw %s",
                  mount),
              "%s is on a file system that is read-only, mounted at %s", root,
              mount);
    else
        left_check(f, root, &s, mount);
    if (s.f_files > 0 && s.f_favail < 16)
        FOUND(f, BAD, "state directory",
              fix(f, "df -i %s; remove files there", mount),
              "%s has no inodes left", root);
}

static void folder_check(struct findings *f, const struct options *o)
{
    char root[PATH_MAX];
    struct problem p;
    int fd;

    if (statedir_root(root, o->state_dir, &p) < 0) {
        FOUND(f, BAD, "state directory", NULL, "%s", p.text);
        return;
    }
    fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        FOUND(f, NOTE, "state directory", NULL,
              "%s: %s; the first worker makes it", root, errno_text(ENOENT));
        return;
    }
    if (fd < 0) {
        (void)statedir_shut(root, errno, &p);
        FOUND(f, BAD, "state directory", NULL, "%s", p.text);
        return;
    }
    close(fd);
    space_check(f, root);
}

/* Check limits, name spaces and the state directory. */
static void machine_check(struct findings *f, const struct options *o,
                          const struct queue_list *queues)
{
    limits_check(f, o, queues);
    if (o->line.operand_count == 0)
        orphans_check(f, o, queues);
    namespace_check(f);
    folder_check(f, o);
}

/* ---- the verb ---- */

/* one - a queue by name */
static void one(struct findings *f, const struct options *o, const char *name)
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

/* doctor_run - the machine, then the queue that was named or all with a
 * worker */
int doctor_run(const struct options *o)
{
    struct findings f = {.json = o->json, .quiet = o->quiet};
    struct queue_list queues = {0}, workers = {0};
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
    machine_check(&f, o, &queues);
    if (o->line.operand_count)
        one(&f, o, o->line.operands[0]);
    else
        for (size_t i = 0; i < workers.count; i++)
            one(&f, o, workers.at[i]);
    queue_list_free(&workers);
    queue_list_free(&queues);
    return findings_end(&f) ? 1 : 0;
}
