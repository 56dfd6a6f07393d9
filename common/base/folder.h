/* folder.h - directories that hold what must not be lost
 *
 * WHAT   Makes directories, and checks that no other user can replace them. The
 *        state directory and the runtime directory follow the same rules.
 * WHO    statedir.c, runtimedir.c; any thread.
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

struct folder_kind {
    const char *flag; /* that sets another directory */
    bool runtime;     /* is in memory and lost with a restart of the machine */
};
extern const struct folder_kind folder_state, folder_runtime;

/* Join a, b and c; returns false if the result does not fit. */
bool folder_join(char out[PATH_MAX], const char *a, const char *b,
                 const char *c);
/* Return an environment variable if it is an absolute path, else NULL. */
const char *folder_variable(const char *name);
/* Print the name of a user, or "uid N" if it has none. Returns `out`. */
const char *folder_user(uid_t uid, char out[FOLDER_USER]);
/* Print "group mqworker", or "gid 995". Returns `out`. */
const char *folder_group(gid_t gid, char out[FOLDER_USER]);
/* Print a user for sudo -u: a name, or '#N' in quotes. Returns `out`. */
const char *folder_sudo_user(uid_t uid, char out[FOLDER_USER]);

/* Make a directory, mode 0700, and missing parents; sync their entries to disk.
 * Returns 0 or -errno. */
int folder_make(char *path);
/* Sync the entries of a directory to disk. Returns 0 or -errno. */
int folder_sync(const char *path);

/* Fill `p` for a path on a read-only file system; returns -EROFS. */
int folder_read_only(const char *path, struct problem *p);

/* Return advice for ENOSPC at a path that need not exist: "free some space", or
 * that there are no inodes. */
const char *folder_room(const char *path);

/* Call lstat(2); -ENOENT does not fill `p`. */
int folder_look(const char *path, struct stat *st,
                const struct folder_kind *kind, struct problem *p);
/* Check that a node has the type `type` (S_IFDIR, S_IFREG), belongs to `owner`,
 * and has no bit of `forbidden` in its mode. */
int folder_node(const char *path, const struct stat *st, mode_t type,
                uid_t owner, mode_t forbidden, const struct folder_kind *kind,
                struct problem *p);
/* Return true if a directory belongs to another user, and fill `p` with the
 * user. */
bool folder_others(const char *path, const struct folder_kind *kind,
                   struct problem *p);
/* Check the directory of the folders of all queues, if it exists. It must be
 * ours or root's; with `create` false, root may look at any. `link`: it may be
 * a symbolic link that root owns. A runtime directory may be, or be in, a tmpfs
 * that root has mounted for several users (see the head of folder.c). */
int folder_root(const char *root, bool create, bool link,
                const struct folder_kind *kind, struct problem *p);
/* Check the folder of a queue: with `create` it must be ours and writable.
 * -ENOENT does not fill `p`. */
int folder_queue(const char *folder, bool create,
                 const struct folder_kind *kind, struct problem *p);

#endif
