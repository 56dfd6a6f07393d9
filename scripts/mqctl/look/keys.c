/* keys.c - mqctl keys: list unique keys, or free one
 *
 * main calls keys_run, on the only thread. Keys are rows of the store. A worker
 * reads the row for each message that has a key, and does not cache it, so keys
 * can be listed and freed with and without a worker.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/cli/term_table.h"
#include "common/store/store.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"

static const struct term_column columns[] = {
    {"KEY", TERM_LEFT, TERM_END},
    {"MESSAGE", TERM_LEFT, TERM_WHOLE},
    {"SINCE", TERM_LEFT, TERM_WHOLE},
    {"UNTIL", TERM_LEFT, TERM_WHOLE},
};

struct key_list {
    struct term_table *table; /* NULL: print JSON */
    size_t count;
};

/* Print one key as JSON, or add it to the table of the list `arg`. */
static int key_show(const struct store_key *key, void *arg)
{
    char id[ULID_TEXT], since[TIME_TEXT], until[TIME_TEXT];
    struct key_list *list = arg;
    json_t *o;

    list->count++;
    ulid_print(key->id, id);
    if (!list->table) {
        o = json_object();
        if (json_put_bytes(o, "key", key->text, key->size) == 0 &&
            json_object_update_new(
                o, json_pack("{s:s, s:o, s:o}", "id", id, "since",
                             json_time(key->received_ns), "until",
                             json_time(key->until_ns))) == 0)
            return json_print_line(o, stdout);
        json_decref(o);
        return -ENOMEM;
    }
    term_cellf(list->table, "%.*s", (int)key->size, key->text);
    term_cellf(list->table, "%s", id);
    term_cellf(list->table, "%s", term_time(key->received_ns, since));
    term_cellf(list->table, "%s", term_time(key->until_ns, until));
    return 0;
}

int keys_run(const struct options *o)
{
    char queue[QUEUE_NAME_MAX], path[PATH_MAX];
    static struct statedir dir;
    const char *key = o->free_key;
    struct key_list list = {0};
    struct problem p = {0};
    struct store *s = NULL;
    int status = 0, err;

    if (queue_name(o->line.operands[0], queue, &p) < 0 ||
        snapshot_named_folder(&dir, o->state_dir, queue, &p) < 0 ||
        statedir_path(&dir, STATEDIR_STORE, path, &p) < 0 ||
        store_open(&s, path, false, &p) < 0)
        return complain_of(&p);
    if (!key) {
        if (!o->json)
            list.table =
                term_table_open(columns, sizeof columns / sizeof *columns);
        err = o->json || list.table
                  ? store_keys_each(s, clock_wall_ns(), key_show, &list)
                  : -ENOMEM;
        if (!err && list.table && list.count)
            err = term_table_print(list.table, stdout);
        else if (!err && list.table)
            complain(0, "%s has no unique key", queue);
        term_table_close(&list.table);
        if (err == -ENOMEM)
            status = complain_memory();
        else if (err)
            status = complain(EX_IOERR, "cannot read the keys: %s; %s",
                              errno_text(-err), disk_advice(err));
        store_close(&s);
        return status;
    }
    err = store_key_drop(s, key, strlen(key));
    store_close(&s);
    if (err == -ENOENT)
        return complain(EX_NOINPUT,
                        "no message of %s has the key \"%.80s\"; mqctl keys %s "
                        "lists the existing keys",
                        queue, key, STATEDIR_OPERAND(dir.root, queue));
    if (err)
        return complain(disk_is_full(err) ? EX_CANTCREAT : EX_IOERR,
                        "the store cannot be written: %s; %s", errno_text(-err),
                        disk_advice(err));
    if (o->json)
        return json_print_line(json_pack("{s:b}", "freed", 1), stdout) < 0
                   ? complain_memory()
                   : 0;
    if (!o->quiet)
        printf("%s: freed %s; the next message with that key runs\n", queue,
               key);
    return 0;
}
