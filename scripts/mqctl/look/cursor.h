/* cursor.h - the place behind a message of a list, as text
 *
 * WHAT   slot-STATE-SEQ, due-DUE-ROW, spool-KEY, time-DUE-ROW,
 *        park-PRIORITY-SEQ-GROUP; messages_cursor writes it
 *        (messages.h).
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  -EINVAL.
 */
#ifndef SCRIPTS_MQCTL_LOOK_CURSOR_H
#define SCRIPTS_MQCTL_LOOK_CURSOR_H

#include "scripts/mqctl/look/messages.h"

struct cursor {
    bool slots, due, spool; /* there may be more of them */
    int64_t spooled;        /* the key of the last one */
    enum waiting_state state;
    uint64_t seq;
    struct waiting_place place;
};

/* "" is the place before all. */
int cursor_parse(struct cursor *c, const char *text);

#endif
