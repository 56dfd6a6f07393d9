/* known.c - see known.h
 *
 * A letter has a spot for each of its keys, unless one before it has an equal
 * key. So any number of letters of equal messages, which have one id, are found
 * in one step.
 */
#include "scripts/mqdlq/amqp/known.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/basics.h"

#define SPOTS_FIRST 1024 /* a power of two */

/* What is equal beside id and body. */
enum key {
    BY_LINE,  /* and the number of replays */
    BY_SENT,  /* the same */
    BY_DEATH, /* when and why */
    BY_REASON,
    KEYS
};

struct known_letter {
    struct ulid id;
    uint64_t died_ns;
    uint64_t sum; /* of the body */
    size_t size;
    enum dead_reason reason;
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
        .reason = m->reason};
}

/* ---- keys ---- */

/* value - what the key adds to id and body; 0 of a line or a time: none */
static uint64_t value(const struct known_letter *l, enum key key)
{
    return key == BY_LINE    ? l->line
           : key == BY_SENT  ? l->sent_ns
           : key == BY_DEATH ? l->died_ns
                             : 0;
}

static uint64_t kind(const struct known_letter *l, enum key key)
{
    return key <= BY_SENT ? l->replay : (uint64_t)l->reason;
}

static bool has(const struct known_letter *l, enum key key)
{
    return key > BY_SENT || value(l, key) != 0;
}

static bool equal(const struct known_letter *a, const struct known_letter *b,
                  enum key key)
{
    return memcmp(&a->id, &b->id, sizeof a->id) == 0 && a->sum == b->sum &&
           a->size == b->size && kind(a, key) == kind(b, key) &&
           value(a, key) == value(b, key);
}

/* ---- spots: 0, or a letter's place in `all` and one of its keys ---- */

static size_t spot_make(size_t at, enum key key)
{
    return at * KEYS + (size_t)key + 1;
}

/* find - the letter that has an equal key; else NULL, and *spot is where it
 * would be */
static const struct known_letter *find(const struct known *k,
                                       const struct known_letter *l,
                                       enum key key, size_t *spot)
{
    const uint64_t all[] = {mix(&l->id, sizeof l->id), l->sum, (uint64_t)key,
                            kind(l, key), value(l, key)};
    size_t i = (size_t)mix(all, sizeof all) & (k->spot_room - 1);

    for (; k->spots[i]; i = (i + 1) & (k->spot_room - 1)) {
        size_t at = (k->spots[i] - 1) / KEYS;

        if (k->spots[i] == spot_make(at, key) && equal(&k->all[at], l, key))
            return &k->all[at];
    }
    *spot = i;
    return NULL;
}

static const struct known_letter *
known(const struct known *k, const struct known_letter *l, enum key key)
{
    size_t ignored;

    return k->spot_room && has(l, key) ? find(k, l, key, &ignored) : NULL;
}

static void put(struct known *k, size_t at)
{
    for (enum key key = 0; key < KEYS; key++) {
        size_t spot;

        if (!has(&k->all[at], key) || find(k, &k->all[at], key, &spot))
            continue;
        k->spots[spot] = spot_make(at, key);
        k->spot_count++;
    }
}

/* grow - the spots to twice the room */
static int grow(struct known *k)
{
    size_t room = k->spot_room ? 2 * k->spot_room : SPOTS_FIRST;
    size_t *spots = calloc(room, sizeof *spots);

    if (!spots)
        return -ENOMEM;
    free(k->spots);
    k->spots = spots;
    k->spot_room = room;
    k->spot_count = 0;
    for (size_t i = 0; i < k->count; i++)
        put(k, i);
    return 0;
}

/* ---- the set ---- */

bool known_has(const struct known *k, const struct store_row *m, bool dated)
{
    const struct known_letter wanted = letter_of(m, NULL);

    return known(k, &wanted, dated ? BY_DEATH : BY_REASON) != NULL;
}

int64_t known_first(const struct known *k, const struct store_row *m,
                    const struct envelope *e)
{
    const struct known_letter wanted = letter_of(m, e);
    const struct known_letter *first = known(k, &wanted, BY_LINE);

    if (!first)
        first = known(k, &wanted, BY_SENT);
    return first ? first->row : 0;
}

int known_add(struct known *k, const struct store_row *m,
              const struct envelope *e, int64_t row)
{
    struct known_letter *all =
        array_grow(k->all, k->count, &k->room, sizeof *all);
    int err = 0;

    if (!all)
        return -ENOMEM;
    k->all = all;
    if (2 * (k->spot_count + KEYS) > k->spot_room)
        err = grow(k);
    if (err)
        return err;
    all[k->count] = letter_of(m, e);
    all[k->count].row = row;
    put(k, k->count++);
    return 0;
}

void known_free(struct known *k)
{
    free(k->all);
    free(k->spots);
    *k = (struct known){0};
}
