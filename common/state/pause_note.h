/* pause_note.h - the small file that keeps a pause across restarts
 *
 * WHAT   `pause` in the queue's folder of the state directory: since when,
 *        until when, by whom. While it is there, a worker starts paused.
 * WHO    Writes and removes: the worker, or mqctl under the worker's lock.
 *        Reads: any program.
 * OWNS   Nothing.
 * FAILS  -errno.
 */
#ifndef COMMON_STATE_PAUSE_NOTE_H
#define COMMON_STATE_PAUSE_NOTE_H

#include <stdint.h>

#define PAUSE_NOTE_BY 64

struct pause_note {
    uint64_t since_ns;      /* wall clock; 0: not known */
    uint64_t until_ns;      /* wall clock; 0: until somebody resumes */
    char by[PAUSE_NOTE_BY]; /* user name, "signal" or "program" */
};

/* Read the note of `folder`; -ENOENT: there is none. A file that was damaged by
 * other programs counts as a pause without an end. */
int pause_note_read(struct pause_note *out, const char *folder);
/* Replace the note; it is on disk when this returns 0, and complete or as it
 * was before otherwise. */
int pause_note_write(const struct pause_note *note, const char *folder);
/* Remove the note, on disk; 0 if there was none. */
int pause_note_remove(const char *folder);
/* Nanoseconds of the pause that are left at the wall time `now_ns`; 0: it is
 * over; UINT64_MAX: it has no end. Never more than its whole length, so a clock
 * that was set back does not prolong it. */
uint64_t pause_note_left(const struct pause_note *note, uint64_t now_ns);

#endif
