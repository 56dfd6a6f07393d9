/* import.c - add dead letters from JSON lines: the verb import
 *
 * Called by main, in one thread. Lines are read and checked (decode.h) into a
 * batch; each batch is one transaction of the store, or goes to the broker.
 */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/problem.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "scripts/mqdlq/broker.h"

#define BATCH_LETTERS 256
#define BATCH_BYTES   (4u << 20)

struct import {
    struct context *context;
    FILE *file;
    struct term_progress bar;
    uint64_t line;    /* lines read */
    uint64_t read;    /* bytes read, for the bar */
    uint64_t in;      /* letters in the store, or confirmed by the broker */
    uint64_t present; /* letters left out because they exist already */
    int64_t last_row; /* the store's last row when the import began */
    size_t count;     /* letters of the batch */
    size_t bytes;     /* of their lines */
    struct decoding decodings[BATCH_LETTERS];
    struct letter_import letters[BATCH_LETTERS];
};

/* Empty the batch. */
static void batch_free(struct import *i)
{
    while (i->count > 0)
        decoding_free(&i->decodings[--i->count]);
    i->bytes = 0;
}

/* Write the batch to the store, all of it or nothing; or send it to the broker,
 * which keeps a part of it after an error. Returns 0 or an exit status. */
static int batch_put(struct import *i)
{
    struct context *ctx = i->context;
    struct letter_known known = {.last_row = i->last_row};
    struct broker_imported sum = {0};
    struct problem p;
    int err = 0, status = 0;

    if (i->count > 0 && ctx->broker) {
        err = ctx->letters->import(ctx, i->decodings, i->count, &sum, &p);
        i->in += sum.in;
        i->present += sum.present;
    } else if (i->count > 0) {
        err = letters_import(ctx->store, i->letters, i->count,
                             ctx->o->again ? NULL : &known);
        i->in += err ? 0 : i->count - known.present;
        i->present += err ? 0 : known.present;
    }
    if (err)
        term_progress_end(&i->bar);
    if (err && ctx->broker)
        status = complain(p.status, "%s%s", p.text,
                          p.status == EX_DATAERR
                              ? ""
                              : "; import the same file again: letters that "
                                "were imported already are skipped");
    else if (err)
        status = store_failed("import", err);
    batch_free(i);
    term_progress_step(&i->bar, i->read);
    return status;
}

/* Stop at an error: import the batch so far, then complain why and at which
 * line. Returns `status`. */
static int import_stop(struct import *i, int status, uint64_t from,
                       const char *why)
{
    int failed = batch_put(i);

    term_progress_end(&i->bar);
    return complain(status,
                    "%s; %" PRIu64 " letter%s imported, none from line %" PRIu64
                    " on%s",
                    why, i->in, term_plural(i->in), from,
                    failed ? " nor of some before it" : "");
}

/* Complain how many letters were imported before a batch failed. Returns
 * `status`. */
static int batch_failed(struct import *i, int status)
{
    return complain(status, "%" PRIu64 " letter%s imported", i->in,
                    term_plural(i->in));
}

/* Add a line to the batch, and import a full batch. Returns 0 or an exit
 * status. */
static int line_import(struct import *i, const char *text, size_t size)
{
    struct decoding *d = &i->decodings[i->count];
    char why[JSON_WHY] = "", sentence[JSON_WHY + 64];
    struct problem p;
    int err, status;

    if (strspn(text, " \t\r\n") == size)
        return 0;
    err = decoding_read(d, text, size, why);
    if (!err && !i->context->broker && d->letter.m.reason == REASON_NONE) {
        decoding_free(d);
        err = -EINVAL;
        snprintf(why, sizeof why,
                 "it has no reason, which only letters on a broker may lack");
    }
    if (err == -ENOMEM) {
        problem_memory(&p);
        return import_stop(i, p.status, i->line, p.text);
    }
    if (err) {
        snprintf(sentence, sizeof sentence, "line %" PRIu64 ": %s", i->line,
                 why);
        return import_stop(i, EX_DATAERR, i->line, sentence);
    }
    d->line = i->line;
    i->letters[i->count++] = d->letter;
    i->bytes += size;
    if (i->count < BATCH_LETTERS && i->bytes < BATCH_BYTES)
        return 0;
    status = batch_put(i);
    return status ? batch_failed(i, status) : 0;
}

/* Import all lines; 0 or an exit status. */
static int lines_import(struct import *i)
{
    char *text = NULL;
    char why[96] = "";
    size_t room = 0;
    int status = 0, err = 0;

    while (!status) {
        ssize_t size = getline(&text, &room, i->file);

        if (cli_interrupt_seen())
            status = import_stop(i, EX_TEMPFAIL, i->line + 1, "interrupted");
        else if (size < 0) {
            err = errno;
            break;
        } else {
            i->line++;
            i->read += (uint64_t)size;
            status = line_import(i, text, (size_t)size);
        }
    }
    /* Without memory, getline(3) sets the error flag in glibc 2.41 but no flag
     * in earlier versions, so errno tells the two failures apart. */
    if (!status && !feof(i->file)) {
        snprintf(why, sizeof why, "cannot read the input: %s", errno_text(err));
        status = import_stop(i, err == ENOMEM ? EX_OSERR : EX_IOERR,
                             i->line + 1, why);
    }
    free(text);
    return status;
}

int import_run(struct context *ctx)
{
    const struct options *o = ctx->o;
    const char *name = o->line.operand_count > 1 ? o->line.operands[1] : "-";
    struct import *i = calloc(1, sizeof *i);
    struct stat st;
    int status = 0;

    if (!i)
        return store_failed("import", -ENOMEM);
    i->context = ctx;
    i->file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    if (i->file == stdin)
        complain_reads("letters, one JSON object a line,");
    if (!i->file)
        status =
            errno == ENOMEM
                ? complain_memory()
                : complain(errno == EACCES ? EX_NOPERM : EX_NOINPUT,
                           "cannot open \"%s\": %s", name, errno_text(errno));
    else if (!o->quiet) /* the bar ends at the file's size */
        term_progress_start(&i->bar, "importing bytes",
                            fstat(fileno(i->file), &st) == 0 &&
                                    S_ISREG(st.st_mode)
                                ? (uint64_t)st.st_size
                                : 0);
    if (!status && ctx->store) {
        int err = letters_last_row(ctx->store, &i->last_row);

        status = err ? store_failed("read the store", err) : 0;
    }
    if (!status)
        status = lines_import(i);
    if (!status && (status = batch_put(i)) != 0)
        (void)batch_failed(i, status);
    term_progress_end(&i->bar);
    if (!status &&
        !summary_print(ctx, json_pack("{s:o, s:I, s:I}", "queue",
                                      json_printable(ctx->queue), "imported",
                                      (json_int_t)i->in, "present",
                                      (json_int_t)i->present))) {
        printf("%" PRIu64 " letter%s imported", i->in, term_plural(i->in));
        if (i->present > 0)
            printf(", %" PRIu64 " %s there already", i->present,
                   i->present == 1 ? "was" : "were");
        putchar('\n');
    }
    batch_free(i);
    if (i->file && i->file != stdin)
        fclose(i->file);
    free(i);
    return status;
}
