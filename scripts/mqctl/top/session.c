/* session.c - see session.h */
#include "scripts/mqctl/top/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/top/model.h"
#include "scripts/mqctl/top/tool.h"

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
    free(s->page);
    s->queues = NULL;
    s->page = NULL;
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

/* letter_find - the one that was chosen, or what is in its place by now */
static void letter_find(struct session *s)
{
    struct view *v = &s->view;
    size_t count = s->detail.letter_count;

    for (size_t i = 0; i < count; i++)
        if (s->detail.letters[i].row == s->letter)
            v->letter = i;
    if (v->letter >= count)
        v->letter = count ? count - 1 : 0;
    s->letter = count ? s->detail.letters[v->letter].row : 0;
}

/* chosen_update - the queue that was chosen, wherever it is by now */
static void chosen_update(struct session *s, int rows)
{
    struct view *v = &s->view;
    size_t letters =
        v->letters || view_tall(rows) ? (size_t)rows + v->letter : 0;

    v->chosen = 0;
    for (size_t i = 0; i < v->count; i++)
        if (strcmp(s->chosen, s->queues[i].name) == 0)
            v->chosen = i;
    strlcpy(s->chosen, s->queues[v->chosen].name, sizeof s->chosen);
    model_detail(&s->detail, row_named(s, s->chosen), letters);
    letter_find(s);
}

int session_update(struct session *s, int columns, int rows)
{
    struct view *v = &s->view;
    size_t rest = s->page ? view_page_rest(s->page, columns, rows) : 0;

    if (queues_room(s) < 0)
        return -ENOMEM;
    v->queues = s->queues;
    v->count = s->top->count;
    for (size_t i = 0; i < v->count; i++)
        model_queue(&s->queues[i], s->top->rows[i]);
    view_sort(s->queues, v->count, v->sort, v->reverse);
    v->now_ns = clock_wall_ns();
    v->question = s->question.key ? s->question.text : NULL;
    v->page = s->page;
    v->page_from = v->page_from < rest ? v->page_from : rest;
    if (v->count)
        chosen_update(s, rows);
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
    case KEY_REPLAYS:
        snprintf(q->text, room, "send letter %" PRId64 " into %s again?",
                 q->row, q->queue);
        break;
    case KEY_DISCARDS:
        snprintf(q->text, room, "remove letter %" PRId64 " of %s for good?",
                 q->row, q->queue);
        break;
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

/* letter_ask - of the letter that is chosen */
static void letter_ask(struct session *s, const struct key *k)
{
    struct question *q = &s->question;

    *q = (struct question){.key = k, .row = s->letter};
    strlcpy(q->queue, s->chosen, sizeof q->queue);
    question_text(q);
}

/* worker_ask - of the queue that is chosen */
static void worker_ask(struct session *s, const struct key *k)
{
    const struct top_row *r = row_named(s, s->chosen);
    struct question *q = &s->question;

    if (!r || !r->looked || r->v.worker != SNAPSHOT_RUNS) {
        snprintf(s->note, sizeof s->note, "no worker is running on %s",
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

/* letter_do - by mqdlq, which says how it went */
static void letter_do(struct session *s, const char *verb,
                      const struct question *q)
{
    char *out;

    (void)tool_letter(s->top->o, verb, q->queue, q->row, &out, s->note);
    free(out);
}

/* question_yes - y */
static void question_yes(struct session *s)
{
    struct question q = s->question;
    char line[64];

    s->question.key = NULL;
    switch (q.key->does) {
    case KEY_REPLAYS:
        letter_do(s, "replay", &q);
        break;
    case KEY_DISCARDS:
        letter_do(s, "discard", &q);
        break;
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

/* step - one up or down, of so many */
static size_t step(size_t at, size_t count, bool up)
{
    return up ? at - (at > 0) : at + (at + 1 < count);
}

/* choose - the letter or the queue above or below, as they are shown */
static void choose(struct session *s, bool up)
{
    struct view *v = &s->view;

    if (v->letters && s->detail.letter_count) {
        v->letter = step(v->letter, s->detail.letter_count, up);
        s->letter = s->detail.letters[v->letter].row;
    } else if (!v->letters && v->count) {
        strlcpy(s->chosen, s->queues[step(v->chosen, v->count, up)].name,
                sizeof s->chosen);
        v->letter = 0;
        s->letter = 0;
    }
}

/* page_close - back to the queues */
static void page_close(struct session *s)
{
    free(s->page);
    s->page = NULL;
    s->view.page_from = 0;
}

/* page_open - the letter that is chosen, as mqdlq shows it */
static void page_open(struct session *s)
{
    char why[TOOL_WHY];
    int status =
        tool_letter(s->top->o, "show", s->chosen, s->letter, &s->page, why);

    if (!status)
        return;
    page_close(s);
    strlcpy(s->note, why, sizeof s->note);
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
    case KEY_SHOWS:
        page_open(s);
        break;
    default:
        break;
    }
    return SESSION_GOES_ON;
}

/* page_key - a page scrolls; any other key leaves it. False: the key is not
 * used up, as it is about the letter. */
static bool page_key(struct session *s, const struct key *k)
{
    if (k && k->does == KEY_GOES_UP) {
        s->view.page_from -= s->view.page_from > 0;
    } else if (k && k->does == KEY_GOES_DOWN) {
        s->view.page_from++; /* session_update knows the end */
    } else {
        page_close(s);
        return !(k && k->letters && k->asks);
    }
    return true;
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
    if ((s->page && page_key(s, k)) || !k)
        return SESSION_GOES_ON;
    if (k->letters && (!s->view.letters || !s->letter))
        strlcpy(s->note,
                s->view.letters ? "there is no dead letter"
                                : "d goes to the dead letters first",
                sizeof s->note);
    else if (!k->asks)
        return show(s, k->does);
    else if (k->letters)
        letter_ask(s, k);
    else
        worker_ask(s, k);
    return SESSION_GOES_ON;
}
