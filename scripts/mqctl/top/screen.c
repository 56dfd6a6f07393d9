/* screen.c - mqctl top on a terminal (see top.h)
 *
 * top_run calls top_screen, on the only thread. A session has the chosen queue
 * and letter, the sort order, and the question that the user has to answer.
 * Each key changes the session; then the screen is drawn again.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <ncurses.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/custody/custody.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/store/letters.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/top/draw/view.h"
#include "scripts/mqctl/top/top.h"

#define SESSION_TEXT 512
#define SESSION_HOST 65

/* A question to the user, and what is done if the answer is y. */
struct question {
    const struct key *key;      /* the key that asked; NULL: no question */
    char queue[QUEUE_NAME_MAX]; /* chosen when the question was asked */
    bool resume;                /* the queue is paused */
    int from, to;               /* concurrency before and after */
    int64_t row;                /* the letter */
    char order[64];             /* to the worker, or the verb of mqdlq */
    char text[SESSION_TEXT];
};

struct session {
    struct top *top;
    char chosen[QUEUE_NAME_MAX]; /* the queue; "": the first */
    int64_t letter;              /* row of the letter; 0: the newest */
    struct question question;
    char *page; /* the text of a letter, on the whole screen; NULL: none */
    char note[SESSION_TEXT], host[SESSION_HOST], state_dir[PATH_MAX];
    struct view_queue *queues; /* of the view: `room` of them */
    size_t room;
    struct view_detail detail;
    struct view view;
    bool colour;
};

enum session_next {
    SESSION_GOES_ON,
    SESSION_LOOKS, /* read the queues again, to show the result */
    SESSION_ENDS,
};
enum { COLOUR_BAD = 1, COLOUR_WARN };

#define TOOL_WHY 512
#define OUT_MOST (1 << 20)
#define WAIT     "1s" /* how long a replay, and the screen, waits for room */

/* ---- running mqdlq ---- */

/* Have mqdlq show, replay or discard one letter of a queue, and wait until it
 * has exited. Returns its exit status. *out gets the output, which the caller
 * frees; NULL if it is lost. `why` gets the last line of the output, which is
 * the result. */
static int letter_run(const struct options *o, const char *verb,
                      const char *queue, int64_t row, char **out,
                      char why[TOOL_WHY])
{
    const char *argv[11] = {"mqdlq", verb};
    int fd = memfd_create("mqctl-mqdlq", MFD_CLOEXEC), status = 0, err;
    posix_spawn_file_actions_t files;
    char number[32], path[PATH_MAX];
    size_t n = 2, room;
    off_t size;
    pid_t pid;

    snprintf(number, sizeof number, "%" PRId64, row);
    if (strcmp(verb, "replay") == 0) {
        argv[n++] = "--wait";
        argv[n++] = WAIT;
    }
    if (!o->utc)
        argv[n++] = "--local";
    if (o->state_dir) {
        argv[n++] = "--state-dir";
        argv[n++] = o->state_dir;
    }
    argv[n++] = "--";
    argv[n++] = queue;
    argv[n++] = number;
    err = fd < 0 ? errno : -file_of_program(path, "mqdlq");
    err = err ? err : posix_spawn_file_actions_init(&files);
    if (!err) {
        err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY,
                                               0);
        err = err ? err : posix_spawn_file_actions_adddup2(&files, fd, 1);
        err = err ? err : posix_spawn_file_actions_adddup2(&files, fd, 2);
        err = err ? err
                  : posix_spawn(&pid, path, &files, NULL, (char *const *)argv,
                                environ);
        posix_spawn_file_actions_destroy(&files);
    }
    while (!err && waitpid(pid, &status, 0) < 0)
        err = errno == EINTR ? 0 : errno;
    size = err ? -1 : lseek(fd, 0, SEEK_END);
    room = size > 0 && size < OUT_MOST ? (size_t)size : OUT_MOST;
    *out = size < 0 ? NULL : calloc(1, room + 1);
    if (*out && pread(fd, *out, room, 0) < 0) {
        free(*out);
        *out = NULL;
    }
    if (err)
        snprintf(why, TOOL_WHY, "cannot run mqdlq: %s", errno_text(err));
    else
        strlcpy(why,
                *out ? complaint_of(*out)
                     : "the output of mqdlq is lost: no memory",
                TOOL_WHY);
    if (fd >= 0)
        close(fd);
    return err                 ? EX_OSERR
           : WIFEXITED(status) ? WEXITSTATUS(status)
                               : EX_SOFTWARE;
}

