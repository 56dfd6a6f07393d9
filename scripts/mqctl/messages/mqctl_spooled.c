/* mqctl_spooled.c - rows of the spool, as messages (see mqctl_messages.h)
 *
 * Nothing of a header is in a column there, so that a commit of many messages
 * is short: what a filter asks for is parsed here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/store_spool.h"
#include "scripts/mqctl/messages/mqctl_messages.h"

#define PAGE_ROWS  64
#define PAGE_BYTES (256u << 10)

/* As many rows as are read at once, with their bodies. */
struct page {
    struct store_spooled rows[PAGE_ROWS];
    char *data;
    size_t room;
};

/* page_read - those after `after`: how many, or -errno; there is room for one
 * at least */
static int page_read(struct messages *m, struct page *page, int64_t after)
{
    int n = store_spool_read(m->store, after, page->rows, PAGE_ROWS, page->data,
                             page->room);
    size_t room;
    char *data;

    while (n == -EMSGSIZE) {
        room = page->rows[0].size;
        data = realloc(page->data, room);
        if (!data)
            return -ENOMEM;
        page->data = data;
        page->room = room;
        n = store_spool_read(m->store, after, page->rows, PAGE_ROWS, page->data,
                             page->room);
    }
    return n;
}

/* wanted - whether a filter chooses it: it has not failed yet, so it has no
 * error */
static bool wanted(const struct waiting_filter *f, const struct message_seen *s)
{
    return (!f->group || (s->group && strlen(f->group) == s->group_size &&
                          memcmp(f->group, s->group, s->group_size) == 0)) &&
           s->received_ns >= f->since_ns &&
           (!f->until_ns || s->received_ns < f->until_ns) &&
           (!f->match || memmem(s->body, s->size, f->match, strlen(f->match)));
}

/* seen_of - a row with what its header says; a broken header is a part of the
 * body, as for a slot */
static void seen_of(struct message_seen *out, const struct store_spooled *row)
{
    static const struct ulid none;
    char why[HEADER_WHY];
    struct header h;

    if (header_parse(row->data, row->size, &h, why) < 0)
        h = (struct header){.bytes = 0};
    *out = (struct message_seen){
        .state = WAITING_SPOOLED,
        .id = row->id,
        .seq = store_spool_seq(row->key),
        .received_ns = row->received_ns,
        .priority = store_spool_priority(row->key),
        .crashes = row->crashes,
        .body = (const char *)row->data + h.bytes,
        .size = row->size - h.bytes,
    };
    if (h.fields & HEADER_ID && memcmp(&row->id, &none, sizeof none) == 0)
        out->id = h.id;
    if (h.fields & HEADER_GROUP) {
        out->group = h.group.at;
        out->group_size = h.group.size;
    }
}

/* page_visit - those of a page that were asked for */
static int page_visit(const struct messages *m, const struct page *page, int n,
                      int (*visit)(const struct message_seen *seen, void *arg),
                      void *arg)
{
    struct message_seen seen;
    int err = 0;

    for (int i = 0; i < n && !err; i++) {
        seen_of(&seen, &page->rows[i]);
        if (!wanted(&m->filter, &seen))
            continue;
        seen.body_size =
            seen.size < m->filter.body_most ? seen.size : m->filter.body_most;
        err = visit(&seen, arg);
    }
    return err;
}

int messages_spooled_each(struct messages *m, int64_t after,
                          int (*visit)(const struct message_seen *seen,
                                       void *arg),
                          void *arg)
{
    struct page page = {.room = PAGE_BYTES};
    int n, err = 0;

    if (!m->store || m->filter.error_glob ||
        !(m->filter.states & WAITING_BIT(WAITING_SPOOLED)))
        return 0;
    page.data = malloc(page.room);
    if (!page.data)
        return -ENOMEM;
    while (!err && (n = page_read(m, &page, after)) != 0) {
        err = n < 0 ? n : page_visit(m, &page, n, visit, arg);
        if (n > 0)
            after = page.rows[n - 1].key;
    }
    free(page.data);
    return err;
}

int64_t messages_spooled_key(const struct message_seen *seen)
{
    return store_spool_key(seen->priority, seen->seq);
}
