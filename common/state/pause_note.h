/* pause_note.h - the file that keeps a pause across restarts
 *
 * WHAT   The file `pause` in the queue's folder of the state directory: the
 *        start and the end of the pause, and the user who paused. While the
 *        file exists, a worker starts paused.
 * WHO    write, remove: the worker, or mqctl under the worker's lock. read: any
 *        program.
 * FAILS  -errno.
 */
#ifndef COMMON_STATE_PAUSE_NOTE_H
#define COMMON_STATE_PAUSE_NOTE_H

#include <stdint.h>

#define PAUSE_NOTE_BY 64

struct pause_note {
    uint64_t since_ns;      /* wall clock; 0: unknown */
    uint64_t until_ns;      /* wall clock; 0: until resume */
    char by[PAUSE_NOTE_BY]; /* user name, "signal" or "program" */
};

/* Read the note of `folder`; -ENOENT if there is none. A damaged file counts as
 * a pause without an end. */
int pause_note_read(struct pause_note *out, const char *folder);
/* Replace the note. On 0 the new note is on disk; on an error the note on disk
 * is the complete new one or the old one. */
int pause_note_write(const struct pause_note *note, const char *folder);
/* Remove the note and sync the removal to disk; 0 if there was none. */
int pause_note_remove(const char *folder);
/* Return the nanoseconds left of the pause at the wall time `now_ns`; 0 if the
 * pause is over, UINT64_MAX if it has no end. Never more than the whole length,
 * so setting the clock back does not prolong the pause. */
uint64_t pause_note_left(const struct pause_note *note, uint64_t now_ns);

#endif
