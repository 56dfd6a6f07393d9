/* mqctl_doctor_machine.c - limits, name spaces, state directory (see
 * mqctl_doctor.h) */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/custody/custody_look.h"
#include "common/file/folder.h"
#include "common/file/mount_point.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/text/term.h"
#include "scripts/mqctl/doctor/mqctl_doctor.h"

#define MIB    UINT64_C(1048576)
#define LITTLE (64 * MIB)            /* of free space in the state directory */
#define FULL   (64 * UINT64_C(1024)) /* no commit of some size has room */

/* What is charged to us already. */
struct use {
    uint64_t queues, bytes;
    uint64_t unknown; /* that we may not look at */
};

/* use_count - queues of our user id, as the kernel charges them */
static void use_count(const struct queue_list *n, struct use *u)
{
    struct problem p;
    struct stat st;
    struct queue *q;

    *u = (struct use){0};
    for (size_t i = 0; i < n->count; i++) {
        if (queue_open(&q, n->at[i], 0, NULL, NULL, &p) < 0) {
            u->unknown++;
            continue;
        }
        if (fstat(queue_fd(q), &st) == 0 && st.st_uid == getuid()) {
            u->queues++;
            u->bytes += mqlimit_cost(queue_depth(q), queue_message_size(q));
        }
        queue_close(&q);
    }
}

/* bytes_check - RLIMIT_MSGQUEUE, which counts for the user as a whole */
static void bytes_check(struct findings *f, const struct mqlimit *l,
                        const struct use *u)
{
    char user[FOLDER_USER];
    uint64_t depth = 0, size = 0, cost;

    mqlimit_fill(l, &depth, &size);
    cost = mqlimit_cost(depth, size);
    if (l->bytes == UINT64_MAX) {
        FOUND(f, FINE, "limits", NULL, "no limit on bytes (ulimit -q)");
        return;
    }
    FOUND(f, u->bytes + cost > l->bytes ? WARN : FINE, "limits",
          u->bytes + cost > l->bytes
              ? "ulimit -q 8388608 (systemd: LimitMSGQUEUE=8M; docker: "
                "--ulimit msgqueue=8388608:8388608), or mqctl remove what "
                "nobody needs"
              : NULL,
          "%" PRIu64 " queue%s of %s %s charged %" PRIu64 " of %" PRIu64
          " bytes (depth x size + 96 x depth each); one more of %" PRIu64
          " x %" PRIu64 " bytes costs %" PRIu64 " and %s",
          u->queues, term_plural(u->queues), folder_user(getuid(), user),
          u->queues == 1 ? "is" : "are", u->bytes, l->bytes, depth, size, cost,
          u->bytes + cost > l->bytes ? "fails, with EMFILE" : "fits");
}

/* limits_check - the limits of the kernel, and what is used of them */
static void limits_check(struct findings *f, const struct queue_list *n)
{
    struct mqlimit l;
    struct use u;

    mqlimit_read(&l);
    use_count(n, &u);
    bytes_check(f, &l, &u);
    FOUND(f, n->count >= l.queues_max ? BAD : FINE, "limits",
          n->count >= l.queues_max ? "sysctl fs.mqueue.queues_max=1024" : NULL,
          "%zu of %" PRIu64 " queues%s", n->count, l.queues_max,
          n->complete ? "" : ", as far as can be seen");
    FOUND(f, FINE, "limits", NULL,
          "a queue holds at most %" PRIu64 " messages of %" PRIu64
          " bytes (fs.mqueue.msg_max, msgsize_max)",
          l.depth_max, l.message_size_max);
    if (n->missing[0])
        FOUND(f, NOTE, "queues",
              "mkdir -p /dev/mqueue && mount -t mqueue none /dev/mqueue", "%s",
              n->missing);
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

/* left_of - bytes that the owner may use; root may use the reserve, too */
static uint64_t left_of(const char *root, const struct statvfs *s)
{
    struct stat st;
    bool all = stat(root, &st) == 0 && st.st_uid == 0;

    return (uint64_t)(all ? s->f_bfree : s->f_bavail) * s->f_frsize;
}

/* bytes_text - some digits and a unit, for people */
static void bytes_text(uint64_t bytes, char text[SIZE_TEXT])
{
    if (bytes >= 1024 * MIB)
        snprintf(text, SIZE_TEXT, "%.1f GiB", (double)bytes / (1024.0 * MIB));
    else if (bytes >= MIB)
        snprintf(text, SIZE_TEXT, "%" PRIu64 " MiB", bytes / MIB);
    else
        snprintf(text, SIZE_TEXT, "%" PRIu64 " KiB", bytes / 1024);
}

/* left_check - retries and dead letters need room. Removing a letter needs
 * some, too, so it does not help once the disk is full. */
static void left_check(struct findings *f, const char *root,
                       const struct statvfs *s, const char *mount)
{
    uint64_t left = left_of(root, s) / 1024 * 1024;
    char text[SIZE_TEXT];
    const char *room;

    bytes_text(left, text);
    room =
        fix(f,
            "df -h %s; make room there by what is not mqworker's, or enlarge "
            "it; %s",
            mount,
            left < FULL ? "what waits goes on by itself"
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

/* ---- messages in flight of a state directory that is gone ---- */

/* stray_found - one file of them */
static void stray_found(const char *custody, const char *state, void *arg)
{
    struct custody_count count;
    struct findings *f = arg;
    struct problem p;
    int err = custody_count(&count, custody, NULL, &p);

    if (err && err != -ENOENT)
        FOUND(f, WARN, "custody", NULL, "%s", p.text);
    if (err || count.total == 0)
        return;
    FOUND(f, WARN, "custody",
          "docs/runbook.md: \"Messages in flight of a state directory that is "
          "gone\"",
          "%" PRId64 " message%s in flight of a worker that was killed wait in "
          "%s; its state directory, with %s, is gone",
          count.total, count.total == 1 ? "" : "s", custody, state);
}

/* strays_check - where workers of ours have messages in flight by default */
static void strays_check(struct findings *f)
{
    const struct runtimedir_wish wish = {.allow_disk = true};
    char root[PATH_MAX];
    bool disk;

    if (runtimedir_root(root, &wish, &disk, NULL) == 0 && root[0])
        runtimedir_strays(root, custody_holds, stray_found, f);
}

/* strays_beside - where those of one queue are, if that is another place */
void strays_beside(struct findings *f, const struct statedir *dir)
{
    const struct runtimedir_wish wish = {.allow_disk = true};
    char path[PATH_MAX], root[PATH_MAX];
    bool disk;

    if (runtimedir_file(dir, RUNTIMEDIR_OWNER, path, NULL) < 0)
        return;
    for (int i = 0; i < 2; i++) /* the file, and the folder of the queue */
        if (strrchr(path, '/'))
            *strrchr(path, '/') = '\0';
    if (path[0] && strcmp(path, dir->root) != 0 &&
        (runtimedir_root(root, &wish, &disk, NULL) < 0 ||
         strcmp(path, root) != 0))
        runtimedir_strays(path, custody_holds, stray_found, f);
}

void machine_check(struct findings *f, const struct options *o,
                   const struct queue_list *queues)
{
    limits_check(f, queues);
    namespace_check(f);
    folder_check(f, o);
    strays_check(f);
}
