/* folder.h - directories that hold what must not be lost
 *
 * WHAT   Makes them, and checks that nobody else can put something in their
 *        place. The state directory and the runtime directory follow the same
 *        rules.
 * WHO    statedir.c, runtimedir*.c; any thread.
 * OWNS   Nothing.
 * FAILS  A problem with status 73 that names the flag to give.
 */
#ifndef COMMON_BASE_FOLDER_H
#define COMMON_BASE_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/base/problem.h"

#define FOLDER_USER 64

/* The two kinds, and what differs. */
struct folder_kind {
    const char *flag; /* to give instead */
    bool runtime;     /* what lies in memory, and goes with the machine */
};
extern const struct folder_kind folder_state, folder_runtime;

/* a + b + c to `out`; false if it does not fit. */
bool folder_join(char out[PATH_MAX], const char *a, const char *b,
                 const char *c);
/* An environment variable that holds an absolute path, or NULL. */
const char *folder_variable(const char *name);
/* The name of a user, or "uid N" if it has none; returns `out`. */
const char *folder_user(uid_t uid, char out[FOLDER_USER]);
/* "group mqworker", or "gid 995". */
const char *folder_group(gid_t gid, char out[FOLDER_USER]);
/* The same as sudo -u wants it: a number in quotes and with a #. */
const char *folder_sudo_user(uid_t uid, char out[FOLDER_USER]);

/* Make a directory, mode 0700, and the parents it lacks; the entries are on
 * the disk. 0 or -errno. */
int folder_make(char *path);
/* Make the entries of a directory durable. 0 or -errno. */
int folder_sync(const char *path);

/* The problem of a path on a file system that is read-only; -EROFS. */
int folder_read_only(const char *path, struct problem *p);

/* What helps against ENOSPC at a path that may not be there yet: "free some
 * space", or inodes. */
const char *folder_room(const char *path);

/* lstat, or why not; -ENOENT leaves `p` alone. */
int folder_look(const char *path, struct stat *st,
                const struct folder_kind *kind, struct problem *p);
/* Of type `type` (S_IFDIR, S_IFREG), owned by `owner`, and no bit of
 * `forbidden` in its mode. */
int folder_node(const char *path, const struct stat *st, mode_t type,
                uid_t owner, mode_t forbidden, const struct folder_kind *kind,
                struct problem *p);
/* Whether a directory is somebody else's; then the problem says whose. */
bool folder_others(const char *path, const struct folder_kind *kind,
                   struct problem *p);
/* The directory with one folder for each queue, if it is there. It must be ours
 * or root's; root may look at anybody's with `create` false. `link`: it may be
 * a symbolic link that root owns. A runtime directory may be, or lie in, a
 * tmpfs that root has mounted for several users (the head of folder.c). */
int folder_root(const char *root, bool create, bool link,
                const struct folder_kind *kind, struct problem *p);
/* The folder of a queue: ours, and we can write there. -ENOENT leaves `p`
 * alone. */
int folder_queue(const char *folder, bool create,
                 const struct folder_kind *kind, struct problem *p);

#endif
