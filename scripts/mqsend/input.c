/* input.c - see input.h */
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
    int fd; /* -1: all of it is in the chunk from the start */
    int delimiter;
    const char *at, *end; /* of the chunk, not yet given out */
    char *chunk;          /* CHUNK_BYTES; NULL for an argument */
    char *record;         /* a record that spans chunks, its first `keep` */
    size_t keep, size;    /* size: of that record so far, what is held or not */
    bool done;            /* the end was reached and the last record given */
};

/* input_source - the descriptor or the argument to read from */
static int input_source(struct input *in, const struct input_spec *spec,
                        struct problem *p)
{
    if (spec->text) {
        in->at = spec->text;
        in->end = spec->text + strlen(spec->text);
        return 0;
    }
    in->fd = spec->file ? open(spec->file, O_RDONLY | O_CLOEXEC) : 0;
    if (in->fd >= 0)
        return 0;
    return problem_set(p, errno == EACCES ? EX_NOPERM : EX_NOINPUT, errno,
                       "--file: cannot open \"%s\": %s", spec->file,
                       errno_text(errno));
}

/* input_open - ready to give the first record */
int input_open(struct input **out, const struct input_spec *spec,
               struct problem *p)
{
    struct input *in = calloc(1, sizeof *in);
    int err;

    if (!in)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    *in = (struct input){
        .fd = -1, .delimiter = spec->delimiter, .keep = spec->keep};
    err = input_source(in, spec, p);
    if (!err) {
        in->record = malloc(in->keep);
        in->chunk = spec->text ? NULL : malloc(CHUNK_BYTES);
        if (!in->record || (!spec->text && !in->chunk))
            err = problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    if (err)
        input_close(&in);
    *out = in;
    return err;
}

/* input_close - give back what was opened */
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

/* chunk_read - the next chunk: its bytes, 0 at the end, or -errno */
static ssize_t chunk_read(struct input *in)
{
    ssize_t n;

    if (in->fd < 0)
        return 0;
    n = read(in->fd, in->chunk, CHUNK_BYTES);
    if (n < 0)
        return -errno;
    in->at = in->chunk;
    in->end = in->chunk + n;
    return n;
}

/* record_add - keep what fits, count the rest */
static void record_add(struct input *in, const char *data, size_t size)
{
    if (in->size < in->keep) {
        size_t room = in->keep - in->size;

        memcpy(in->record + in->size, data, size < room ? size : room);
    }
    in->size += size;
}

/* record_take - the record that `end` ends, without a copy where the chunk has
 * all of it */
static void record_take(struct input *in, const char *end, const char **data,
                        size_t *size)
{
    size_t piece = (size_t)(end - in->at);

    *data = in->at;
    *size = piece;
    if (in->size > 0) {
        record_add(in, in->at, piece);
        *data = in->record;
        *size = in->size;
    }
    in->at = end + 1;
}

/* input_next - the next record */
int input_next(struct input *in, const char **data, size_t *size)
{
    in->size = 0;
    while (!in->done) {
        size_t left = (size_t)(in->end - in->at);
        const char *end = NULL;
        ssize_t n;

        if (left > 0 && in->delimiter != INPUT_WHOLE)
            end = memchr(in->at, in->delimiter, left);
        if (end) {
            record_take(in, end, data, size);
            return INPUT_RECORD;
        }
        if (left > 0)
            record_add(in, in->at, left);
        in->at = in->end;
        n = chunk_read(in);
        if (n < 0)
            return (int)n;
        if (n > 0)
            continue;
        in->done = true;
        *data = in->record;
        *size = in->size;
        return in->size > 0 || in->delimiter == INPUT_WHOLE ? INPUT_RECORD
                                                            : INPUT_END;
    }
    return INPUT_END;
}
