/* window.c - see window.h */
#include "scripts/mqctl/serve/ask/window.h"

#include "common/base/basics.h"
#include "common/base/clock.h"

#define STEP    2000 /* letters between two looks at the clock */
#define MOST_NS (50 * NS_PER_MS)

enum search { NONE_MATCHES, FOUND, TIME_OVER };

/* place_take - visit: begin at this letter */
static int place_take(const struct letter *l, void *arg)
{
    struct letter_filter *f = arg;

    f->before_ns = l->m.died_ns;
    f->before_row = l->m.row + 1;
    return FOUND;
}

/* go_back - to the newest letter that matches, where the filter begins then; or
 * as far as there is time, and it has no letter then; enum search, -errno */
static int go_back(struct store *s, struct letter_filter *f)
{
    uint64_t end = clock_mono_ns() + MOST_NS;

    for (;;) {
        struct letter_filter step = *f;
        int older = letters_narrow(s, &step, STEP), got;

        if (older < 0)
            return older;
        step.limit = 1;
        got = letters_each(s, &step, false, place_take, f);
        if (got || older == NO)
            return got;
        f->before_ns = step.since_ns;
        f->before_row = 1;
        if (clock_mono_ns() < end)
            continue;
        f->since_ns = step.since_ns;
        return TIME_OVER;
    }
}

int window_find(struct store *s, struct letter_filter *f)
{
    bool asks = f->error_like || f->group || f->match || f->reason;
    int got = asks ? go_back(s, f) : FOUND;

    if (got < 0 || got == TIME_OVER)
        return got < 0 ? got : YES;
    return letters_narrow(s, f, LOOKED_AT);
}
