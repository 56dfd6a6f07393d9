/* canvas.h - a screen as lines of painted text
 *
 * WHAT   Lines that are written from left to right, each part in a paint. Text
 *        of others is made safe to print, and cut at the edge.
 * WHO    One thread; needs no terminal.
 * OWNS   The lines, until canvas_close.
 * FAILS  canvas_open: -ENOMEM. What has no room is left out.
 */
#ifndef SCRIPTS_MQCTL_TOP_DRAW_CANVAS_H
#define SCRIPTS_MQCTL_TOP_DRAW_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

enum paint {
    PAINT_PLAIN,
    PAINT_BOLD,
    PAINT_DIM,
    PAINT_SORTED, /* the title of the column that orders */
    PAINT_WARN,   /* a person has to look */
    PAINT_BAD,    /* and soon */
};

#define CANVAS_BYTES 4096 /* of a line, the NUL included */
#define CANVAS_PARTS 64

struct canvas_line {
    char text[CANVAS_BYTES];
    int columns; /* that it takes */
    struct {
        size_t from; /* the byte that it begins at */
        enum paint paint;
    } parts[CANVAS_PARTS];
    size_t count;
    bool chosen; /* marked over its whole width */
};

struct canvas {
    int columns, rows;
    int y;   /* of the line that is written */
    int end; /* lines from here on are left alone */
    struct canvas_line *lines;
};

int canvas_open(struct canvas *c, int columns, int rows);
void canvas_close(struct canvas *c);
/* Add text to the current line, at a column, or behind the text there. */
__attribute__((format(printf, 4, 5))) void
canvas_put(struct canvas *c, int x, enum paint paint, const char *fmt, ...);
/* The same in `width` columns, from the left or the right. A text that does not
 * fit ends in "...", or with CANVAS_MIDDLE has that in its middle. */
enum canvas_side { CANVAS_LEFT, CANVAS_MIDDLE, CANVAS_RIGHT };
void canvas_cell(struct canvas *c, int x, int width, enum canvas_side side,
                 enum paint paint, const char *text);
/* Cut a text to `width` columns. `tail` columns of the end stay, behind "..."
 * if there is room for that. */
#define CANVAS_TEXT 1024 /* bytes */
#define CANVAS_MARK 3    /* columns of "..." */
void canvas_cut(char out[CANVAS_TEXT], const char *text, int width, int tail);
/* Mark the current line. */
void canvas_choose(struct canvas *c);

#endif
