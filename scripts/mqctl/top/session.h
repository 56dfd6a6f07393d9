/* session.h - what a person does in front of top
 *
 * WHAT   The queue that is chosen, the order, a question that waits for its
 *        answer; what each key makes of them.
 * WHO    One thread; needs no terminal.
 * OWNS   The view, until session_fini.
 * FAILS  session_update: -ENOMEM. What a key could not do is in the note.
 */
#ifndef SCRIPTS_MQCTL_TOP_SESSION_H
#define SCRIPTS_MQCTL_TOP_SESSION_H

#include <limits.h>

#include "scripts/mqctl/top/draw/view.h"
#include "scripts/mqctl/top/top.h"

#define SESSION_TEXT 512
#define SESSION_HOST 65

/* What y does. It is about that queue, whatever is chosen by then. */
struct question {
    const struct key *key; /* NULL: nothing is asked */
    char queue[QUEUE_NAME_MAX];
    bool resume;    /* it is paused */
    int from, to;   /* its concurrency */
    int64_t row;    /* the letter */
    char order[64]; /* to the worker, or the verb of mqdlq */
    char text[SESSION_TEXT];
};

struct session {
    struct top *top;
    char chosen[QUEUE_NAME_MAX]; /* the queue; "": the first */
    int64_t letter;              /* its row; 0: the newest */
    struct question question;
    char *page; /* what is shown of a letter; NULL: nothing */
    char note[SESSION_TEXT], host[SESSION_HOST], state_dir[PATH_MAX];
    struct view_queue *queues; /* of the view: `room` of them */
    size_t room;
    struct view_detail detail;
    struct view view;
};

/* `utf8`: the terminal can show it. */
void session_init(struct session *s, struct top *t, bool utf8);
void session_fini(struct session *s);
/* The view, as the last look left it, for a terminal of that size. */
int session_update(struct session *s, int columns, int rows);
/* A character, or one of TOP_KEY_. */
enum session_next {
    SESSION_GOES_ON,
    SESSION_LOOKS, /* see what came of it */
    SESSION_ENDS,
};
enum session_next session_key(struct session *s, int key);

#endif
