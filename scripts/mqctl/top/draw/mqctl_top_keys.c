/* mqctl_top_keys.c - see mqctl_top_keys.h */
#include "scripts/mqctl/top/draw/mqctl_top_keys.h"

#define WHAT_AT 14

const struct key top_keys[] = {
    {{'?', 'h'}, KEY_HELPS, false, "?", "these keys", "? help"},
    {{TOP_KEY_UP, 'k'}, KEY_GOES_UP, false, "up, down", "choose a queue", NULL},
    {{TOP_KEY_DOWN, 'j'}, KEY_GOES_DOWN, false, NULL, NULL, NULL},
    {{'<', TOP_KEY_LEFT},
     KEY_SORTS_LEFT,
     false,
     "<, >",
     "sort by the column to the left, to the right",
     "< > sort"},
    {{'>', TOP_KEY_RIGHT}, KEY_SORTS_RIGHT, false, NULL, NULL, NULL},
    {{'o', 0}, KEY_TURNS, false, "o", "the other way round", NULL},
    {{'d', 0},
     KEY_LISTS,
     false,
     "d",
     "dead letters in place of what runs; large screens have both",
     "d dead letters"},
    {{'p', 0},
     KEY_PAUSES,
     true,
     "p",
     "pause its worker, or have it resume",
     "p pause"},
    {{'+', '='},
     KEY_ADDS,
     true,
     "+, -",
     "more or fewer in its concurrency",
     "+ - concurrency"},
    {{'-', 0}, KEY_TAKES, true, NULL, NULL, NULL},
    {{'D', 0},
     KEY_DRAINS,
     true,
     "D",
     "drain: take no more, finish what runs, exit",
     NULL},
    {{'S', 0}, KEY_STOPS, true, "S", "stop: the same within its --grace", NULL},
    {{'q', 'Q'}, KEY_QUITS, false, "q", "quit", "q quit"},
};
const size_t top_key_count = sizeof top_keys / sizeof *top_keys;

const struct key *key_find(int key)
{
    for (size_t i = 0; i < top_key_count; i++)
        for (size_t k = 0; k < 2; k++)
            if (key && top_keys[i].keys[k] == key)
                return &top_keys[i];
    return NULL;
}

void keys_help(struct canvas *c)
{
    canvas_put(c, 0, PAINT_BOLD, "KEY");
    canvas_put(c, WHAT_AT, PAINT_BOLD, "WHAT IT DOES");
    c->y++;
    for (size_t i = 0; i < top_key_count; i++) {
        const struct key *k = &top_keys[i];

        if (!k->name)
            continue;
        canvas_put(c, 0, PAINT_PLAIN, "%s", k->name);
        canvas_put(c, WHAT_AT, PAINT_PLAIN, "%s%s", k->what,
                   k->asks ? "; asks first" : "");
        c->y++;
    }
}

void keys_foot(struct canvas *c)
{
    int x = 0;

    for (size_t i = 0; i < top_key_count; i++) {
        if (!top_keys[i].foot)
            continue;
        canvas_put(c, x, PAINT_DIM, "%s", top_keys[i].foot);
        x = c->lines[c->y].columns + 2;
    }
}
