/* input.c - read message bodies (see input.h) */
#include "scripts/mqsend/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/problem.h"

#define CHUNK_BYTES (64u << 10)

struct input {
    int fd; /* -1: the input is an argument */
    int delimiter;
    const char *at, *end; /* unread part of the chunk, or of the argument */
    char *chunk;          /* CHUNK_BYTES; NULL for an argument */
    char *record;         /* copy of a record that spans chunks, up to `keep` */
    size_t keep, size;    /* size: bytes of that record so far */
    bool done;            /* the end of the input was reached */
};

int input_open(struct input **out, const struct input_spec *spec,
               struct problem *p)
{
    struct input *in = calloc(1, sizeof *in);
    int err = 0;

    if (!in)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    *in = (struct input){.fd = -1,
                         .delimiter = spec->delimiter,
                         .keep = spec->keep,
                         .at = spec->text,
                         .record = malloc(spec->keep),
                         .chunk = spec->text ? NULL : malloc(CHUNK_BYTES)};
    if (spec->text)
        in->end = spec->text + strlen(spec->text);
    else
        in->fd = spec->file ? open(spec->file, O_RDONLY | O_CLOEXEC) : 0;
    if (!spec->text && in->fd < 0)
        err = problem_set(p, errno == EACCES ? EX_NOPERM : EX_NOINPUT, errno,
                          "--file: cannot open \"%s\": %s", spec->file,
                          errno_text(errno));
    else if (!in->record || (!spec->text && !in->chunk))
        err = problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (err)
        input_close(&in);
    *out = in;
    return err;
}

void input_close(struct input **in)
{
    if (!*in)
        return;
    if ((*in)->fd > 0)
        close((*in)->fd);
    free((*in)->chunk);
    free((*in)->record);
    free(*in);
    *in = NULL;
}

int input_next(struct input *in, const char **data, size_t *size)
{
    in->size = 0;
    while (!in->done) {
        size_t left = (size_t)(in->end - in->at), room;
        const char *end = NULL;
        ssize_t n;

        if (left > 0 && in->delimiter != INPUT_WHOLE)
            end = memchr(in->at, in->delimiter, left);
        if (end)
            left = (size_t)(end - in->at);
        /* A record within one chunk is returned without a copy. */
        if (end && in->size == 0) {
            *data = in->at;
            *size = left;
            in->at = end + 1;
            return INPUT_RECORD;
        }
        /* Keep the bytes that fit, and count the others. */
        room = in->size < in->keep ? in->keep - in->size : 0;
        if (left > 0 && room > 0)
            memcpy(in->record + in->size, in->at, left < room ? left : room);
        in->size += left;
        if (end) {
            *data = in->record;
            *size = in->size;
            in->at = end + 1;
            return INPUT_RECORD;
        }
        n = in->fd < 0 ? 0 : read(in->fd, in->chunk, CHUNK_BYTES);
        in->at = in->end;
        if (n < 0)
            return -errno;
        if (n > 0) {
            in->at = in->chunk;
            in->end = in->chunk + n;
            continue;
        }
        in->done = true;
        *data = in->record;
        *size = in->size;
        return in->size > 0 || in->delimiter == INPUT_WHOLE ? INPUT_RECORD
                                                            : INPUT_END;
    }
    return INPUT_END;
}
