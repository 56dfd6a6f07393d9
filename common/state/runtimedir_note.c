/* runtimedir_note.c - see runtimedir_note.h
 *
 * Lines of text, "NAME VALUE": folder, boot, id, and last "state open" or
 * "state closed", so that a text that was cut is told from a whole one. A
 * folder's path has no newline (runtimedir_root).
 */
#include "common/state/runtimedir_note.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"

#define TEXT (PATH_MAX + 512)

/* text_read - a whole small file; its size or -errno */
static int text_read(const char *path, char text[TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    size_t size = 0;
    ssize_t n = 1;

    if (fd < 0)
        return -errno;
    while (size < TEXT - 1 && n != 0) {
        n = read(fd, text + size, TEXT - 1 - size);
        if (n < 0 && errno != EINTR) {
            n = -errno;
            close(fd);
            return (int)n;
        }
        size += n > 0 ? (size_t)n : 0;
    }
    text[size] = '\0';
    close(fd);
    return (int)size;
}

/* line_take - the value of line `name`; false: it is missing, or too long */
static bool line_take(char **text, const char *name, char *out, size_t room)
{
    size_t size = strlen(name), value;
    char *at = *text;

    if (strncmp(at, name, size) != 0 || at[size] != ' ')
        return false;
    at += size + 1;
    value = strcspn(at, "\n");
    if (at[value] != '\n' || value >= room)
        return false;
    memcpy(out, at, value);
    out[value] = '\0';
    *text = at + value + 1;
    return true;
}

int runtimedir_note_read(struct runtimedir_note *out, const char *folder,
                         const char *file)
{
    char path[PATH_MAX], text[TEXT] = "", boot[BOOT_TEXT], state[8], *at = text;
    int n;

    memset(out, 0, sizeof *out);
    if (!folder_join(path, folder, "/", file))
        return -ENAMETOOLONG;
    n = text_read(path, text);
    if (n < 0)
        return n;
    if (!line_take(&at, "folder", out->folder, sizeof out->folder) ||
        !line_take(&at, "boot", boot, sizeof boot) ||
        !line_take(&at, "id", out->id, sizeof out->id) ||
        !line_take(&at, "state", state, sizeof state) ||
        out->folder[0] != '/' || strlen(out->id) != RUNTIMEDIR_ID - 1)
        return -EBADMSG;
    boot_parse(&out->boot, boot, strlen(boot));
    out->open = strcmp(state, "closed") != 0;
    return 0;
}

/* runtimedir_note_write - beside it, synced, and renamed over it
 * Crash before the rename: the old one, and a temporary file that the next
 * write replaces. After it: the new one. */
int runtimedir_note_write(const struct runtimedir_note *note,
                          const char *folder, const char *file)
{
    char path[PATH_MAX], temp[PATH_MAX], text[TEXT], boot[BOOT_TEXT];
    int n = snprintf(text, sizeof text, "folder %s\nboot %s\nid %s\nstate %s\n",
                     note->folder, boot_print(&note->boot, boot), note->id,
                     note->open ? "open" : "closed");
    int err;

    if (n < 0 || (size_t)n >= sizeof text ||
        !folder_join(path, folder, "/", file))
        return -ENAMETOOLONG;
    err = file_create_beside(temp, path, text, (size_t)n);
    if (err < 0)
        return err;
    close(err);
    FAULT_POINT("runtimedir_note_before_rename");
    err = rename(temp, path) < 0 ? -errno : 0;
    FAULT_POINT("runtimedir_note_after_rename");
    if (!err)
        return folder_sync(folder);
    unlink(temp);
    return err;
}

void runtimedir_note_id(char out[RUNTIMEDIR_ID])
{
    uint64_t id;

    if (getrandom(&id, sizeof id, 0) != sizeof id)
        id = clock_wall_ns() ^ (uint64_t)getpid() << 32;
    snprintf(out, RUNTIMEDIR_ID, "%016" PRIx64, id);
}
