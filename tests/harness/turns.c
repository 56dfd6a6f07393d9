/* turns.c - what ran when, and checks of the order (see turns.h) */
#include "tests/harness/internal.h"

#include "tests/harness/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUMBERS = 20000 };

/* ---- files that control the handler ---- */

void turns_tell(const char *what, const char *body)
{
    char name[128];

    snprintf(name, sizeof name, "%s.%s", what, body);
    harness_write(name, "", 0);
}

void turns_untell(const char *what, const char *body)
{
    if (unlink(harness_path("%s.%s", what, body)) < 0)
        harness_fail("%s.%s is not there", what, body);
}

/* ---- reading ---- */

/* Parse one line of the notes. */
static struct turn turn_parse(const char *line, size_t number)
{
    struct turn t = {.line = number};
    int redelivered;
    int got = sscanf(line, "%c %63s %u %u %d %u %d %d %47s", &t.what, t.group,
                     &t.priority, &t.attempt, &redelivered, &t.generation,
                     &t.pid, &t.status, t.body);

    if (got != 9)
        harness_fail("a broken note: %s", line);
    t.redelivered = redelivered != 0;
    return t;
}

/* Read all complete lines. */
struct turns turns_read(void)
{
    size_t size, lines = 0, n = 0;
    const char *text = harness_read("turns", &size), *at = text, *end;
    struct turn *list;

    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    list = harness_keep(calloc(lines + 1, sizeof *list));
    for (; n < lines && (end = strchr(at, '\n')) != NULL; at = end + 1, n++)
        list[n] = turn_parse(at, n);
    return (struct turns){.at = list, .count = n};
}

/* Continue reading where the last call stopped. */
size_t turns_done(void)
{
    static long offset;
    static size_t done;
    FILE *f = fopen(harness_path("turns"), "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t size;

    if (!f)
        return 0;
    fseek(f, offset, SEEK_SET);
    while ((size = getline(&line, &room, f)) > 0 && line[size - 1] == '\n') {
        struct turn t = turn_parse(line, 0);

        offset += size;
        done += t.what == 'E' && t.status == 0;
    }
    free(line);
    fclose(f);
    return done;
}

/* Return the order as text, which is easy to compare. */
const char *turns_order(const char *group)
{
    struct turns t = turns_read();
    char *text = harness_keep(calloc(t.count + 1, sizeof t.at->body));
    size_t used = 0;

    for (size_t i = 0; i < t.count; i++)
        if (t.at[i].what == 'E' && t.at[i].status == 0 &&
            (!group || strcmp(t.at[i].group, group) == 0))
            used += (size_t)snprintf(text + used, sizeof t.at->body, "%s ",
                                     t.at[i].body);
    return text;
}

unsigned turns_most(const struct turns *t)
{
    unsigned now = 0, most = 0;

    for (size_t i = 0; i < t->count; i++) {
        now += t->at[i].what == 'S' ? 1u : -1u;
        most = now > most ? now : most;
    }
    return most;
}

size_t turns_start(const struct turns *t, const char *body)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->at[i].what == 'S' && strcmp(t->at[i].body, body) == 0)
            return i;
    return (size_t)-1;
}

size_t turns_starts(const struct turns *t, const char *group, size_t from,
                    size_t to)
{
    size_t n = 0;

    for (size_t i = from; i < to && i < t->count; i++)
        n += t->at[i].what == 'S' && strcmp(t->at[i].group, group) == 0;
    return n;
}

/* ---- checks ---- */

/* Sort notes by group, and by time within each group. */
static int by_group(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    int c = strcmp(x->group, y->group);

    return c ? c : (x->line > y->line) - (x->line < y->line);
}

/* Return the two numbers of a body. */
static unsigned long producer_of(const struct turn *t)
{
    return strtoul(t->body, NULL, 10);
}

