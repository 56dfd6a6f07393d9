/* keys.h - the keys of top
 *
 * WHAT   One table: the key, what it does, whether it asks first. The help and
 *        the last line of the screen are made from it.
 * WHO    One thread; needs no terminal.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_TOP_DRAW_KEYS_H
#define SCRIPTS_MQCTL_TOP_DRAW_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "scripts/mqctl/top/draw/canvas.h"

/* Keys that are no character. */
enum {
    TOP_KEY_UP = 0x100,
    TOP_KEY_DOWN,
    TOP_KEY_LEFT,
    TOP_KEY_RIGHT,
    TOP_KEY_ENTER,
};

enum key_does {
    KEY_HELPS,
    KEY_GOES_UP,
    KEY_GOES_DOWN,
    KEY_PAUSES,
    KEY_ADDS,
    KEY_TAKES,
    KEY_DRAINS,
    KEY_STOPS,
    KEY_LISTS,
    KEY_SHOWS,
    KEY_REPLAYS,
    KEY_DISCARDS,
    KEY_SORTS_LEFT,
    KEY_SORTS_RIGHT,
    KEY_TURNS,
    KEY_QUITS,
};

struct key {
    int keys[2]; /* any of them; 0: none */
    enum key_does does;
    bool asks;        /* a y has to follow */
    bool letters;     /* it is about the dead letter that is chosen */
    const char *name; /* of it and the next rows; NULL: told before */
    const char *what;
    const char *foot;         /* in the last line of the screen, */
    const char *letters_foot; /* among dead letters; NULL: not there */
};

extern const struct key top_keys[];
extern const size_t top_key_count;

/* NULL: that key does nothing. */
const struct key *key_find(int key);
/* All of them, from the current line on. */
void keys_help(struct canvas *c);
/* The most important ones, on the current line. */
void keys_foot(struct canvas *c, bool letters);

#endif
