/* pause_note.c - the file that keeps a pause across restarts (see
 * pause_note.h) */
#include "common/state/pause_note.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"

#define NOTE "/pause"
#define TEXT 256

/* Parse the text of pause_note_write; false if the text is malformed. */
static bool note_parse(struct pause_note *out, char *text)
{
    char *at = text;

    if (strncmp(at, "since ", 6) != 0)
        return false;
    out->since_ns = strtoull(at + 6, &at, 10);
    if (strncmp(at, "\nuntil ", 7) != 0)
        return false;
    out->until_ns = strtoull(at + 7, &at, 10);
    if (strncmp(at, "\nby ", 4) != 0 || at[4] == '\n' || !at[4])
        return false;
    snprintf(out->by, sizeof out->by, "%.*s", (int)strcspn(at + 4, "\n"),
             at + 4);
    return true;
}

int pause_note_read(struct pause_note *out, const char *folder)
{
    char path[PATH_MAX], text[TEXT];
    ssize_t n;

    *out = (struct pause_note){.by = "unknown"};
    if (!folder_join(path, folder, NOTE, ""))
        return -ENAMETOOLONG;
    n = file_read_text(path, text, sizeof text);
    if (n < 0 && n != -EIO && n != -EISDIR)
        return (int)n;
    if (n < 0 || !note_parse(out, text))
        *out = (struct pause_note){.by = "unknown"};
    return 0;
}

/* Write the note with file_replace, then sync the folder.
 * If the process is killed before the rename, the old note, or
 * none, remains in force; the order was not answered yet, and the next write
 * replaces the temporary file. If the process is killed after the rename, the
 * next start finds the new note. Only a power cut before the sync of the folder
 * can bring back the old note, and the order is answered after that sync. */
int pause_note_write(const struct pause_note *note, const char *folder)
{
    char path[PATH_MAX], text[TEXT];
    int n = snprintf(text, sizeof text,
                     "since %" PRIu64 "\nuntil %" PRIu64 "\nby %s\n",
                     note->since_ns, note->until_ns, note->by);
    int err = folder_join(path, folder, NOTE, "") ? 0 : -ENAMETOOLONG;

    if (!err)
        err = file_replace(path, text, (size_t)n);
    return err ? err : folder_sync(folder);
}

int pause_note_remove(const char *folder)
{
    char path[PATH_MAX];

    if (!folder_join(path, folder, NOTE, ""))
        return -ENAMETOOLONG;
    if (unlink(path) < 0)
        return errno == ENOENT ? 0 : -errno;
    return folder_sync(folder);
}

uint64_t pause_note_left(const struct pause_note *note, uint64_t now_ns)
{
    uint64_t most = note->until_ns - note->since_ns;

    if (note->until_ns == 0)
        return UINT64_MAX;
    if (now_ns >= note->until_ns || note->until_ns <= note->since_ns)
        return 0;
    return note->until_ns - now_ns < most ? note->until_ns - now_ns : most;
}
