/* input.h - the source of the bodies: an argument, stdin, a file
 *
 * WHAT   Reads one record: the whole input, a line, or the bytes up to a NUL.
 *        Holds only the current record.
 * WHO    One thread.
 * OWNS   The descriptor it opened and its buffers.
 * FAILS  open: a problem, 66 no such file, 71 no memory. next: -errno of
 *        read(2), including -EINTR; the record is then lost.
 */
#ifndef SCRIPTS_MQSEND_INPUT_H
#define SCRIPTS_MQSEND_INPUT_H

#include <stddef.h>

#include "common/base/problem.h"

#define INPUT_WHOLE (-1)

struct input; /* opaque; body in input.c */

struct input_spec {
    const char *text; /* the argument; NULL: none */
    const char *file; /* else this file; NULL: stdin */
    int delimiter;    /* '\n', '\0' or INPUT_WHOLE */
    size_t keep;      /* most bytes of a record that are held */
};

int input_open(struct input **out, const struct input_spec *spec,
               struct problem *p);
enum input_got { INPUT_END, INPUT_RECORD };
/* Read the next record, which is valid until the next call. Only `keep` bytes
 * are at `data` if `size` is more. Returns an enum input_got or -errno. */
int input_next(struct input *in, const char **data, size_t *size);
void input_close(struct input **in); /* NULL-safe; sets NULL */

#endif