/* ---- the messages of the chosen queue ---- */

/* Print the beginning of a body, on one line. */
static void body_text(char out[VIEW_BODY], const void *body, size_t size)
{
    safe_text_copy(out, VIEW_BODY, body, size < VIEW_BODY ? size : VIEW_BODY);
}

/* Visit a slot: add its message if a handler is running it. */
static int flight_add(const struct custody_seen *seen, void *arg)
{
    struct view_detail *d = arg;
    struct view_flight *f = &d->flights[d->flight_count];
    size_t header = seen->header.bytes;

    if (seen->received_ns &&
        (!d->oldest_ns || seen->received_ns < d->oldest_ns))
        d->oldest_ns = seen->received_ns;
    if (seen->w.state != SLOT_RUNNING || d->flight_count == VIEW_FLIGHTS)
        return 0;
    d->flight_count++;
    /* A message has no id until something needs it. */
    if (ulid_is_none(&seen->id))
        strlcpy(f->id, "-", ULID_TEXT);
    else
        ulid_print(seen->id, f->id);
    strlcpy(f->group, seen->group, sizeof f->group);
    f->started_ns = seen->started_ns;
    f->pid = seen->pgid;
    f->attempt = seen->w.attempt;
    f->body[0] = '\0';
    if (header <= seen->data_size)
        body_text(f->body, (const char *)seen->data + header,
                  seen->data_size - header);
    return 0;
}

