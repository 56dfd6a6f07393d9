/* queue_list.c - see queue_list.h */
#include "scripts/mqctl/queue_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/libc.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/term.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"

/* Insert a label ("/orders", or the operand of a queue on a broker) into the
 * sorted list, unless the list has it. */
static int label_add(struct queue_list *n, const char *label)
{
    char **more, *copy;
    size_t at = 0;

    while (at < n->count && strcmp(n->at[at], label) < 0)
        at++;
    if (at < n->count && strcmp(n->at[at], label) == 0)
        return 0;
    more = reallocarray(n->at, n->count + 1, sizeof *more);
    if (!more)
        return -ENOMEM;
    n->at = more;
    copy = strdup(label);
    if (!copy)
        return -ENOMEM;
    memmove(more + at + 1, more + at, (n->count++ - at) * sizeof *more);
    more[at] = copy;
    return 0;
}

static int name_add(struct queue_list *n, const char *name)
{
    char label[QUEUE_NAME_MAX];

    if (queue_name(name, label, NULL) < 0)
        return 0; /* no queue can have that name */
    return label_add(n, label);
}

/* Kinds of entries in a folder. */
enum entries {
    ENTRIES_QUEUES,  /* in an mqueue file system: one for each queue */
    ENTRIES_FOLDERS, /* of queues, in a state directory */
    ENTRIES_LABELS,  /* folders of brokers, or of their queues */
};

/* Add the names of a folder's entries, and close the descriptor. On an error
 * the list is empty. */
static int entries_add(struct queue_list *n, int fd, enum entries are)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    struct stat st;
    int err = 0;

    if (!dir) {
        err = -errno;
        close(fd);
        queue_list_free(n);
        return err;
    }
    while (!err && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;

        if (name[0] == '.' ||
            (are != ENTRIES_QUEUES &&
             (fstatat(fd, name, &st, 0) < 0 || !S_ISDIR(st.st_mode))))
            continue;
        /* amqp/ has the folders of queues on brokers. It is also the folder of
         * /amqp once a worker of that queue has run. */
        if (are == ENTRIES_FOLDERS && strcmp(name, "amqp") == 0 &&
            fstatat(fd, "amqp/" STATEDIR_PIDFILE, &st, 0) < 0)
            continue;
        err = are == ENTRIES_LABELS ? label_add(n, name) : name_add(n, name);
    }
    closedir(dir);
    if (err)
        queue_list_free(n);
    return err;
}

int queue_list_of_workers(struct queue_list *n, const char *state_dir)
{
    char root[PATH_MAX];
    struct problem p;
    int fd;

    if (statedir_root(root, state_dir, &p) == 0) {
        fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            return entries_add(n, fd, ENTRIES_FOLDERS);
        (void)statedir_refuse(root, errno, &p);
    }
    strlcpy(n->folder_trouble, p.text, sizeof n->folder_trouble);
    return 0;
}

int queue_list_of_all_workers(struct queue_list *n, const char *state_dir)
{
    int err = queue_list_of_workers(n, state_dir), fd;
    char root[PATH_MAX], path[PATH_MAX + BROKER_FOLDER];
    char folder[BROKER_FOLDER], operand[QUEUE_NAME_MAX];
    struct queue_list brokers = {0}, queues = {0};
    struct problem p;

    if (err || statedir_root(root, state_dir, &p) < 0)
        return err;
    snprintf(path, sizeof path, "%s/amqp", root);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    err = entries_add(&brokers, fd, ENTRIES_LABELS);
    for (size_t i = 0; i < brokers.count && !err; i++) {
        snprintf(path, sizeof path, "%s/amqp/%s", root, brokers.at[i]);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            continue;
        err = entries_add(&queues, fd, ENTRIES_LABELS);
        for (size_t k = 0; k < queues.count && !err; k++) {
            snprintf(folder, sizeof folder, "/amqp/%s/%s", brokers.at[i],
                     queues.at[k]);
            if (broker_operand_of(operand, folder))
                err = label_add(n, operand);
        }
        queue_list_free(&queues);
    }
    queue_list_free(&brokers);
    if (err)
        queue_list_free(n);
    return err;
}

/* A mounted file system may list the queues of another IPC namespace, as in a
 * container that shares folders. So a private mount is tried first; it is gone
 * when its descriptor is closed. */
