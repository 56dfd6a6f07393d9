/* statedir.c - find the state directory and a queue's folder (see statedir.h)
 *
 * folder.h creates and checks the directories; here are their names, and the
 * sentences for what can be wrong.
 */
#include "common/state/statedir.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/folder.h"
#include "common/base/safe_text.h"
#include "common/cli/options.h"

/* Longest path of the store that SQLite can create, bytes. SQLite allows 512
 * bytes including "-journal" (sqlite3PagerOpen, MAX_PATHNAME of os_unix.c), and
 * a new store is created under the name "store.db.XXXXXX". */
#define STORE_PATH 497

int statedir_root(char out[PATH_MAX], const char *flag, struct problem *p)
{
    const char *dir;
    bool fits;

    if (flag && flag[0] == '\0')
        return problem_set(
            p, EX_CANTCREAT, EINVAL,
            "--state-dir is empty: give the path of a directory");
    if (flag)
        fits = folder_join(out, flag, "", "");
    else if ((dir = folder_variable("STATE_DIRECTORY")))
        fits = snprintf(out, PATH_MAX, "%.*s", (int)strcspn(dir, ":"), dir) <
               PATH_MAX;
    else if (geteuid() == 0)
        fits = folder_join(out, "/var/lib/mqworker", "", "");
    else if ((dir = folder_variable("XDG_STATE_HOME")))
        fits = folder_join(out, dir, "/mqworker", "");
    else if ((dir = folder_variable("HOME")))
        fits = folder_join(out, dir, "/.local/state/mqworker", "");
    else
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "no state directory: none of STATE_DIRECTORY, "
                           "XDG_STATE_HOME and HOME is an absolute path; give "
                           "--state-dir DIR");
    if (!fits)
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of the state directory is over %d bytes; "
                           "give a shorter --state-dir DIR",
                           PATH_MAX - 1);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
    return 0;
}

const char *statedir_operand(const char *root, const char *queue, char *out,
                             size_t room)
{
    char usual[PATH_MAX], word[SHELL_WORD_ROOM(STORE_PATH)];

    if (!root[0] ||
        (!folder_variable("STATE_DIRECTORY") &&
         statedir_root(usual, NULL, NULL) == 0 && strcmp(root, usual) == 0))
        return shell_word(queue, out, room);
    snprintf(out, room, "--state-dir %s %s",
             shell_word(root, word, sizeof word), SHELL_QUEUE(queue));
    return out;
}

int statedir_refuse(const char *root, int err, struct problem *p)
{
    if (err == EACCES && folder_others(root, &folder_state, p))
        return -err;
    return problem_set(p, err == EACCES ? EX_NOPERM : EX_CANTCREAT, err,
                       "state directory %s: %s; see --state-dir", root,
                       errno_text(err));
}

int statedir_open(struct statedir *out, const char *flag, const char *queue,
                  bool create, struct problem *p)
{
    char label[QUEUE_NAME_MAX]; /* "/orders", which is also the folder's path
                                   below the state directory */
    char real[PATH_MAX];
    size_t size;
    int err = queue_name(queue, label, p);

    if (!err)
        err = statedir_open_label(out, flag, label, create, p);
    /* Other problems of the folder are reported when it is used. */
    if (err || !realpath(out->folder, real) ||
        (size = strlen(real) + strlen("/" STATEDIR_STORE)) <= STORE_PATH)
        return err;
    return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                       "the path of %s in %.80s... is %zu bytes long, and "
                       "SQLite allows %d; give a shorter --state-dir DIR",
                       STATEDIR_STORE, real, size, STORE_PATH);
}

