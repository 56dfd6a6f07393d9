/* keys.c - see keys.h */
#include "scripts/mqctl/top/draw/keys.h"

#define WHAT_AT 14

/* asks, letters */
#define LOOKS      false, false
#define ASKS       true, false
#define LETTER     false, true
#define LETTER_ASK true, true

/* clang-format off */
const struct key top_keys[] = {
    {{'?', 'h'}, KEY_HELPS, LOOKS, "?", "these keys", "? help", "? help"},
    {{TOP_KEY_UP, 'k'}, KEY_GOES_UP, LOOKS, "up, down",
     "choose a queue, or a dead letter", NULL, NULL},
    {{TOP_KEY_DOWN, 'j'}, KEY_GOES_DOWN, LOOKS, NULL, NULL, NULL, NULL},
    {{'<', TOP_KEY_LEFT}, KEY_SORTS_LEFT, LOOKS, "<, >",
     "sort by the column to the left, to the right", "< > sort", NULL},
    {{'>', TOP_KEY_RIGHT}, KEY_SORTS_RIGHT, LOOKS, NULL, NULL, NULL, NULL},
    {{'o', 0}, KEY_TURNS, LOOKS, "o", "the other way round", NULL, NULL},
    {{'p', 0}, KEY_PAUSES, ASKS, "p",
     "pause its worker, or have it resume", "p pause", NULL},
    {{'+', '='}, KEY_ADDS, ASKS, "+, -",
     "more or fewer in its concurrency", "+ - concurrency", NULL},
    {{'-', 0}, KEY_TAKES, ASKS, NULL, NULL, NULL, NULL},
    {{'D', 0}, KEY_DRAINS, ASKS, "D",
     "drain: take no more, finish what runs, exit", NULL, NULL},
    {{'S', 0}, KEY_STOPS, ASKS, "S",
     "stop: the same within its --grace", NULL, NULL},
    {{'d', 0}, KEY_LISTS, LOOKS, "d",
     "go to its dead letters, and back to the queues",
     "d dead letters", "d back"},
    {{TOP_KEY_ENTER, 's'}, KEY_SHOWS, LETTER, "enter",
     "show a dead letter: its body, why it died", NULL, "enter show"},
    {{'r', 0}, KEY_REPLAYS, LETTER_ASK, "r",
     "replay it: send it into the queue again", NULL, "r replay"},
    {{'x', 0}, KEY_DISCARDS, LETTER_ASK, "x",
     "discard it: remove it for good", NULL, "x discard"},
    {{'q', 'Q'}, KEY_QUITS, LOOKS, "q", "quit", "q quit", "q quit"},
};
/* clang-format on */
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

void keys_foot(struct canvas *c, bool letters)
{
    int x = 0;

    for (size_t i = 0; i < top_key_count; i++) {
        const struct key *k = &top_keys[i];
        const char *foot = letters ? k->letters_foot : k->foot;

        if (!foot)
            continue;
        canvas_put(c, x, PAINT_DIM, "%s", foot);
        x = c->lines[c->y].columns + 2;
    }
}
