/* group.c - mqctl group: close, open or release a group
 *
 * main and the children of mqctl serve call group_run on their only thread.
 * Close and open are orders to the worker, because the worker is what refuses
 * the messages of a closed group. Release writes to the store, with or without
 * a running worker: a worker that holds a group watches the store.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/message/header.h"
#include "common/store/letters.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/messages.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"

struct group_order {
    const struct options *o;
    char queue[QUEUE_NAME_MAX];
    struct statedir dir;
    const char *key, *word; /* of the group; "close", "open" or "release" */
    size_t size;            /* of the key */
};

/* Print the result as JSON, or as a line. Takes over `answer`. */
static int result_print(const struct group_order *x, json_t *answer,
                        const char *text)
{
    if (!x->o->json) {
        json_decref(answer);
        if (!x->o->quiet)
            printf("%s: group %s: %s\n", x->queue, x->key, text);
        return 0;
    }
    if (answer &&
        (json_object_set_new(answer, "queue", json_printable(x->queue)) < 0 ||
         json_put_bytes(answer, "group", x->key, x->size) < 0)) {
        json_decref(answer);
        answer = NULL;
    }
    return json_print_line(answer, stdout) < 0 ? complain_memory() : 0;
}

/* Visit a message of the group in the spool: keep its key. */
static int spooled_last(const struct message_seen *seen, void *arg)
{
    *(int64_t *)arg = messages_spooled_key(seen);
    return 0;
}

/* Have the worker close or open the group. Returns an exit status. */
static int group_order(const struct group_order *x)
{
    char line[2 * HEADER_VALUE_MAX + 64], hex[2 * HEADER_VALUE_MAX + 1];
    bool shut = strcmp(x->word, "close") == 0, moving = false, known;
    struct options all = *x->o;
    struct problem p = {0};
    struct messages m;
    const char *why;
    json_t *answer;
    int64_t last = 0;
    int status, err;

    snprintf(line, sizeof line, "group %s %s", x->word,
             hex_print(x->key, x->size, hex));
    /* The worker does not know which messages of the group are in the spool:
     * append the key of the last one. `moving` means that a slot has a message
     * that may be on its way to the spool. */
    if (shut) {
        all.filter = (struct waiting_filter){
            .states = WAITING_BIT(WAITING_SPOOLED), .group = x->key};
        status = messages_open(&m, &all);
        if (status)
            return status;
        err = messages_each(&m, "spool-0", spooled_last, &last);
        for (size_t i = 0; i < m.count; i++)
            moving |= m.slots[i].state < WAITING_STATES &&
                      m.slots[i].state != WAITING_RUNNING && !m.slots[i].c.row;
        messages_close(&m);
        if (err)
            return complain(EX_IOERR,
                            "cannot read the spool: %s; nothing has changed",
                            errno_text(-err));
    }
    if (last)
        text_append(line, sizeof line, " -%" PRId64, last);
    if (ask(&x->dir, x->queue, line, &answer, &p) < 0)
        return complain_of(&p);
    known = json_is_true(json_object_get(answer, "known"));
    status = ask_status(answer, &why);
    if (status)
        complain(status, "%s", why);
    else if (shut && !known && moving)
        status = complain(EX_TEMPFAIL,
                          "a message of group %.80s of %s was being moved to "
                          "the spool, or was finishing; nothing has changed; "
                          "close it again",
                          x->key, x->queue);
    else if (shut && !known)
        status =
            complain(EX_NOINPUT,
                     "%s has no message of group %.80s, so there is "
                     "nothing to close; mqctl groups %s lists its groups",
                     x->queue, x->key, STATEDIR_OPERAND(x->dir.root, x->queue));
    else
        status = result_print(
            x, json_pack("{s:b}", "closing", shut),
            shut    ? "refuses new messages (they become dead letters, "
                      "group-closed) until its messages are done or the worker "
                      "is restarted"
            : known ? "takes messages"
                    : "takes messages, and has none now");
    json_decref(answer);
    return status;
}

int group_run(const struct options *o)
{
    static struct group_order x;
    char path[PATH_MAX], text[96];
    struct problem p = {0};
    struct store *s = NULL;
    int64_t n = 0;
    int err;

    x.o = o;
    x.key = o->line.operands[1];
    x.word = o->line.operands[2];
    x.size = strlen(x.key);
    if (!header_value_ok(x.key, x.size))
        return complain(EX_USAGE,
                        "group: \"%.80s\" is not the key of a group; a key has "
                        "1 to %d bytes of printable UTF-8",
                        x.key, HEADER_VALUE_MAX);
    if (queue_name(o->line.operands[0], x.queue, &p) < 0 ||
        snapshot_named_folder(&x.dir, o->state_dir, x.queue, &p) < 0)
        return complain_of(&p);
    if (strcmp(x.word, "release") != 0)
        return group_order(&x);
    /* Let the group continue without its dead letters. */
    err = statedir_path(&x.dir, STATEDIR_STORE, path, &p);
    if (!err)
        err = store_open(&s, path, false, &p);
    if (err && err != -ENOENT)
        return complain_of(&p);
    if (!err)
        n = letters_let_go(s, x.key, x.size);
    store_close(&s);
    if (n < 0)
        return complain(disk_is_full((int)n) ? EX_CANTCREAT : EX_IOERR,
                        "the store cannot be written: %s; the group is held "
                        "as before",
                        errno_text((int)-n));
    if (n == 0)
        return complain(EX_NOINPUT,
                        "no dead letter of %s holds group %.80s; mqctl groups "
                        "--state held %s lists the held groups",
                        x.queue, x.key, STATEDIR_OPERAND(x.dir.root, x.queue));
    snprintf(text, sizeof text, "released; %" PRId64 " dead letter%s kept", n,
             n == 1 ? " is" : "s are");
    return result_print(&x, json_pack("{s:I}", "released", (json_int_t)n),
                        text);
}
