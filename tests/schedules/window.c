/* window.c - see window.h */
#include "tests/schedules/window.h"

#include <string.h>

#include "common/base/clock.h"
#include "tests/schedules/turn.h"

enum { COPROCESSES = 8 };

struct coprocess {
    struct delivery *open[WINDOW];
    uint64_t until_ns[WINDOW];
    unsigned count;
    bool used, waits, woken;
};

static struct coprocess all[COPROCESSES];
static const struct window_scene *scene;
static unsigned most, used;

static struct coprocess *get(struct handler *h)
{
    struct coprocess *c = all;

    (void)h;
    if (++used > most)
        turn_fault("%u coprocesses are used, and the cap is %u", used, most);
    while (c->used)
        c++;
    c->used = true;
    turn_point();
    return c;
}

static void put(struct handler *h, struct coprocess *c)
{
    (void)h;
    if (c->count > 0)
        turn_fault("a coprocess is left with %u messages", c->count);
    c->used = false;
    used--;
    turn_point();
}

static int ready(struct coprocess *c, struct outcome *out)
{
    (void)c, (void)out;
    turn_point();
    return 0;
}

static unsigned room(const struct coprocess *c)
{
    return WINDOW - c->count;
}

static void send(struct coprocess *c, struct delivery *d)
{
    if (c->count == WINDOW)
        turn_fault("more than %d messages are open", WINDOW);
    c->open[c->count] = d;
    c->until_ns[c->count++] = scene->begins(d);
    turn_point();
}

/* Return the index of the newest message whose time is over; `count`: none. */
static unsigned finished(const struct coprocess *c)
{
    for (unsigned i = c->count; i-- > 0;)
        if (c->until_ns[i] <= clock_mono_ns())
            return i;
    return c->count;
}

static bool can_go_on(void *arg)
{
    const struct coprocess *c = arg;

    return c->woken || finished(c) < c->count;
}

static struct delivery *next(struct coprocess *c, struct outcome *out)
{
    struct delivery *d;
    unsigned i;

    if (c->count == 0)
        turn_fault("a coprocess is waited for, and nothing is open");
    turn_point();
    c->waits = true;
    if (!can_go_on(c))
        turn_until(can_go_on, c);
    c->waits = false;
    i = finished(c);
    if (c->woken || i == c->count) {
        c->woken = false;
        return NULL;
    }
    d = c->open[i];
    c->count--;
    memmove(&c->open[i], &c->open[i + 1],
            (c->count - i) * sizeof(struct delivery *));
    memmove(&c->until_ns[i], &c->until_ns[i + 1],
            (c->count - i) * sizeof c->until_ns[0]);
    scene->ends(d, out);
    turn_point();
    return d;
}

static void wake(struct coprocess *c)
{
    c->woken = true;
    turn_point();
}

static const struct coprocess_ops ops = {.get = get,
                                         .put = put,
                                         .ready = ready,
                                         .room = room,
                                         .send = send,
                                         .next = next,
                                         .wake = wake};

const struct coprocess_ops *window_open(const struct window_scene *with,
                                        unsigned coprocesses)
{
    memset(all, 0, sizeof all);
    scene = with;
    most = coprocesses;
    used = 0;
    return &ops;
}

bool window_has_room(void)
{
    for (unsigned i = 0; i < COPROCESSES; i++)
        if (all[i].used && all[i].waits && !all[i].woken && room(&all[i]) > 0)
            return true;
    return false;
}
