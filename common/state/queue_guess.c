/* queue_guess.c - see queue_guess.h */
#include "common/state/queue_guess.h"

#include <bsd/string.h>
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/safe_text.h"
#include "common/options/options.h"
#include "common/state/statedir.h"

/* The nearest name so far. */
struct guess {
    char name[NAME_MAX + 1]; /* "": none */
    size_t distance;
};

/* Compare each entry of a folder with the wanted name. */
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
