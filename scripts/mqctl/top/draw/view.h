/* view.h - the contents of the screen of top, and how they look
 *
 * WHAT   The numbers and texts of all queues, and the messages of one of them.
 *        view_draw turns them into lines of painted text. The table of keys
 *        has the meaning of each key and its help.
 * WHO    The screen of mqctl top, after each key and each round, on the only
 *        thread of the process; needs no terminal and no queue.
 * OWNS   Nothing: the texts belong to the snapshots of the last round.
 * FAILS  Never; what has no room is left out.
 */
#ifndef SCRIPTS_MQCTL_TOP_DRAW_VIEW_H
#define SCRIPTS_MQCTL_TOP_DRAW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/ulid.h"
#include "common/message/error_text.h"
#include "common/message/header.h"
#include "common/state/worker_lock.h"
#include "scripts/mqctl/top/draw/canvas.h"

/* Values of the last looks at a queue: rings of numbers. */
#define TOP_HISTORY 256

struct history {
    uint64_t depth[TOP_HISTORY], waits[TOP_HISTORY], rates[TOP_HISTORY];
    uint64_t looks; /* so far */
};

#define VIEW_BODY 256 /* bytes of a body that are shown, made printable */

/* One queue and its worker. A number below 0 is not known. */
struct view_queue {
    const char *name;
    const char *problem; /* why it cannot be looked at; NULL: it can */
    enum worker_state state;
    long depth, depth_max;
    double rate; /* finished handlers per second */
    int64_t running, capacity, waits, dead;
    uint64_t p50, p99; /* of the last interval, ns; 0: none ended */
    uint64_t done, retried, died;
    const char *last_error; /* "": none */
    const struct history *past;
};

/* A running message. */
struct view_flight {
    char id[ULID_TEXT]; /* "-": none yet */
    char group[HEADER_VALUE_MAX + 1];
    char body[VIEW_BODY];
    uint64_t started_ns; /* wall */
    int pid;
    uint32_t attempt;
};

struct view_letter {
    int64_t row;
    uint64_t died_ns; /* wall */
    uint32_t attempts;
    const char *reason;
    char error[ERROR_JOINED];
    char body[VIEW_BODY];
};

#define VIEW_FLIGHTS 256
#define VIEW_LETTERS 512

/* The contents of the chosen queue. */
struct view_detail {
    struct view_flight flights[VIEW_FLIGHTS]; /* the longest first */
    size_t flight_count;
    uint64_t oldest_ns; /* wall; first receipt in custody; 0: none */
    struct view_letter letters[VIEW_LETTERS]; /* the newest first */
    size_t letter_count;
    const char *no_letters; /* why none are listed; NULL: none are dead */
};

struct view {
    const char *host, *state_dir, *trouble; /* trouble "": none */
    uint64_t now_ns;                        /* wall */
    const struct view_queue *queues; /* in the order that they are shown in */
    size_t count, chosen;
    size_t sort;  /* the column by which queues are sorted: view_sort */
    bool reverse; /* the order is reversed */
    const struct view_detail *detail;
    bool letters;         /* the list of dead letters has the cursor */
    size_t letter;        /* index of the chosen letter */
    const char *page;     /* a long text instead of all else; NULL: none */
    size_t page_from;     /* lines of the page above the screen */
    bool utf8;            /* the terminal shows UTF-8 */
    bool help;            /* show the keys instead of all else */
    const char *note;     /* the result of the last key */
    const char *question; /* the action of y; NULL: nothing is asked */
};

/* ---- keys: one table, from which the help and the last line are made ---- */

/* Keys that are not characters. */
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
    bool asks;        /* the user has to confirm with y */
    bool letters;     /* it acts on the chosen dead letter */
    const char *name; /* in the help; NULL: a row above names this key, too */
    const char *what;
    const char *foot;         /* in the last line of the screen; NULL: absent */
    const char *letters_foot; /* the same while dead letters are chosen */
};

extern const struct key top_keys[];
extern const size_t top_key_count;

/* Return the row of a key; NULL: that key does nothing. */
const struct key *key_find(int key);

/* ---- drawing ---- */

/* Draw the whole screen; on a low canvas the lower parts are missing. */
void view_draw(const struct view *v, struct canvas *c);

/* Return the lines of a page that do not fit on a screen of that size. */
size_t view_page_rest(const char *page, int width, int rows);

/* Number of columns to sort by. Column 0 has names; the others follow as they
 * are shown, from the left. */
extern const size_t view_sorts;
/* Return the title of a column. */
const char *view_sort_title(size_t sort);
/* Sort by a column: names from a to z, numbers from the largest, states from
 * the worst. Equal queues are sorted by name. */
void view_sort(struct view_queue *queues, size_t count, size_t sort,
               bool reverse);
/* Return true if a screen of that height has room for running messages and for
 * dead letters. */
bool view_tall(int rows);

/* Return the paint of a queue's state. */
enum paint view_state_paint(const struct view_queue *q);

/* Print like duration_rough; "-" for 0, which is not known. */
#define TOP_SHORT DURATION_TEXT
static inline const char *top_duration(uint64_t ns, char buf[TOP_SHORT])
{
    if (ns == 0)
        snprintf(buf, TOP_SHORT, "-");
    return ns ? duration_rough(ns, buf) : buf;
}
/* Print a number; "-" below 0, which is not known. */
#define TOP_COUNT 24
const char *top_count(int64_t n, char buf[TOP_COUNT]);

#endif
