/* mqctl_top_draw.h - what the screen of top looks like
 *
 * WHAT   Draws all of it anew; a terminal that is low loses the lower parts.
 * WHO    mqctl_top_screen.c; curses is on.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_TOP_MQCTL_TOP_DRAW_H
#define SCRIPTS_MQCTL_TOP_MQCTL_TOP_DRAW_H

#include "scripts/mqctl/top/mqctl_top.h"

#define SCREEN_TEXT 512

enum { COLOUR_BAD = 1, COLOUR_WARN };

struct screen {
    struct top *top;
    size_t chosen;
    bool letters; /* dead letters instead of what runs */
    bool colour;
    char note[SCREEN_TEXT]; /* what the last key brought about */
    int y;                  /* the next line */
};

void screen_draw(struct screen *s);

#endif
