/* input.h - where the bodies come from: an argument, stdin, a file
 *
 * WHAT   The whole as one record, or one record for each line or each run that
 *        NUL ends. Streams: nothing but the current record is held.
 * WHO    One thread.
 * OWNS   The descriptor it opened and its buffers.
 * FAILS  open: a problem, 66 no such file, 71 no memory. next: -errno of
 *        read(2), -EINTR included; the part of a record that was read is lost
 *        then.
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
    size_t keep;      /* bytes of a record that are held */
};

int input_open(struct input **out, const struct input_spec *spec,
               struct problem *p);
enum input_got { INPUT_END, INPUT_RECORD };
/* The next record, whose `size` may be more than `keep`: then only `keep` bytes
 * are at `data`. enum input_got, or -errno. Valid until the next call. */
int input_next(struct input *in, const char **data, size_t *size);
void input_close(struct input **in); /* NULL-safe; sets NULL */

#endif
