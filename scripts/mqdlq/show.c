/* show.c - show (see mqdlq.h) */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/text/complain.h"
#include "common/text/term.h"
#include "scripts/mqdlq/broker.h"

#define BODY_SHOWN (16u << 10)

/* Print "name            value" with a value that is trusted. */
__attribute__((format(printf, 2, 3))) static void field(const char *name,
                                                        const char *fmt, ...)
{
    va_list args;
    printf("%-16s", name);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

/* The same with bytes from elsewhere. */
static void field_safe(const char *name, const void *data, size_t size)
{
    printf("%-16s", name);
    safe_text(stdout, data, size, true);
    putchar('\n');
}

/* Print a heading. */
static void title_print(const char *title)
{
    printf("%s%s%s\n", term_colour(stdout, TERM_BOLD), title,
           term_colour(stdout, TERM_PLAIN));
}

/* Print many lines from elsewhere, indented, a newline at the end. */
static void block_print(const char *data, size_t size, const char *indent)
{
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t line = end ? (size_t)(end - data) : size;

        fputs(indent, stdout);
        safe_text(stdout, data, line, false);
        putchar('\n');
        data += line + (end != NULL);
        size -= line + (end != NULL);
    }
}

/* Print a line of the header that is a moment, in ns since the epoch, as a
 * time; false: it is another line. */
static bool header_time(const char *line, size_t size)
{
    static const char *const names[] = {"sent: ", "expires: ", "not-before: "};
    char digits[24], time[TIME_TEXT];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t skip = strlen(names[i]);

        if (size <= skip || size - skip >= sizeof digits ||
            memcmp(line, names[i], skip) != 0)
            continue;
        memcpy(digits, line + skip, size - skip);
        digits[size - skip] = '\0';
        if (strspn(digits, "0123456789") != size - skip)
            return false;
        printf("  %s%s\n", names[i],
               term_time_both(strtoull(digits, NULL, 10), time));
        return true;
    }
    return false;
}

/* Print the header's lines but the first and the empty one. */
static void header_print(const struct store_row *m)
{
    const char *data = m->data, *end = data + m->header_size;
    const char *line = memchr(data, '\n', m->header_size), *next;

    if (!line)
        return;
    title_print("Header");
    for (line++; line < end && *line != '\n'; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next : end;
        if (!header_time(line, (size_t)(next - line)))
            block_print(line, (size_t)(next - line), "  ");
    }
}

/* Print that a letter is dead, or since when it is on its way. */
static void state_print(const struct letter *l)
{
    const struct letter_replay *how = &l->replay;
    char time[TIME_TEXT];

    if (l->m.state != STORE_REPLAYED)
        field("state", "dead");
    else if (!how->here)
        field("state", "replayed, and the machine was started since");
    else if (!how->known)
        field("state", "replayed, on its way");
    else
        field("state", "replayed, %s %s",
              how->sent ? "on its way since" : "maybe not sent; marked",
              term_time_both(how->marked_ns, time));
}

/* Visit: print everything but history and body. */
static int fields_print(const struct letter *l, void *arg)
{
    const struct context *ctx = arg;
    const struct store_row *m = &l->m;
    char id[ULID_TEXT], time[TIME_TEXT];

    fputs(term_colour(stdout, TERM_BOLD), stdout);
    if (ctx->broker)
        printf("Letter of %s", ctx->queue);
    else
        printf("Letter %" PRId64 " of %s", m->row, ctx->queue);
    printf("%s\n", term_colour(stdout, TERM_PLAIN));
    field("message id", "%s", ulid_print(m->id, id));
    state_print(l);
    field("died", "%s", term_time_both(m->died_ns, time));
    field("reason", "%s", dead_reason_text(m->reason));
    if (m->error)
        field_safe("error", m->error, strlen(m->error));
    if (l->error_text && (!m->error || strcmp(m->error, l->error_text) != 0))
        field_safe("error text", l->error_text, strlen(l->error_text));
    field("attempts", "%" PRIu32, m->attempts);
    field("crashes", "%" PRIu32, m->crashes);
    if (m->first_received_ns)
        field("first received", "%s",
              term_time_both(m->first_received_ns, time));
    field("priority", "%" PRIu32, m->priority);
    if (m->group)
        field_safe("group", m->group, m->group_size);
    field("size", "%zu", l->body_size);
    if (m->flags & STORE_REDELIVERED)
        field("redelivered", "a handler may have seen it without a verdict");
    if (m->flags & STORE_LENGTH_INFERRED)
        field("size inferred", "the worker was killed while it received it");
    if (m->header_size > 0)
        header_print(m);
    return 0;
}