static unsigned long number_of(const struct turn *t)
{
    const char *dot = strchr(t->body, '.');
    unsigned long number = dot ? strtoul(dot + 1, NULL, 10) : NUMBERS;

    if (number >= NUMBERS)
        harness_fail("a body without a number: %s", t->body);
    return number;
}

/* Sort notes by group, producer and priority. */
static int by_source(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    int c = strcmp(x->group, y->group);

    if (!c)
        c = (producer_of(x) > producer_of(y)) -
            (producer_of(x) < producer_of(y));
    if (!c)
        c = (x->priority > y->priority) - (x->priority < y->priority);
    return c ? c : (x->line > y->line) - (x->line < y->line);
}

static struct turn *sorted(const struct turns *t,
                           int (*order)(const void *, const void *))
{
    struct turn *list = harness_keep(calloc(t->count + 1, sizeof *list));

    if (t->count)
        memcpy(list, t->at, t->count * sizeof *list);
    qsort(list, t->count, sizeof *list, order);
    return list;
}

/* Check that a group never has two deliveries at a time. */
static void check_alone(const struct turn *list, size_t count)
{
    const struct turn *run = NULL; /* the delivery that is open, or was killed
                                    * with its worker */

    for (size_t i = 0; i < count; i++) {
        const struct turn *t = &list[i];

        if (run && strcmp(run->group, t->group) != 0)
            run = NULL;
        if (strcmp(t->group, "-") == 0)
            continue;
        if (t->what == 'S' && run && run->generation == t->generation)
            harness_fail("group %s: %s (line %zu) starts while %s (line %zu) "
                         "runs",
                         t->group, t->body, t->line, run->body, run->line);
        if (t->what == 'E' && (!run || run->pid != t->pid))
            harness_fail("group %s: %s (process %d, line %zu) ran on beside %s "
                         "(line %zu)",
                         t->group, t->body, t->pid, t->line,
                         run ? run->body : "nothing", run ? run->line : 0);
        run = t->what == 'S' ? t : NULL;
    }
}

/* Check that first successes come in the order sent; return how many. */
static size_t check_order(const struct turn *list, size_t count)
{
    static bool seen[NUMBERS];
    const struct turn *last = NULL; /* of the same source */
    size_t messages = 0;

    for (size_t i = 0; i < count; i++) {
        const struct turn *t = &list[i];
        unsigned long number = number_of(t);
        bool same = last && strcmp(last->group, t->group) == 0 &&
                    producer_of(last) == producer_of(t) &&
                    last->priority == t->priority;

        if (t->what != 'E' || t->status != 0)
            continue;
        if (!same)
            memset(seen, 0, sizeof seen);
        if (seen[number] && !t->redelivered)
            harness_fail("group %s: %s ran again unmarked", t->group, t->body);
        if (seen[number])
            continue;
        if (same && strcmp(t->group, "-") != 0 && number < number_of(last))
            harness_fail("group %s, priority %u: %s (line %zu) after %s (line "
                         "%zu)",
                         t->group, t->priority, t->body, t->line, last->body,
                         last->line);
        seen[number] = true;
        last = t;
        messages++;
    }
    return messages;
}

size_t turns_check(const struct turns *t)
{
    check_alone(sorted(t, by_group), t->count);
    return check_order(sorted(t, by_source), t->count);
}

size_t turns_distinct(void)
{
    struct turns t = turns_read();

    return check_order(sorted(&t, by_source), t.count);
}

/* ---- the store ---- */

long long turns_rows(const char *queue, const char *condition)
{
    char text[256];
    long long rows;

    snprintf(text, sizeof text, "SELECT count(*) FROM messages WHERE %s",
             condition);
    rows = harness_sql(queue, text);
    return rows < 0 ? 0 : rows;
}

void turns_passed(const char *queue)
{
    static unsigned number;
    char body[32];

    snprintf(body, sizeof body, "9.%u", number++);
    turns_send(queue, NULL, 0, body);
    harness_until(strstr(turns_order("-"), body), 10000);
}
