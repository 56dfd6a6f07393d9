/* mq_hook.c - deaths that --on-dead is told of (see source_mq.h)
 *
 * The durable part is common/store/letters.c.
 */
#include "worker/source/mq/source_mq.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/letter_json.h"
#include "common/store/letters.h"

/* letter_copy - visit: what of it is in the environment */
static int letter_copy(const struct letter *l, void *arg)
{
    struct source_hook *out = arg;
    const struct store_row *m = &l->m;
    char *at = malloc(m->size + m->group_size + 1);

    if (!at)
        return -ENOMEM;
    memcpy(at, m->data, m->size);
    if (m->group)
        memcpy(at + m->size, m->group, m->group_size);
    out->data = at;
    out->size = m->size;
    out->group =
        (struct header_text){m->group ? at + m->size : NULL, m->group_size};
    out->id = m->id;
    out->received_ns = m->first_received_ns;
    out->priority = m->priority;
    out->failures = m->attempts;
    out->crashes = m->crashes;
    out->redelivered = (m->flags & STORE_REDELIVERED) != 0;
    return 0;
}

/* json_make - as mqdlq show --json prints it */
static int json_make(struct source_mq *q, struct source_hook *out)
{
    FILE *f = open_memstream(&out->json, &out->json_size);
    int err;

    if (!f)
        return -ENOMEM;
    err = letter_json_print(q->store, q->set->queue, out->letter, NULL, f);
    return fclose(f) == 0 ? err : -ENOMEM;
}

/* read_one - all of a letter; -ENOENT: it is none any more */
static int read_one(struct source_mq *q, struct source_hook *out)
{
    int err = letters_get(q->store, out->letter, letter_copy, out);

    if (!err)
        err = json_make(q, out);
    if (err) {
        free(out->data);
        free(out->json);
    }
    return err;
}

/* mq_hook - one that was sent again, failed, and waits for its retry, is none:
 * if it dies, that is another death */
int mq_hook(struct source *s, int64_t after, struct source_hook *out)
{
    struct source_mq *q = source_mq_of(s);
    struct letter_hook hook;
    int err;

    for (;;) {
        err = letters_hook(q->store, after, &hook);
        if (err)
            return err;
        *out = (struct source_hook){.n = hook.n, .letter = hook.row};
        err = read_one(q, out);
        if (err == -ENOENT)
            err = letters_hook_end(q->store, hook.n, true, NULL);
        else
            return err;
        if (err)
            return err;
    }
}

/* mq_hook_end - the letter may be moved or removed from here on */
int mq_hook_end(struct source *s, int64_t n, bool told, int64_t *next)
{
    struct source_mq *q = source_mq_of(s);
    int err = atomic_load(&q->store_gone) ? -EBADFD : 0;

    if (!err)
        err = letters_hook_end(q->store, n, told, next);
    if (!err && told)
        source_mq_died(q);
    return err;
}