int queue_list_of_queues(struct queue_list *n, const char *state_dir)
{
    int fs = fsopen("mqueue", FSOPEN_CLOEXEC), mount = -1, fd = -1, err = 0;
    struct mntent m;
    char line[4096];
    struct fds fds;
    struct stat st;
    FILE *mounts;

    if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
    if (mount >= 0) {
        fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(mount);
    }
    if (fs >= 0)
        close(fs);
    mounts = fd < 0 ? setmntent("/proc/self/mounts", "re") : NULL;
    while (mounts && fd < 0 && getmntent_r(mounts, &m, line, sizeof line))
        if (strcmp(m.mnt_type, "mqueue") == 0)
            fd = open(m.mnt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mounts)
        endmntent(mounts);
    n->complete = fd >= 0;
    if (fd >= 0 && fstat(fd, &st) == 0)
        n->dev = st.st_dev;
    if (fd >= 0)
        err = entries_add(n, fd, ENTRIES_QUEUES);
    if (!err)
        err = queue_list_of_workers(n, state_dir);
    if (!err && !n->complete) {
        err = fds_read(&fds);
        for (size_t i = 0; !err && i < fds.count; i++)
            err = name_add(n, fds.at[i].name);
        fds_free(&fds);
        snprintf(
            n->missing, sizeof n->missing, "%s",
            !mqlimit_kernel_has_queues()
                ? "this kernel has no POSIX message queues "
                  "(CONFIG_POSIX_MQUEUE)"
                : "/dev/mqueue is not mounted: only queues of workers and of "
                  "your processes are shown; as root, run `mkdir -p "
                  "/dev/mqueue && mount -t mqueue none /dev/mqueue`");
    }
    if (err)
        queue_list_free(n);
    return err;
}

void queue_list_free(struct queue_list *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->at[i]);
    free(n->at);
    n->at = NULL;
    n->count = 0;
}

/* ---- queues that no process has open ---- */

int orphans_find(struct orphans *out, const struct queue_list *queues,
                 const char *state_dir, const struct fds *fds)
{
    struct fds own = {.count = 0};
    uint64_t now = clock_wall_ns(), used;
    char folder[PATH_MAX];
    size_t kept = 0;
    struct queue *q;
    struct problem p;
    struct stat st;

    *out = (struct orphans){
        .at = calloc(queues->count + 1, sizeof(struct orphan))};
    if (!out->at)
        return -ENOMEM;
    /* Leave out queues that are gone, or that we may not open. */
    for (size_t i = 0; i < queues->count; i++) {
        if (queue_open(&q, queues->at[i], 0, NULL, NULL, &p) < 0)
            continue;
        if (fstat(queue_fd(q), &st) == 0) {
            /* A send or a receive sets the mtime. The ctime is also set by
             * whoever only reads the sizes, like mqctl queues. */
            used = (uint64_t)st.st_mtim.tv_sec * NS_PER_S +
                   (uint64_t)st.st_mtim.tv_nsec;
            out->at[out->count++] = (struct orphan){
                .queue = queues->at[i],
                .owner = st.st_uid,
                .charged = mqlimit_cost(queue_depth(q), queue_message_size(q)),
                .depth = queue_length(q),
                .idle_ns = now > used ? now - used : 0,
                .dev = st.st_dev,
                .ino = st.st_ino};
        }
        queue_close(&q);
    }
    if (!fds && fds_read(&own) < 0) {
        orphans_free(out);
        return -ENOMEM;
    }
    fds = fds ? fds : &own;
    out->hidden = fds->hidden;
    for (size_t i = 0; i < out->count; i++) {
        struct orphan *o = &out->at[i];
        enum worker_lock lock =
            worker_lock_find(state_dir, o->queue, NULL, folder);
        bool is_open = false;

        /* Skip other mqctl processes, which open each queue for a moment, as
         * this one does. */
        for (size_t k = 0; k < fds->count && !is_open; k++)
            is_open = fds->at[k].dev == o->dev && fds->at[k].ino == o->ino &&
                      !proc_same_program(fds->at[k].pid, getpid());
        o->has_folder = folder[0] && access(folder, F_OK) == 0;
        if (!is_open && (lock == WORKER_NONE || lock == WORKER_GONE))
            out->at[kept++] = *o;
    }
    out->count = kept;
    fds_free(&own);
    return 0;
}

void orphans_free(struct orphans *o)
{
    free(o->at);
    o->at = NULL;
    o->count = 0;
}

const char *orphan_text(const struct orphan *o, char buf[ORPHAN_TEXT])
{
    char user[FOLDER_USER], time[DURATION_TEXT];

    snprintf(buf, ORPHAN_TEXT,
             "owner %s, %" PRIu64 " bytes charged, %ld message%s, unused for "
             "%s",
             folder_user(o->owner, user), o->charged, o->depth,
             term_plural((uint64_t)o->depth),
             duration_rough(o->idle_ns / NS_PER_S * NS_PER_S, time));
    return buf;
}
