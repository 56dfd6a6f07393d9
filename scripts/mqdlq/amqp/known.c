/* known.c - the set of letters that the broker has already (see known.h)
 *
 * The set is one search tree of spots. A letter has a spot for each of its
 * keys, unless an earlier letter has an equal one. So the tree stays small, and
 * a search short, even with many letters of equal messages, which have one id.
 */
#include "scripts/mqdlq/amqp/known.h"

#include <errno.h>
#include <search.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/basics.h"

/* What a key compares besides id and body. */
enum key {
    BY_LINE,   /* the line and the number of replays */
    BY_SENT,   /* the time of sending and the number of replays */
    BY_DEATH,  /* the time of death and its reason */
    BY_REASON, /* the reason of the death */
    KEYS
};

/* Compared with memcmp(3): no padding. */
struct spot {
    struct ulid id;
    uint64_t key;
    uint64_t sum, size;   /* of the body */
    uint64_t kind, value; /* of the key */
    int64_t row;          /* not compared; stays last */
};
_Static_assert(sizeof(struct spot) ==
                   sizeof(struct ulid) + 6 * sizeof(uint64_t),
               "a spot has no padding");

/* Fill the spots of a letter, one for each key. The value of a line or of a
 * time of sending is 0 if the letter has none, and then its spot is not
 * used. */
static void spots_fill(struct spot spots[KEYS], const struct store_row *m,
                       const struct envelope *e)
{
    const uint64_t values[KEYS] = {[BY_LINE] = e ? e->line : 0,
                                   [BY_SENT] = e ? e->sent_ns : 0,
                                   [BY_DEATH] = m->died_ns};
    size_t size = m->size - m->header_size;
    uint64_t sum =
        fnv_add(FNV_BEGIN, (const char *)m->data + m->header_size, size);

    for (enum key key = 0; key < KEYS; key++) {
        uint64_t kind = key > BY_SENT ? (uint64_t)m->reason : e ? e->replay : 0;

        spots[key] = (struct spot){.id = m->id,
                                   .key = key,
                                   .sum = sum,
                                   .size = size,
                                   .kind = kind,
                                   .value = values[key]};
    }
}

/* Order spots for tsearch(3), by all members but the row. */
static int spot_order(const void *a, const void *b)
{
    return memcmp(a, b, offsetof(struct spot, row));
}

/* Return the row of the letter that has an equal key, or -1. */
static int64_t spot_find(const struct known *k, const struct spot *wanted)
{
    struct spot *const *at = tfind(wanted, &k->spots, spot_order);

    return at ? (*at)->row : -1;
}

bool known_has(const struct known *k, const struct store_row *m, bool dated)
{
    struct spot spots[KEYS];

    spots_fill(spots, m, NULL);
    return spot_find(k, &spots[dated ? BY_DEATH : BY_REASON]) >= 0;
}

int64_t known_first(const struct known *k, const struct store_row *m,
                    const struct envelope *e)
{
    struct spot spots[KEYS];
    int64_t row = -1;

    spots_fill(spots, m, e);
    for (enum key key = BY_LINE; key <= BY_SENT && row < 0; key++)
        if (spots[key].value)
            row = spot_find(k, &spots[key]);
    return row > 0 ? row : 0;
}

int known_add(struct known *k, const struct store_row *m,
              const struct envelope *e, int64_t row)
{
    struct spot spots[KEYS];

    spots_fill(spots, m, e);
    for (enum key key = 0; key < KEYS; key++) {
        struct spot *copy, **at;

        if ((key <= BY_SENT && !spots[key].value) ||
            spot_find(k, &spots[key]) >= 0)
            continue;
        copy = malloc(sizeof *copy);
        if (!copy)
            return -ENOMEM;
        *copy = spots[key];
        copy->row = row;
        at = tsearch(copy, &k->spots, spot_order);
        if (!at) {
            free(copy);
            return -ENOMEM;
        }
    }
    return 0;
}

void known_free(struct known *k)
{
    tdestroy(k->spots, free);
    k->spots = NULL;
}
