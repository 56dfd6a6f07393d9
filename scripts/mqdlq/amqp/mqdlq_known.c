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
    bool used; /* a letter is here */
};

static uint64_t mix(const void *data, size_t size)
{
    const unsigned char *at = data;
    uint64_t sum = 0xcbf29ce484222325U;

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * 0x100000001b3U;
    return sum;
}

static struct known_letter letter_of(const struct store_row *m)
{
    size_t size = m->size - m->header_size;

    return (struct known_letter){
        .id = m->id,
        .died_ns = m->died_ns,
        .sum = mix((const char *)m->data + m->header_size, size),
        .size = size,
        .reason = m->reason,
        .used = true};
}

static bool same(const struct known_letter *a, const struct known_letter *b,
                 bool dated)
{
    return memcmp(&a->id, &b->id, sizeof a->id) == 0 && a->sum == b->sum &&
           a->size == b->size && a->reason == b->reason &&
           (!dated || a->died_ns == b->died_ns);
}

/* spot_of - where a search for that id begins; `room` is a power of two */
static size_t spot_of(const struct known *k, const struct ulid *id)
{
    return (size_t)mix(id, sizeof *id) & (k->room - 1);
}

bool known_has(const struct known *k, const struct store_row *m, bool dated)
{
    const struct known_letter wanted = letter_of(m);

    if (k->room == 0)
        return false;
    for (size_t i = spot_of(k, &m->id); k->all[i].used;
         i = (i + 1) & (k->room - 1))
        if (same(&k->all[i], &wanted, dated))
            return true;
    return false;
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

int known_add(struct known *k, const struct store_row *m)
{
    const struct known_letter l = letter_of(m);
    int err = 2 * k->count >= k->room ? grow(k) : 0;

    if (!err)
        put(k, &l);
    return err;
}

void known_free(struct known *k)
{
    free(k->all);
    *k = (struct known){0};
}
