/* queues.c - count the dead letters of all queues of this machine */
#include "scripts/mqdlq/mqdlq.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/state/statedir.h"
#include "common/store/letters.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term_table.h"
#include "common/text/term_time.h"

/* Names of the queues with a folder in the state directory. */
struct names {
    char **all;
    size_t count, room;
};

/* Counts of one queue, or of all together. */
struct tally {
    uint64_t count, newest_ns;
};

static void names_free(struct names *n)
{
    while (n->count > 0)
        free(n->all[--n->count]);
    free(n->all);
}

/* Add "/NAME" for a folder with a store; 0 or -ENOMEM. */
static int name_add(struct names *n, const char *root, const char *name)
{
    char path[PATH_MAX], *label;
    char **all;

    if (name[0] == '.' ||
        snprintf(path, sizeof path, "%s/%s/" STATEDIR_STORE, root, name) >=
            (int)sizeof path ||
        access(path, F_OK) < 0)
        return 0;
    all = array_grow(n->all, n->count, &n->room, sizeof *all);
    if (!all)
        return -ENOMEM;
    n->all = all;
    if (asprintf(&label, "/%s", name) < 0)
        return -ENOMEM;
    n->all[n->count++] = label;
    return 0;
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* List the queues; returns an exit status after printing the reason on
 * stderr. */
static int names_read(struct names *n, const char *root)
{
    DIR *dir = opendir(root);
    struct dirent *entry;
    int err = 0;

    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return complain(errno == EACCES ? EX_NOPERM : EX_CANTCREAT,
                        "cannot read the state directory %s: %s", root,
                        errno_text(errno));
    while (!err && (entry = readdir(dir)) != NULL)
        err = name_add(n, root, entry->d_name);
    closedir(dir);
    if (err)
        return complain_memory();
    if (n->count > 0)
        qsort(n->all, n->count, sizeof *n->all, name_order);
    return 0;
}

/* Add up the letters of one reason. */
static int reason_add(const struct letter_tally *t, void *arg)
{
    struct tally *sum = arg;

    sum->count += t->count;
    if (t->newest_ns > sum->newest_ns)
        sum->newest_ns = t->newest_ns;
    return 0;
}

/* Count the letters of one queue that match the filter. */
static int queue_count(const struct options *o, char *queue, struct tally *out)
{
    struct options one = *o;
    struct context ctx;
    int status, err = 0;

    one.line.operands = &queue;
    one.line.operand_count = 1;
    status = context_open(&ctx, &one, false);
    if (!status && ctx.store)
        err = letters_summary(ctx.store, LETTER_BY_REASON, &one.filter,
                              reason_add, out);
    if (err)
        status = store_failed("count the letters", err);
    return status_worse(status, context_close(&ctx));
}

/* Print one queue; 0 or -ENOMEM. */
static int queue_print(struct term_table *table, const char *queue,
                       const struct tally *is)
{
    char time[TIME_TEXT];

    if (!table)
        return json_print_line(json_pack("{s:o, s:I, s:o}", "queue",
                                         json_printable(queue), "count",
                                         (json_int_t)is->count, "newest",
                                         json_time(is->newest_ns)),
                               stdout);
    term_cell(table, queue, strlen(queue));
    term_cellf(table, "%" PRIu64, is->count);
    term_cellf(table, "%s", term_time_ago(is->newest_ns, time));
    return 0;
}

int queues_run(const struct options *o)
{
    static const struct term_column columns[] = {
        {"QUEUE", TERM_LEFT, TERM_MIDDLE},
        {"DEAD", TERM_RIGHT, TERM_WHOLE},
        {"NEWEST", TERM_LEFT, TERM_WHOLE},
    };
    struct names names = {0};
    struct tally all = {0};
    struct term_table *table = NULL;
    char root[PATH_MAX];
    struct problem p = {0};
    int status;

    if (statedir_root(root, o->state_dir, &p) < 0)
        return complain_of(&p);
    status = names_read(&names, root);
    if (!o->json && !o->count)
        table = term_table_open(columns, 3);
    for (size_t i = 0; i < names.count; i++) {
        struct tally is = {0};

        status = status_worse(status, queue_count(o, names.all[i], &is));
        if (is.count > 0 && !o->count &&
            queue_print(table, names.all[i], &is) < 0)
            status = status_worse(status, complain_memory());
        all.count += is.count;
    }
    if (o->count && o->json)
        json_print_line(json_pack("{s:I}", "count", (json_int_t)all.count),
                        stdout);
    else if (o->count)
        printf("%" PRIu64 "\n", all.count);
    else if (all.count == 0 && !status)
        complain(0, "no queue with state directory %s has dead letters%s", root,
                 filter_given(o) ? " of that kind" : "");
    else if (table && term_table_print(table, stdout) < 0)
        status = status_worse(status, complain_memory());
    term_table_close(&table);
    names_free(&names);
    return status;
}
