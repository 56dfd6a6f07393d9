/* mqdlq_known.c - see mqdlq_known.h */
#include "scripts/mqdlq/amqp/mqdlq_known.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 256

struct known_letter {
    struct ulid id;
    uint64_t died_ns;
    uint64_t sum; /* of the body */
    size_t size;
    enum dead_reason reason;
    bool used;                      /* a letter is here */
    uint64_t replay, line, sent_ns; /* as its envelope has them */
    int64_t row;
};

static uint64_t mix(const void *data, size_t size)
{
    const unsigned char *at = data;
    uint64_t sum = 0xcbf29ce484222325U;

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * 0x100000001b3U;
    return sum;
}

static struct known_letter letter_of(const struct store_row *m,
                                     const struct envelope *e)
{
    size_t size = m->size - m->header_size;

    return (struct known_letter){
        .replay = e ? e->replay : 0,
        .line = e ? e->line : 0,
        .sent_ns = e ? e->sent_ns : 0,
        .id = m->id,
        .died_ns = m->died_ns,
        .sum = mix((const char *)m->data + m->header_size, size),
        .size = size,
        .reason = m->reason,
        .used = true};
}

static bool alike(const struct known_letter *a, const struct known_letter *b)
{
    return memcmp(&a->id, &b->id, sizeof a->id) == 0 && a->sum == b->sum &&
           a->size == b->size;
}

static bool same(const struct known_letter *a, const struct known_letter *b,
                 bool dated)
{
    return alike(a, b) && a->reason == b->reason &&
           (!dated || a->died_ns == b->died_ns);
}

static bool copies(const struct known_letter *a, const struct known_letter *b)
{
    return alike(a, b) && a->replay == b->replay &&
           ((a->line && a->line == b->line) ||
            (a->sent_ns && a->sent_ns == b->sent_ns));
}

/* spot_of - where a search for that id begins; `room` is a power of two */
static size_t spot_of(const struct known *k, const struct ulid *id)
{
    return (size_t)mix(id, sizeof *id) & (k->room - 1);
}

bool known_has(const struct known *k, const struct store_row *m, bool dated)
{
    const struct known_letter wanted = letter_of(m, NULL);

    if (k->room == 0)
        return false;
    for (size_t i = spot_of(k, &m->id); k->all[i].used;
         i = (i + 1) & (k->room - 1))
        if (same(&k->all[i], &wanted, dated))
            return true;
    return false;
}

int64_t known_first(const struct known *k, const struct store_row *m,
                    const struct envelope *e)
{
    const struct known_letter wanted = letter_of(m, e);

    if (k->room == 0)
        return 0;
    for (size_t i = spot_of(k, &m->id); k->all[i].used;
         i = (i + 1) & (k->room - 1))
        if (copies(&k->all[i], &wanted))
            return k->all[i].row;
    return 0;
}

static void put(struct known *k, const struct known_letter *l)
{
    size_t i = spot_of(k, &l->id);

    while (k->all[i].used)
        i = (i + 1) & (k->room - 1);
    k->all[i] = *l;
    k->count++;
}

/* grow - to twice the room, each letter at its new place */
static int grow(struct known *k)
{
    struct known more = {.room = k->room ? 2 * k->room : ROOM_FIRST};

    more.all = calloc(more.room, sizeof *more.all);
    if (!more.all)
        return -ENOMEM;
    for (size_t i = 0; i < k->room; i++)
        if (k->all[i].used)
            put(&more, &k->all[i]);
    free(k->all);
    *k = more;
    return 0;
}

int known_add(struct known *k, const struct store_row *m,
              const struct envelope *e, int64_t row)
{
    struct known_letter l = letter_of(m, e);
    int err = 2 * k->count >= k->room ? grow(k) : 0;

    l.row = row;
    if (!err)
        put(k, &l);
    return err;
}

void known_free(struct known *k)
{
    free(k->all);
    *k = (struct known){0};
}
