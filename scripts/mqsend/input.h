/* input.h - read message bodies from an argument, a file or stdin
 *
 * WHAT   Reads one record at a time: the whole input, a line, or the bytes up
 *        to a NUL. Holds only the current record.
 * WHO    mqsend.c opens and closes it, posting_run (post.c) reads; one thread.
 * OWNS   The descriptor that it opened, and its buffers.
 * FAILS  input_open: a problem: 66 no such file, 71 no memory, 77 not readable.
 *        input_next: -errno of read(2), also -EINTR, which loses the current
 *        record.
 */
#ifndef SCRIPTS_MQSEND_INPUT_H
#define SCRIPTS_MQSEND_INPUT_H

#include <stddef.h>

#include "common/base/problem.h"

#define INPUT_WHOLE (-1)

struct input; /* opaque; body in input.c */

struct input_spec {
    const char *text; /* the argument; NULL: read a file */
    const char *file; /* its path; NULL: stdin */
    int delimiter;    /* '\n', '\0' or INPUT_WHOLE */
    size_t keep;      /* bytes of a record that are kept, at most */
};

int input_open(struct input **out, const struct input_spec *spec,
               struct problem *p);
enum input_got { INPUT_END, INPUT_RECORD };
/* Read the next record, which is valid until the next call. `size` is its whole
 * size; at most `keep` bytes of it are at `data`. Returns an enum input_got or
 * -errno. */
int input_next(struct input *in, const char **data, size_t *size);
void input_close(struct input **in); /* NULL-safe; sets NULL */

#endif
