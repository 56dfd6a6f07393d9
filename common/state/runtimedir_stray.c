/* runtimedir_stray.c - messages in flight that no state directory knows of (see
 * runtimedir.h) */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <bsd/string.h>

#include "common/base/folder.h"
#include "common/state/runtimedir_note.h"

/* stray - whether the state folder that `owner` names is gone or was replaced;
 * one that we cannot read may be there */
static bool stray(const struct runtimedir_note *owner)
{
    struct runtimedir_note note;
    int err = runtimedir_note_read(&note, owner->folder, RUNTIMEDIR_NOTE);

    if (err)
        return err == -ENOENT || err == -ENOTDIR;
    return strcmp(note.id, owner->id) != 0;
}

void runtimedir_strays(const char *root, int (*holds)(const char *path),
                       runtimedir_stray_visit visit, void *arg)
{
    char folder[PATH_MAX], custody[PATH_MAX];
    struct runtimedir_note owner;
    struct dirent *entry;
    DIR *dir = opendir(root);

    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.' &&
            folder_join(folder, root, "/", entry->d_name) &&
            folder_join(custody, folder, "/", RUNTIMEDIR_CUSTODY) &&
            runtimedir_note_read(&owner, folder, RUNTIMEDIR_OWNER) == 0 &&
            stray(&owner) && holds(custody) != NO)
            visit(custody, owner.folder, arg);
    }
    if (dir)
        closedir(dir);
}
