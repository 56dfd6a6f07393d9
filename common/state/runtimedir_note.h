/* runtimedir_note.h - the two small files that tie a state folder to its
 * runtime folder
 *
 * WHAT   `runtime` in the state folder names the runtime folder; `owner` in
 *        the runtime folder names the state folder. Both carry the same id.
 * WHO    runtimedir*.c.
 * OWNS   Nothing.
 * FAILS  -errno; -EBADMSG: cannot be understood.
 */
#ifndef COMMON_STATE_RUNTIMEDIR_NOTE_H
#define COMMON_STATE_RUNTIMEDIR_NOTE_H

#include "common/base/boot_id.h"
#include "common/state/runtimedir.h"

struct runtimedir_note {
    char folder[PATH_MAX]; /* the other folder */
    struct boot boot;      /* run of the machine that it was written in */
    char id[RUNTIMEDIR_ID];
    bool open; /* a worker runs, or was killed */
};

/* `folder`/`file`; -ENOENT if there is none. */
int runtimedir_note_read(struct runtimedir_note *out, const char *folder,
                         const char *file);
/* Complete or as it was, whatever comes; on the disk when it returns 0. */
int runtimedir_note_write(const struct runtimedir_note *note,
                          const char *folder, const char *file);
/* A new id. */
void runtimedir_note_id(char out[RUNTIMEDIR_ID]);

#endif
