/* runtimedir_root.c - which directory in memory holds what is in flight (see
 * runtimedir.h)
 *
 * Why memory: a page of a file on a disk is write-protected again each time it
 * is written back. The kernel's copy in mq_receive(3) then takes a fault, and
 * gives up if that has to wait while a SIGKILL is pending; the message has left
 * the queue by then. Pages of tmpfs and ramfs are never written back.
 */
#include "common/state/runtimedir.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"

#define DOCKER "docker run --tmpfs /run/mqworker"

int (*runtimedir_statfs)(const char *path, struct statfs *out) = statfs;

/* What was looked at and could not be used, for the refusal. */
struct looked {
    char text[512];
};

__attribute__((format(printf, 2, 3))) static void
looked_add(struct looked *l, const char *fmt, ...)
{
    size_t used = strlen(l->text);
    va_list args;

    if (used)
        strlcat(l->text, ", ", sizeof l->text);
    used = strlen(l->text);
    va_start(args, fmt);
    vsnprintf(l->text + used, sizeof l->text - used, fmt, args);
    va_end(args);
}

/* type_of - of the file system that a path is on, or will be once it is made;
 * 0 or -errno */
static int type_of(const char *path, long *type)
{
    char at[PATH_MAX];
    struct statfs s;

    strlcpy(at, path, sizeof at);
    while (runtimedir_statfs(at, &s) < 0)
        if ((errno != ENOENT && errno != ENOTDIR) || !file_parent(at))
            return -errno;
    *type = (long)s.f_type;
    return 0;
}

/* in_memory - whether it may be used; else why not is added to `l`: of a link,
 * also where it leads, as somebody else may have put it there */
static bool in_memory(const char *path, struct looked *l)
{
    char text[FS_TYPE_TEXT], to[PATH_MAX];
    ssize_t n = readlink(path, to, sizeof to - 1);
    long type = 0;
    int err = type_of(path, &type);

    to[n > 0 ? n : 0] = '\0';
    if (err)
        looked_add(l, "%s (%s)", path, errno_text(-err));
    else if (!fs_type_memory(type))
        looked_add(l, "%s (%s%.100s%s%s)", path,
                   n > 0 ? "a symbolic link to " : "", to, n > 0 ? ", on " : "",
                   fs_type_text(type, text));
    else
        return true;
    return false;
}

/* session_ours - what a change of user left in the environment is not for us,
 * nor is one whose session is over (XDG Base Directory Specification) */
static bool session_ours(const char *dir, struct looked *l)
{
    struct stat st;

    if (!dir)
        looked_add(l, "$XDG_RUNTIME_DIR (not set)");
    else if (stat(dir, &st) < 0)
        looked_add(l, "$XDG_RUNTIME_DIR %s (%s)", dir, errno_text(errno));
    else if (st.st_uid != geteuid())
        looked_add(l, "$XDG_RUNTIME_DIR %s (of another user)", dir);
    else
        return true;
    return false;
}

/* preset_find - the first of the list that lies in memory; true: there is
 * one */
static bool preset_find(char out[PATH_MAX], struct looked *l)
{
    const char *service = folder_variable("RUNTIME_DIRECTORY");
    const char *session = folder_variable("XDG_RUNTIME_DIR");

    if (service && strcspn(service, ":") < PATH_MAX) {
        snprintf(out, PATH_MAX, "%.*s", (int)strcspn(service, ":"), service);
        if (in_memory(out, l))
            return true;
    }
    if (geteuid() == 0) {
        strlcpy(out, "/run/mqworker", PATH_MAX);
        if (in_memory(out, l))
            return true;
    }
    if (session_ours(session, l) &&
        folder_join(out, session, "/mqworker", "") && in_memory(out, l))
        return true;
    snprintf(out, PATH_MAX, "/dev/shm/mqworker-%u", (unsigned)geteuid());
    return in_memory(out, l);
}

/* given - --runtime-dir itself */
static int given(char out[PATH_MAX], const struct runtimedir_wish *wish,
                 bool *disk, struct problem *p)
{
    struct looked l = {""};

    if (wish->dir[0] == '\0' || strlen(wish->dir) >= PATH_MAX - 1)
        return problem_set(p, EX_CANTCREAT, EINVAL,
                           "--runtime-dir is %s: give the path of a directory "
                           "on a tmpfs",
                           wish->dir[0] ? "too long" : "empty");
    strlcpy(out, wish->dir, PATH_MAX);
    *disk = !in_memory(out, &l);
    if (*disk && !wish->allow_disk)
        return problem_set(
            p, EX_CANTCREAT, EXDEV,
            "--runtime-dir: %s is not a tmpfs, and on a disk a kill during "
            "writeback loses the message in hand; give a directory on a tmpfs "
            "(mount -t tmpfs tmpfs DIR; " DOCKER "), or take the risk with "
            "--allow-disk-custody",
            l.text);
    return 0;
}

int runtimedir_root(char out[PATH_MAX], const struct runtimedir_wish *wish,
                    bool *disk, struct problem *p)
{
    struct looked l = {""};
    int err = 0;

    *disk = false;
    if (wish->dir) {
        err = given(out, wish, disk, p);
    } else if (!preset_find(out, &l)) {
        *disk = true;
        out[0] = '\0';
        if (!wish->allow_disk)
            err = problem_set(
                p, EX_CANTCREAT, EXDEV,
                "no directory in memory for messages in flight, as on a disk a "
                "kill during writeback loses the one in hand; looked at: %s. "
                "Give --runtime-dir DIR on a tmpfs (mount -t tmpfs tmpfs "
                "DIR; " DOCKER
                "; Kubernetes: emptyDir with medium: Memory), or take "
                "the risk with --allow-disk-custody",
                l.text);
    }
    for (size_t n = strlen(out); !err && n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
    if (!err && strchr(out, '\n'))
        err = problem_set(p, EX_CANTCREAT, EINVAL,
                          "the path of the runtime directory has a newline; "
                          "give another --runtime-dir");
    return err;
}
