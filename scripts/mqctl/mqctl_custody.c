/* mqctl_custody.c - see mqctl_custody.h */
#include "scripts/mqctl/mqctl_custody.h"

#include "common/custody/custody_look.h"

struct counting {
    struct custody_count *out;
    struct store *store;
};

/* row_count - a stored message that has a slot is still in the store, too */
static void row_count(struct counting *c, int64_t row)
{
    struct store_row m;

    if (!row || !c->store || store_get(c->store, row, &m, NULL, 0, NULL) < 0)
        return;
    c->out->waiting += m.state == STORE_WAITING;
    c->out->parked += m.state == STORE_PARKED;
}

static int slot_count(const struct custody_seen *seen, void *arg)
{
    struct counting *c = arg;

    c->out->total++;
    if (seen->w.state == SLOT_RUNNING)
        c->out->running++;
    else if (seen->group[0])
        c->out->grouped++;
    row_count(c, seen->row);
    return 0;
}

/* custody_count - slot by slot */
int custody_count(struct custody_count *out, const char *path, struct store *s,
                  struct problem *p)
{
    struct counting c = {.out = out, .store = s};

    *out = (struct custody_count){0};
    return custody_look(path, slot_count, &c, p);
}
