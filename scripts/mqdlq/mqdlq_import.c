/* mqdlq_import.c - see mqdlq.h */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/errno_text.h"
#include "common/text/json_line.h"
#include "common/text/complain.h"
#include "common/text/cli_interrupt.h"
#include "common/text/term.h"
#include "common/text/term_progress.h"
#include "scripts/mqdlq/mqdlq_json.h"

#define BATCH_LETTERS 256
#define BATCH_BYTES   (4u << 20)

struct import {
    struct context *context;
    FILE *file;
    struct term_progress bar;
    uint64_t line; /* lines read */
    uint64_t read; /* bytes read, for the bar */
    uint64_t in;   /* letters in the store */
    size_t count;  /* letters of the batch */
    size_t bytes;  /* of their lines */
    struct decoding decodings[BATCH_LETTERS];
    struct letter_import letters[BATCH_LETTERS];
};

/* batch_free - forget what is in the batch */
static void batch_free(struct import *i)
{
    while (i->count > 0)
        decoding_free(&i->decodings[--i->count]);
    i->bytes = 0;
}

/* batch_put - the batch into the store, all or nothing; 0 or -errno */
static int batch_put(struct import *i)
{
    int err = 0;

    if (i->count > 0)
        err = letters_import(i->context->store, i->letters, i->count);
    if (!err)
        i->in += i->count;
    batch_free(i);
    term_progress_step(&i->bar, i->read);
    return err;
}

/* import_stop - put in what is good so far; say why it stops and where */
static int import_stop(struct import *i, int status, uint64_t from,
                       const char *why)
{
    int err = batch_put(i);

    term_progress_end(&i->bar);
    if (err)
        store_failed("import", err);
    return complain(status,
                    "%s; %" PRIu64 " letter%s imported, none from line %" PRIu64
                    " on%s",
                    why, i->in, term_plural(i->in), from,
                    err ? " nor of some before it" : "");
}

/* batch_failed - the store did not take a batch; the exit status */
static int batch_failed(struct import *i, int err)
{
    int status;

    term_progress_end(&i->bar);
    status = store_failed("import", err);
    complain(0, "%" PRIu64 " letter%s imported", i->in, term_plural(i->in));
    return status;
}

/* line_import - one line into the batch; 0 or an exit status */
static int line_import(struct import *i, const char *text, size_t size)
{
    char why[JSON_WHY] = "", sentence[JSON_WHY + 64];
    struct problem p;
    int err;

    if (strspn(text, " \t\r\n") == size)
        return 0;
    err = decoding_read(&i->decodings[i->count], text, size, why);
    if (err == -ENOMEM) {
        problem_memory(&p);
        return import_stop(i, p.status, i->line, p.text);
    }
    if (err) {
        snprintf(sentence, sizeof sentence, "line %" PRIu64 ": %s", i->line,
                 why);
        return import_stop(i, EX_DATAERR, i->line, sentence);
    }
    i->letters[i->count] = i->decodings[i->count].letter;
    i->count++;
    i->bytes += size;
    if (i->count < BATCH_LETTERS && i->bytes < BATCH_BYTES)
        return 0;
    err = batch_put(i);
    return err ? batch_failed(i, err) : 0;
}

/* lines_import - all of them; 0 or an exit status */
static int lines_import(struct import *i)
{
    char *text = NULL;
    size_t room = 0;
    int status = 0;

    while (!status) {
        ssize_t size = getline(&text, &room, i->file);

        if (cli_interrupt_seen())
            status = import_stop(i, EX_TEMPFAIL, i->line + 1, "interrupted");
        else if (size < 0)
            break;
        else {
            i->line++;
            i->read += (uint64_t)size;
            status = line_import(i, text, (size_t)size);
        }
    }
    /* getline(3) without memory sets no flag of the file. */
    if (!status && !feof(i->file))
        status = import_stop(i, ferror(i->file) ? EX_IOERR : EX_OSERR,
                             i->line + 1, "cannot read the input");
    free(text);
    return status;
}

/* file_open - FILE, or stdin for none and for "-"; its size is the bar's end */
static int file_open(struct import *i)
{
    const struct options *o = i->context->o;
    const char *name = o->line.operand_count > 1 ? o->line.operands[1] : "-";
    struct stat st;
    bool sized;

    i->file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    if (i->file == stdin)
        complain_reads("letters, one JSON object a line,");
    if (!i->file)
        return complain(errno == EACCES ? EX_NOPERM : EX_NOINPUT,
                        "cannot open \"%s\": %s", name, errno_text(errno));
    sized = fstat(fileno(i->file), &st) == 0 && S_ISREG(st.st_mode);
    if (!o->quiet)
        term_progress_start(&i->bar, "importing bytes",
                            sized ? (uint64_t)st.st_size : 0);
    return 0;
}

/* import_run - import */
int import_run(struct context *ctx)
{
    struct import *i = calloc(1, sizeof *i);
    int status;

    if (!i)
        return store_failed("import", -ENOMEM);
    i->context = ctx;
    status = file_open(i);
    if (!status) {
        int err;

        status = lines_import(i);
        err = status ? 0 : batch_put(i);
        term_progress_end(&i->bar);
        if (err)
            status = batch_failed(i, err);
        else if (!status &&
                 !summary_told(ctx, json_pack("{s:o, s:I}", "queue",
                                              json_printable(ctx->queue),
                                              "imported", (json_int_t)i->in)))
            printf("%" PRIu64 " letter%s imported\n", i->in,
                   term_plural(i->in));
    }
    batch_free(i);
    if (i->file && i->file != stdin)
        fclose(i->file);
    free(i);
    return status;
}