int statedir_open_label(struct statedir *out, const char *flag,
                        const char *label, bool create, struct problem *p)
{
    char user[FOLDER_USER];
    int err = statedir_root(out->root, flag, p);

    if (err)
        return err;
    if (!folder_join(out->folder, out->root, label, ""))
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of the folder of queue %s is over %d "
                           "bytes; give a shorter --state-dir DIR",
                           label, PATH_MAX - 1);
    /* systemd makes the StateDirectory= of a DynamicUser= service a link that
     * belongs to root, and names it in $STATE_DIRECTORY. */
    err = folder_root(out->root, create,
                      !flag && folder_variable("STATE_DIRECTORY"),
                      &folder_state, p);
    if (err)
        return err;
    err = create ? folder_make(out->folder) : 0;
    if (err == -EROFS)
        return folder_read_only(out->root, p);
    if (err == -ENOSPC)
        return problem_set(p, EX_CANTCREAT, ENOSPC, "cannot make %s: %s; %s",
                           out->folder, errno_text(ENOSPC),
                           folder_room(out->folder));
    if (err == -EACCES || err == -EPERM)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot make %s: %s; you are %s: give another "
                           "--state-dir DIR",
                           out->folder, errno_text(-err),
                           folder_user(geteuid(), user));
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot make %s: %s; give another --state-dir DIR",
                           out->folder, errno_text(-err));
    err = folder_queue(out->folder, create, &folder_state, p);
    return err != -ENOENT
               ? err
               : problem_set(p, EX_CANTCREAT, ENOENT,
                             "%s does not exist: no worker has used this queue "
                             "with this state directory; see --state-dir",
                             out->folder);
}

int statedir_path(const struct statedir *dir, const char *file,
                  char out[PATH_MAX], struct problem *p)
{
    struct stat folder, st;
    int err;

    if (!folder_join(out, dir->folder, "/", file))
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of %s in %.200s is over %d bytes; give a "
                           "shorter --state-dir DIR",
                           file, dir->folder, PATH_MAX - 1);
    err = folder_look(dir->folder, &folder, &folder_state, p);
    if (err == -ENOENT)
        return problem_set(p, EX_CANTCREAT, ENOENT, "%s does not exist",
                           dir->folder);
    if (err)
        return err;
    err = folder_look(out, &st, &folder_state, p);
    if (err)
        return err == -ENOENT ? 0 : err;
    return folder_node(out, &st, S_IFREG, folder.st_uid, S_IWGRP | S_IWOTH,
                       &folder_state, p);
}

/* ---- mistyped names ---- */

/* The nearest name found so far. */
struct guess {
    char name[NAME_MAX + 1]; /* "": none */
    size_t distance;
};

/* Keep the nearest of the names in a folder, if it is nearer than `g`. */
static void folder_search(const char *path, const char *wanted, struct guess *g)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' &&
            word_nearer(wanted, strlen(wanted), entry->d_name, &g->distance))
            strlcpy(g->name, entry->d_name, sizeof g->name);
    if (dir)
        closedir(dir);
}

bool queue_guess(const char *state_dir, const char *queue,
                 char out[NAME_MAX + 2])
{
    char root[PATH_MAX];
    struct guess g = {.distance = SIZE_MAX};
    struct problem ignored = {0};

    if (queue[1] == '\0' || queue[2] == '\0')
        return false; /* one letter is too little to guess from */
    if (statedir_root(root, state_dir, &ignored) == 0)
        folder_search(root, queue + 1, &g);
    folder_search("/dev/mqueue", queue + 1, &g);
    snprintf(out, NAME_MAX + 2, "/%s", g.name);
    return g.name[0] != '\0';
}

int queue_absent(const char *state_dir, const char *queue, struct problem *p)
{
    char name[NAME_MAX + 2];

    if (queue_guess(state_dir, queue, name))
        return problem_set(p, EX_NOINPUT, ENOENT,
                           "there is no queue %s, and no worker has run on it; "
                           "did you mean %s?",
                           queue, name);
    return problem_set(p, EX_NOINPUT, ENOENT,
                       "there is no queue %s, and no worker has run on it; "
                       "mqctl queues lists the existing ones",
                       queue);
}
