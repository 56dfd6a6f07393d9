/* mqctl_top_session.c - see mqctl_top_session.h */
#include "scripts/mqctl/top/mqctl_top_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/mqctl_ask.h"
#include "scripts/mqctl/top/mqctl_top_model.h"

void session_init(struct session *s, struct top *t, bool utf8)
{
    struct problem p;

    *s = (struct session){.top = t};
    if (gethostname(s->host, sizeof s->host - 1) < 0)
        s->host[0] = '\0';
    if (statedir_root(s->state_dir, t->o->state_dir, &p) < 0)
        s->state_dir[0] = '\0';
    s->view = (struct view){.host = s->host,
                            .state_dir = s->state_dir,
                            .trouble = t->trouble,
                            .detail = &s->detail,
                            .utf8 = utf8,
                            .note = s->note};
}

void session_fini(struct session *s)
{
    free(s->queues);
    s->queues = NULL;
}

/* row_named - NULL: it is gone */
static struct top_row *row_named(const struct session *s, const char *queue)
{
    for (size_t i = 0; i < s->top->count; i++)
        if (strcmp(s->top->rows[i]->queue, queue) == 0)
            return s->top->rows[i];
    return NULL;
}

/* queues_room - for as many as there are */
static int queues_room(struct session *s)
{
    struct view_queue *more;

    if (s->top->count <= s->room)
        return 0;
    more = reallocarray(s->queues, s->top->count, sizeof *more);
    if (!more)
        return -ENOMEM;
    s->queues = more;
    s->room = s->top->count;
    return 0;
}

int session_update(struct session *s, int rows)
{
    struct view *v = &s->view;
    size_t count = s->top->count;

    if (queues_room(s) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        model_queue(&s->queues[i], s->top->rows[i]);
    view_sort(s->queues, count, v->sort, v->reverse);
    v->chosen = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(s->chosen, s->queues[i].name) == 0)
            v->chosen = i;
    v->queues = s->queues;
    v->count = count;
    v->now_ns = clock_wall_ns();
    v->question = s->question.key ? s->question.text : NULL;
    if (count == 0)
        return 0;
    strlcpy(s->chosen, s->queues[v->chosen].name, sizeof s->chosen);
    model_detail(&s->detail, row_named(s, s->chosen),
                 v->letters || view_tall(rows) ? (size_t)rows : 0);
    return 0;
}

/* ---- what changes production ---- */

/* order - tell the worker of a queue */
static void order(struct session *s, const char *queue, const char *line)
{
    const struct top_row *r = row_named(s, queue);
    const char *error = NULL;
    json_t *answer = NULL;
    struct problem p;

    if (!r || !r->looked || !r->v.has_folder)
        strlcpy(s->note, "there is no worker to tell", sizeof s->note);
    else if (ask(&r->v.dir, queue, line, &answer, &p) < 0)
        strlcpy(s->note, p.text, sizeof s->note);
    else if (json_unpack(answer, "{s:s}", "error", &error) == 0)
        strlcpy(s->note, error, sizeof s->note);
    else
        snprintf(s->note, sizeof s->note, "%s: %s", queue, line);
    json_decref(answer);
}

/* question_text - what y is about to do */
static void question_text(struct question *q)
{
    size_t room = sizeof q->text;

    switch (q->key->does) {
    case KEY_PAUSES:
        snprintf(q->text, room, "%s %s?", q->resume ? "resume" : "pause",
                 q->queue);
        break;
    case KEY_DRAINS:
        snprintf(q->text, room,
                 "drain %s? Its worker finishes what runs, and exits",
                 q->queue);
        break;
    case KEY_STOPS:
        snprintf(q->text, room, "stop %s? Its worker exits, within its --grace",
                 q->queue);
        break;
    default:
        snprintf(q->text, room,
                 "max-concurrency of %s from %d to %d? + - change it", q->queue,
                 q->from, q->to);
        break;
    }
}