/* The letter whose attempts are printed. */
struct shown {
    struct context *ctx;
    int64_t row;
    char *tail; /* standard error of the last attempt printed */
    size_t tail_size;
    unsigned tail_attempt; /* number of that attempt */
};

/* Print the end of an attempt's standard error, unless it equals the last one
 * printed: repeated tracebacks hide a different one. */
static int tail_print(struct shown *v, unsigned n, const char *tail,
                      size_t size)
{
    char *copy;

    if (size == 0)
        return 0;
    if (v->tail && v->tail_size == size && memcmp(v->tail, tail, size) == 0) {
        printf("       (standard error as in attempt %u)\n", v->tail_attempt);
        return 0;
    }
    block_print(tail, size, "       ");
    copy = malloc(size);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, tail, size);
    free(v->tail);
    v->tail = copy;
    v->tail_size = size;
    v->tail_attempt = n;
    return 0;
}

/* Visit: print one failed delivery. */
static int attempt_print(unsigned n, const struct store_attempt *a, void *arg)
{
    struct shown *v = arg;
    const char *machine;
    char time[TIME_TEXT], took[DURATION_TEXT];
    uint64_t whole = a->duration_ns;

    if (whole >= NS_PER_MS)
        whole -= whole % NS_PER_MS; /* for people; --json has all digits */
    if (n == 1)
        title_print("Attempts");
    printf("  %u  %s  took %s  ", n, term_time(a->started_ns, time),
           duration_print(whole, took));
    if (a->error)
        safe_text(stdout, a->error, strlen(a->error), true);
    machine = v->ctx->broker
                  ? v->ctx->letters->machine(v->ctx->broker, v->row, n)
                  : NULL;
    if (machine) {
        fputs("  on ", stdout);
        safe_text(stdout, machine, strlen(machine), true);
    }
    putchar('\n');
    return tail_print(v, n, a->stderr_tail, a->stderr_size);
}

/* Visit: print the body, made safe, as far as a person may read it. */
static int body_print(const struct letter *l, void *arg)
{
    size_t shown = l->body_size < BODY_SHOWN ? l->body_size : BODY_SHOWN;

    (void)arg;
    title_print("Body");
    block_print(l->body, shown, "  ");
    if (shown < l->body_size)
        printf("  (%zu more byte%s; --body prints all)\n", l->body_size - shown,
               term_plural(l->body_size - shown));
    return 0;
}

/* Visit: write the body, byte for byte. */
static int body_write(const struct letter *l, void *arg)
{
    (void)arg;
    fwrite(l->body, 1, l->body_size, stdout);
    return 0;
}

/* Show one letter; 0 or -errno. */
static int letter_show(struct context *ctx, int64_t row)
{
    struct shown shown = {.ctx = ctx, .row = row};
    int err;

    if (ctx->o->body)
        return letters_get(ctx->store, row, body_write, NULL);
    err = letters_get(ctx->store, row, fields_print, ctx);
    if (!err)
        err = letters_history(ctx->store, row, attempt_print, &shown);
    free(shown.tail);
    if (!err)
        err = letters_get(ctx->store, row, body_print, NULL);
    return err;
}

/* Show the chosen letters, newest first. */
static int selection_show(struct context *ctx, const struct selection *c)
{
    int status = c->missing ? EX_NOINPUT : 0;

    if (ctx->o->body && c->count > 1)
        return complain(
            EX_USAGE, "--body is for one letter, and %zu are chosen", c->count);
    if (c->count == 0 && !c->missing)
        return complain(EX_NOINPUT, "no letter of %s matches", ctx->queue);
    for (size_t i = c->count; i-- > 0;) {
        int err = letter_show(ctx, c->picks[i].row);

        if (err && err != -ENOENT)
            return store_failed("read a letter", err);
        if (err)
            status = complain(EX_NOINPUT, "letter %" PRId64 " is gone",
                              c->picks[i].row);
        if (i > 0)
            putchar('\n');
    }
    return status;
}

int show_run(struct context *ctx)
{
    struct selection c;
    int status;

    if (ctx->o->json)
        return list_json(ctx, true);
    status = selection_make(&c, ctx);
    if (status)
        return status;
    status = selection_show(ctx, &c);
    selection_free(&c);
    return status;
}