/* Compare for qsort by start; break ties by id, so that rows do not jump. */
static int longest_first(const void *a, const void *b)
{
    const struct view_flight *x = a, *y = b;

    if (x->started_ns != y->started_ns)
        return x->started_ns < y->started_ns ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* Visit a dead letter: add it. */
static int letter_add(const struct letter *l, void *arg)
{
    struct view_detail *d = arg;
    struct view_letter *to = &d->letters[d->letter_count];

    if (d->letter_count == VIEW_LETTERS)
        return VISIT_ENOUGH;
    d->letter_count++;
    to->row = l->m.row;
    to->died_ns = l->m.died_ns;
    to->attempts = l->m.attempts;
    to->reason = dead_reason_text(l->m.reason);
    error_text_join(to->error, sizeof to->error, l->m.error, l->error_text);
    body_text(to->body, l->body, l->body_size);
    return 0;
}

/* Read the running messages of a queue and up to `letters` dead letters; `r` is
 * NULL if no queue is chosen. */
static void detail_fill(struct view_detail *d, struct top_row *r,
                        size_t letters)
{
    struct letter_filter f = {.limit = letters};
    struct store *store;
    char path[PATH_MAX];
    struct problem p;

    d->flight_count = d->letter_count = 0;
    d->oldest_ns = 0;
    d->no_letters = NULL;
    if (!r || !r->looked)
        return;
    if (r->v.has_folder &&
        runtimedir_file(&r->v.dir, RUNTIMEDIR_CUSTODY, path, &p) == 0) {
        (void)custody_look(path, flight_add, d, &p);
        qsort(d->flights, d->flight_count, sizeof *d->flights, longest_first);
    }
    if (r->v.broker)
        d->no_letters = "they are on the broker: mqdlq list shows them";
    else if (letters && r->v.rows.dead > 0 &&
             snapshot_store(&r->v, &store) == 0) {
        (void)letters_each(store, &f, false, letter_add, d);
        store_close(&store);
    }
}

/* ---- the session ---- */

/* Return the row of a queue; NULL: it is gone. */
static struct top_row *row_named(const struct session *s, const char *queue)
{
    for (size_t i = 0; i < s->top->count; i++)
        if (strcmp(s->top->rows[i]->queue, queue) == 0)
            return s->top->rows[i];
    return NULL;
}

/* Fill in the view from the last snapshots, for a terminal of that size.
 * Returns 0 or -ENOMEM. */
static int session_update(struct session *s, int columns, int rows)
{
    struct view *v = &s->view;
    struct view_queue *more;
    size_t rest = s->page ? view_page_rest(s->page, columns, rows) : 0;
    size_t count;

    if (s->top->count > s->room) {
        more = reallocarray(s->queues, s->top->count, sizeof *more);
        if (!more)
            return -ENOMEM;
        s->queues = more;
        s->room = s->top->count;
    }
    v->queues = s->queues;
    v->count = s->top->count;
    for (size_t i = 0; i < v->count; i++) {
        const struct top_row *r = s->top->rows[i];
        const struct snapshot *look = &r->v;

        s->queues[i] = (struct view_queue){
            .name = r->queue, .past = &r->past, .problem = r->problem.text};
        if (r->looked)
            s->queues[i] = (struct view_queue){
                .name = r->queue,
                .past = &r->past,
                .state = snapshot_state(look),
                .depth = look->depth,
                .depth_max = look->depth_max,
                .rate = r->rate,
                .running = (int64_t)look->sum.running,
                .capacity =
                    look->worker == SNAPSHOT_RUNS ? snapshot_capacity(look) : 0,
                .waits = snapshot_waits(look),
                .dead = look->rows.dead,
                .p50 = r->p50,
                .p99 = r->p99,
                .done = look->sum.done,
                .retried = look->sum.retried,
                .died = look->sum.dead,
                .last_error = look->head.texts[COUNTERS_LAST_ERROR],
            };
    }
    view_sort(s->queues, v->count, v->sort, v->reverse);
    v->now_ns = clock_wall_ns();
    v->question = s->question.key ? s->question.text : NULL;
    v->page = s->page;
    v->page_from = v->page_from < rest ? v->page_from : rest;
    if (!v->count)
        return 0;
    /* Find the chosen queue and letter: they may have moved in their lists. */
    v->chosen = 0;
    for (size_t i = 0; i < v->count; i++)
        if (strcmp(s->chosen, s->queues[i].name) == 0)
            v->chosen = i;
    strlcpy(s->chosen, s->queues[v->chosen].name, sizeof s->chosen);
    detail_fill(&s->detail, row_named(s, s->chosen),
                v->letters || view_tall(rows) ? (size_t)rows + v->letter : 0);
    count = s->detail.letter_count;
    for (size_t i = 0; i < count; i++)
        if (s->detail.letters[i].row == s->letter)
            v->letter = i;
    if (v->letter >= count) /* the list has become shorter */
        v->letter = count ? count - 1 : 0;
    s->letter = count ? s->detail.letters[v->letter].row : 0;
    return 0;
}

/* ---- questions ---- */

/* Set the order of a question, and the text that asks the user. */
static void question_set(struct question *q)
{
    const char *order = q->resume ? "resume" : "pause";
    size_t room = sizeof q->text;

    switch (q->key->does) {
    case KEY_REPLAYS:
        order = "replay";
        snprintf(q->text, room, "replay letter %" PRId64 " of %s?", q->row,
                 q->queue);
        break;
    case KEY_DISCARDS:
        order = "discard";
        snprintf(q->text, room, "remove letter %" PRId64 " of %s permanently?",
                 q->row, q->queue);
        break;
    case KEY_PAUSES:
        snprintf(q->text, room, "%s %s?", order, q->queue);
        break;
    case KEY_DRAINS:
        order = "drain";
        snprintf(q->text, room,
                 "drain %s? Its worker finishes running messages and exits",
                 q->queue);
        break;
    case KEY_STOPS:
        order = "stop";
        snprintf(q->text, room, "stop %s? Its worker exits within its --grace",
                 q->queue);
        break;
    default:
        snprintf(
            q->text, room,
            "change max-concurrency of %s from %d to %d (+ or - adjusts it)?",
            q->queue, q->from, q->to);
        snprintf(q->order, sizeof q->order, "set max-concurrency=%d", q->to);
        return;
    }
    strlcpy(q->order, order, sizeof q->order);
}

/* Say what the worker did, in the words of mqctl pause and set. */
static void order_say(struct session *s, const json_t *answer)
{
    const struct question *q = &s->question;
    const json_t *one = json_array_get(json_object_get(answer, "settings"), 0);
    bool idle = json_is_false(json_object_get(answer, "was_paused"));
    char from[JSON_TEXT], to[JSON_TEXT];
    const char *old = json_as_text(json_object_get(one, "old"), from);
    const char *new = json_as_text(json_object_get(one, "new"), to);

    if (old && new)
        snprintf(s->note, sizeof s->note, "%s: max-concurrency %s -> %s",
                 q->queue, old, new);
    else
        snprintf(s->note, sizeof s->note, "%s: %s", q->queue,
                 q->key->does == KEY_DRAINS  ? "draining"
                 : q->key->does == KEY_STOPS ? "stopping"
                 : idle                      ? "was not paused"
                 : q->resume                 ? "resumed"
                                             : "paused");
}

/* Take a key as the answer: y carries out the order, + and - change the number
 * in a question about concurrency, and any other key cancels. */
static enum session_next question_key(struct session *s, int key)
{
    struct question *q = &s->question;
    const struct key *k = key_find(key);
    const struct top_row *r = row_named(s, q->queue);
    bool cap = q->key->does == KEY_ADDS || q->key->does == KEY_TAKES;
    const char *error = NULL;
    json_t *answer = NULL;
    struct problem p;
    char *out = NULL;

    if (key == 'y' || key == 'Y') {
        if (q->key->letters) /* the note is the output of mqdlq */
            (void)letter_run(s->top->o, q->order, q->queue, q->row, &out,
                             s->note);
        else if (!r || !r->looked || !r->v.has_folder)
            snprintf(s->note, sizeof s->note, "no worker is running on %s",
                     q->queue);
        else if (ask(&r->v.dir, q->queue, q->order, &answer, &p) < 0)
            strlcpy(s->note, p.text, sizeof s->note);
        else if (ask_status(answer, &error) != 0)
            strlcpy(s->note, error, sizeof s->note);
        else
            order_say(s, answer);
        json_decref(answer);
        free(out);
        q->key = NULL;
        return SESSION_LOOKS;
    }
    if (cap && k && (k->does == KEY_ADDS || k->does == KEY_TAKES)) {
        q->to += k->does == KEY_ADDS ? 1 : q->to > 1 ? -1 : 0;
        question_set(q);
    } else {
        q->key = NULL;
        strlcpy(s->note, "nothing was changed", sizeof s->note);
    }
    return SESSION_GOES_ON;
}

/* ---- keys ---- */

/* Close the text of a letter. */
static void page_close(struct session *s)
{
    free(s->page);
    s->page = NULL;
    s->view.page_from = 0;
}

/* Obey a key that changes nothing but the screen. */
static enum session_next view_change(struct session *s, enum key_does does)
{
    struct view *v = &s->view;
    size_t count = v->letters ? s->detail.letter_count : v->count;
    size_t at = v->letters ? v->letter : v->chosen;
    char why[TOOL_WHY];

    switch (does) {
    case KEY_QUITS:
        return SESSION_ENDS;
    case KEY_HELPS:
        v->help = true;
        break;
    case KEY_GOES_UP:
    case KEY_GOES_DOWN:
        /* Choose the letter or the queue above or below, as shown. */
        if (count == 0)
            break;
        at = does == KEY_GOES_UP ? at - (at > 0) : at + (at + 1 < count);
        v->letter = v->letters ? at : 0;
        s->letter = v->letters ? s->detail.letters[at].row : 0;
        if (!v->letters)
            strlcpy(s->chosen, s->queues[at].name, sizeof s->chosen);
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
    case KEY_SHOWS: /* the chosen letter, as mqdlq shows it */
        if (letter_run(s->top->o, "show", s->chosen, s->letter, &s->page,
                       why) == 0)
            break;
        page_close(s);
        strlcpy(s->note, why, sizeof s->note);
        break;
    default:
        break;
    }
    return SESSION_GOES_ON;
}

/* Obey a key: a character or one of TOP_KEY_. */
static enum session_next session_key(struct session *s, int key)
{
    const struct key *k = key_find(key);
    const struct top_row *r = row_named(s, s->chosen);
    struct question *q = &s->question;

    s->note[0] = '\0';
    if (s->view.help) {
        s->view.help = false;
        return SESSION_GOES_ON;
    }
    if (q->key)
        return question_key(s, key);
    /* While the text of a letter is shown, up and down scroll it. Any other key
     * closes it; only replay and discard do more than that. */
    if (s->page && k && k->does == KEY_GOES_UP) {
        s->view.page_from -= s->view.page_from > 0;
        return SESSION_GOES_ON;
    }
    if (s->page && k && k->does == KEY_GOES_DOWN) {
        s->view.page_from++; /* session_update limits it */
        return SESSION_GOES_ON;
    }
    if (s->page) {
        page_close(s);
        if (!k || !k->letters || !k->asks)
            return SESSION_GOES_ON;
    }
    if (!k)
        return SESSION_GOES_ON;
    if (k->letters && (!s->view.letters || !s->letter)) {
        strlcpy(s->note,
                s->view.letters ? "there is no dead letter"
                                : "press d first, to choose a dead letter",
                sizeof s->note);
    } else if (!k->asks) {
        return view_change(s, k->does);
    } else if (k->letters) {
        *q = (struct question){.key = k, .row = s->letter};
        strlcpy(q->queue, s->chosen, sizeof q->queue);
        question_set(q);
    } else if (!r || !r->looked || r->v.worker != SNAPSHOT_RUNS) {
        snprintf(s->note, sizeof s->note, "no worker is running on %s",
                 s->chosen[0] ? s->chosen : "any queue");
    } else { /* ask to confirm an order to the worker of the chosen queue */
        *q = (struct question){.key = k,
                               .resume = snapshot_paused(&r->v),
                               .from = (int)snapshot_cap(&r->v)};
        strlcpy(q->queue, s->chosen, sizeof q->queue);
        q->to = q->from + (k->does == KEY_ADDS);
        q->to -= k->does == KEY_TAKES && q->to > 1;
        question_set(q);
    }
    return SESSION_GOES_ON;
}

/* ---- drawing ---- */

/* Draw the view on the terminal in its present size. */
static int screen_draw(struct session *s)
{
    const attr_t paints[] = {
        [PAINT_PLAIN] = A_NORMAL,
        [PAINT_BOLD] = A_BOLD,
        [PAINT_DIM] = A_DIM,
        [PAINT_SORTED] = A_BOLD | A_UNDERLINE,
        [PAINT_WARN] =
            A_BOLD | (s->colour ? (attr_t)COLOR_PAIR(COLOUR_WARN) : 0),
        [PAINT_BAD] = A_BOLD | (s->colour ? (attr_t)COLOR_PAIR(COLOUR_BAD) : 0),
    };
    struct canvas c;

    if (session_update(s, COLS, LINES) < 0 || canvas_open(&c, COLS, LINES) < 0)
        return -ENOMEM;
    view_draw(&s->view, &c);
    erase();
    for (int y = 0; y < c.rows; y++) {
        const struct canvas_line *l = &c.lines[y];
        attr_t base = l->chosen ? A_REVERSE : A_NORMAL;

        attrset((int)base);
        if (l->chosen)
            mvhline(y, 0, ' ' | base, COLS);
        move(y, 0);
        for (size_t i = 0; i < l->count; i++) {
            size_t from = i ? l->parts[i].from : 0;
            size_t end =
                i + 1 < l->count ? l->parts[i + 1].from : strlen(l->text);

            attrset((int)(base | paints[l->parts[i].paint]));
            addnstr(l->text + from, (int)(end - from));
        }
        attrset(A_NORMAL);
    }
    refresh();
    canvas_close(&c);
    return 0;
}

/* Obey keys, and draw the screen after each, until `end_ns` or until the user
 * quits: then *on is false. Returns 0 or -ENOMEM. */
static int keys_until(struct session *s, uint64_t end_ns, bool *on)
{
    static const struct {
        int curses, key;
    } keys[] = {{KEY_UP, TOP_KEY_UP},       {KEY_DOWN, TOP_KEY_DOWN},
                {KEY_LEFT, TOP_KEY_LEFT},   {KEY_RIGHT, TOP_KEY_RIGHT},
                {KEY_ENTER, TOP_KEY_ENTER}, {'\n', TOP_KEY_ENTER},
                {'\r', TOP_KEY_ENTER}};
    uint64_t now;
    int c;

    while ((now = clock_mono_ns()) < end_ns) {
        enum session_next next = SESSION_GOES_ON;
        int key;

        timeout((int)((end_ns - now) / NS_PER_MS) + 1);
        c = getch();
        if (c == ERR)
            return 0;
        key = c < 0x80 ? c : 0;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (keys[i].curses == c)
                key = keys[i].key;
        if (c != KEY_RESIZE)
            next = session_key(s, key);
        *on = next != SESSION_ENDS;
        if (!*on)
            return 0;
        if (next == SESSION_LOOKS && top_look(s->top, false) < 0)
            return -ENOMEM;
        /* Drop keys typed during a change, which may have taken seconds: the
         * user had not seen its result. */
        if (next == SESSION_LOOKS)
            flushinp();
        if (screen_draw(s) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Restore the terminal if the program exits early (json_needs_memory). */
static void screen_restore(void)
{
    if (!isendwin())
        endwin();
}

int top_screen(struct top *t)
{
    static struct session s;
    const struct options *o = t->o;
    const char *plain = getenv("NO_COLOR");
    struct problem p;
    bool on = true;
    int err = 0;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): mqctl has no threads */
    setlocale(LC_CTYPE, "");
    s.top = t;
    if (gethostname(s.host, sizeof s.host - 1) < 0)
        s.host[0] = '\0';
    if (statedir_root(s.state_dir, o->state_dir, &p) < 0)
        s.state_dir[0] = '\0';
    s.view = (struct view){.host = s.host,
                           .state_dir = s.state_dir,
                           .trouble = t->trouble,
                           .detail = &s.detail,
                           .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                           .note = s.note};
    initscr();
    atexit(screen_restore);
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    s.colour = has_colors() && !(plain && *plain);
    if (s.colour) {
        start_color();
        use_default_colors();
        init_pair(COLOUR_BAD, COLOR_RED, -1);
        init_pair(COLOUR_WARN, COLOR_YELLOW, -1);
    }
    for (uint64_t round = 0; !err && on && (!o->rounds || round < o->rounds);
         round++) {
        uint64_t end = clock_mono_ns() + o->interval_ns;

        if (top_look(t, true) < 0 || screen_draw(&s) < 0 ||
            keys_until(&s, end, &on) < 0)
            err = -ENOMEM;
    }
    endwin();
    free(s.queues);
    free(s.page);
    return err ? complain_memory() : 0;
}