/* question_ask - of the queue that is chosen */
static void question_ask(struct session *s, const struct key *k)
{
    const struct top_row *r = row_named(s, s->chosen);
    struct question *q = &s->question;

    if (!r || !r->looked || r->v.worker != SNAPSHOT_RUNS) {
        snprintf(s->note, sizeof s->note, "no worker runs on %s",
                 s->chosen[0] ? s->chosen : "any queue");
        return;
    }
    *q = (struct question){.key = k};
    strlcpy(q->queue, s->chosen, sizeof q->queue);
    q->resume = snapshot_paused(&r->v);
    q->from = q->to = (int)snapshot_cap(&r->v);
    if (k->does == KEY_ADDS)
        q->to++;
    if (k->does == KEY_TAKES)
        q->to -= q->to > 1;
    question_text(q);
}

/* question_yes - y */
static void question_yes(struct session *s)
{
    struct question q = s->question;
    char line[64];

    s->question.key = NULL;
    switch (q.key->does) {
    case KEY_PAUSES:
        order(s, q.queue, q.resume ? "resume" : "pause");
        break;
    case KEY_DRAINS:
        order(s, q.queue, "drain");
        break;
    case KEY_STOPS:
        order(s, q.queue, "stop");
        break;
    default:
        snprintf(line, sizeof line, "set max-concurrency=%d", q.to);
        order(s, q.queue, line);
        break;
    }
}

/* question_key - an answer; + and - only change what is asked */
static enum session_next question_key(struct session *s, int key)
{
    struct question *q = &s->question;
    const struct key *k = key_find(key);
    bool cap = q->key->does == KEY_ADDS || q->key->does == KEY_TAKES;

    if (key == 'y' || key == 'Y') {
        question_yes(s);
        return SESSION_LOOKS;
    }
    if (cap && k && (k->does == KEY_ADDS || k->does == KEY_TAKES)) {
        q->to += k->does == KEY_ADDS ? 1 : q->to > 1 ? -1 : 0;
        question_text(q);
    } else {
        q->key = NULL;
        strlcpy(s->note, "nothing was changed", sizeof s->note);
    }
    return SESSION_GOES_ON;
}

/* ---- what is shown ---- */

/* choose - the queue above or below, as they are shown */
static void choose(struct session *s, bool up)
{
    size_t at = s->view.chosen;

    if (up)
        at -= at > 0;
    else
        at += at + 1 < s->view.count;
    if (at < s->view.count)
        strlcpy(s->chosen, s->queues[at].name, sizeof s->chosen);
}

/* show - by a key that changes nothing but the screen */
static enum session_next show(struct session *s, enum key_does does)
{
    struct view *v = &s->view;

    switch (does) {
    case KEY_QUITS:
        return SESSION_ENDS;
    case KEY_HELPS:
        v->help = true;
        break;
    case KEY_GOES_UP:
    case KEY_GOES_DOWN:
        choose(s, does == KEY_GOES_UP);
        break;
    case KEY_SORTS_LEFT:
        v->sort = (v->sort + view_sorts - 1) % view_sorts;
        break;
    case KEY_SORTS_RIGHT:
        v->sort = (v->sort + 1) % view_sorts;
        break;
    case KEY_TURNS:
        v->reverse = !v->reverse;
        break;
    case KEY_LISTS:
        v->letters = !v->letters;
        break;
    default:
        break;
    }
    return SESSION_GOES_ON;
}

enum session_next session_key(struct session *s, int key)
{
    const struct key *k = key_find(key);

    s->note[0] = '\0';
    if (s->view.help) {
        s->view.help = false;
        return SESSION_GOES_ON;
    }
    if (s->question.key)
        return question_key(s, key);
    if (!k)
        return SESSION_GOES_ON;
    if (!k->asks)
        return show(s, k->does);
    question_ask(s, k);
    return SESSION_GOES_ON;
}
