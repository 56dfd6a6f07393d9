/* canvas.h - a screen as lines of painted text
 *
 * WHAT   Lines of text, written from left to right in parts, each with a paint
 *        (colour or style). Text is made safe to print, and cut at the edge.
 * WHO    view.c, which draws the screen of mqctl top, on the only thread of the
 *        process. Needs no terminal.
 * OWNS   The lines, until canvas_close.
 * FAILS  canvas_open: -ENOMEM. Text without room is left out.
 */
#ifndef SCRIPTS_MQCTL_TOP_DRAW_CANVAS_H
#define SCRIPTS_MQCTL_TOP_DRAW_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

enum paint {
    PAINT_PLAIN,
    PAINT_BOLD,
    PAINT_DIM,
    PAINT_SORTED, /* the title of the column by which queues are sorted */
    PAINT_WARN,   /* needs attention */
    PAINT_BAD,    /* no messages are taken until somebody acts */
};

#define CANVAS_BYTES 4096 /* of a line, the NUL included */
#define CANVAS_PARTS 64

struct canvas_line {
    char text[CANVAS_BYTES];
    int columns; /* of the screen */
    struct {
        size_t from; /* byte of `text` at which the part begins */
        enum paint paint;
    } parts[CANVAS_PARTS];
    size_t count;
    bool chosen; /* marked over its whole width */
};

struct canvas {
    int columns, rows;
    int y;   /* the current line, which is written */
    int end; /* first line that must not be written */
    struct canvas_line *lines;
};

int canvas_open(struct canvas *c, int columns, int rows);
void canvas_close(struct canvas *c);
/* Add text to the current line, at column `x` or right behind the text that is
 * already there. */
__attribute__((format(printf, 4, 5))) void
canvas_put(struct canvas *c, int x, enum paint paint, const char *fmt, ...);
/* Put text into a cell of `width` columns, at its left or right side. Text that
 * does not fit ends in "..."; with CANVAS_MIDDLE its middle is left out. */
enum canvas_side { CANVAS_LEFT, CANVAS_MIDDLE, CANVAS_RIGHT };
void canvas_cell(struct canvas *c, int x, int width, enum canvas_side side,
                 enum paint paint, const char *text);
/* Cut a text to `width` columns. Keep `tail` columns of its end, behind "..."
 * if there is room for that. */
#define CANVAS_TEXT 1024 /* bytes */
#define CANVAS_MARK 3    /* columns of "..." */
void canvas_cut(char out[CANVAS_TEXT], const char *text, int width, int tail);
/* Mark the current line. */
void canvas_choose(struct canvas *c);

#endif
