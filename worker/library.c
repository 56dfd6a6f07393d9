/* library.c - the worker inside another program (see mqworker.h)
 *
 * A worker of the library is the engine of mqworker, with a C function as its
 * handler. Calls from other threads and from signal handlers store their order
 * in an atomic and wake the peeker through an eventfd. The peeker carries the
 * orders out one by one, as it does with signals and requests in mqworker.
 */
#include "worker/mqworker.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/engine.h"
#include "worker/flow/dispatch.h"
#include "worker/handlers/handler.h"
#include "worker/loop/loop.h"
#include "worker/operate/halt.h"
#include "worker/operate/live_settings.h"

enum { ORDER_NONE, ORDER_PAUSE, ORDER_RESUME };

/* c = constant after open   a = atomic */
struct mqw_worker {
    struct settings set;       /* c */
    struct inproc what;        /* c */
    struct engine *engine;     /* c */
    struct loop_source orders; /* c  wakes the peeker for the next three */
    atomic_uint stops;         /* a  calls of mqw_stop not carried out yet */
    atomic_int pause;          /* a  the last of pause and resume */
    atomic_uint cap;           /* a  the last concurrency; 0: none */
    void (*log)(enum mqw_log_level, const char *, size_t, void *); /* c */
    int log_level, log_format;                                     /* c */
    LIST_ENTRY(mqw_worker) logs; /* under logs_mtx */
    /* c  before mqw_open: signal mask of its thread; SIGPIPE, SIGXFSZ */
    sigset_t mask;
    struct sigaction pipe, size;
};

/* ---- orders ---- */

/* Carry out the orders, in the peeker. */
static void orders_ready(struct loop_source *source)
{
    struct mqw_worker *w = CONTAINER_OF(source, struct mqw_worker, orders);
    struct engine *e = w->engine;
    int pause = ORDER_NONE;
    struct problem p;
    uint64_t ignored;
    unsigned cap, stops;

    /* Read first, so that an order given from here on wakes the loop again. */
    (void)!read(source->fd, &ignored, sizeof ignored);
    pause = atomic_exchange(&w->pause, ORDER_NONE);
    if (pause == ORDER_PAUSE)
        pause_begin(&e->pause, PAUSER_PROGRAM, 0, 0);
    else if (pause == ORDER_RESUME)
        (void)pause_end(&e->pause, PAUSER_PROGRAM);
    cap = atomic_exchange(&w->cap, 0);
    if (cap && live_settings_number(&e->orders, "max-concurrency", cap, &p) < 0)
        log_error("cap_not_raised", F_STR("error", p.text));
    for (stops = atomic_exchange(&w->stops, 0); stops > 0; stops--) {
        gate_finish(&e->flow.gate, "mqw_stop", 0);
        stop_worker(&e->stop, 0);
    }
    if (loop_watch(e->flow.loop, source, EPOLLIN) < 0)
        gate_finish(&e->flow.gate, "epoll_ctl", 0);
}

/* Wake the loop. Async-signal-safe, and keeps errno. */
static void worker_wake(struct mqw_worker *w)
{
    int saved = errno;

    (void)eventfd_write(w->orders.fd, 1);
    errno = saved;
}

void mqw_stop(struct mqw_worker *w)
{
    if (!w)
        return;
    atomic_fetch_add(&w->stops, 1);
    worker_wake(w);
}

static void pause_order(struct mqw_worker *w, int order)
{
    if (!w)
        return;
    atomic_store(&w->pause, order);
    worker_wake(w);
}

void mqw_pause(struct mqw_worker *w)
{
    pause_order(w, ORDER_PAUSE);
}

void mqw_resume(struct mqw_worker *w)
{
    pause_order(w, ORDER_RESUME);
}

int mqw_set_concurrency(struct mqw_worker *w, unsigned most)
{
    if (!w || most < 1 || most > CONCURRENCY_MAX)
        return -EINVAL;
    atomic_store(&w->cap, most);
    worker_wake(w);
    return 0;
}

int mqw_set_timeout(struct mqw_worker *w, uint64_t timeout_ns)
{
    return !w ? -EINVAL
              : live_settings_number(&w->engine->orders, "timeout", timeout_ns,
                                     NULL);
}

/* ---- groups ---- */

struct visitor {
    int (*visit)(const struct mqw_queued *queued, void *arg);
    void *arg;
};

static bool visit_queued(const struct group_item *item, void *arg)
{
    struct message *m = item->message;
    const struct visitor *v = arg;
    struct mqw_queued q = {
        .priority = m->priority,
        .size = m->size,
        .received_ns = m->received_ns,
    };

    ulid_print(*message_name(m), q.id);
    return v->visit(&q, v->arg) != 0;
}

int mqw_group_list(struct mqw_worker *w, const char *group, size_t group_size,
                   int (*visit)(const struct mqw_queued *queued, void *arg),
                   void *arg)
{
    struct visitor v = {.visit = visit, .arg = arg};

    return !w ? -EINVAL
              : groups_list(w->engine->flow.groups, group, group_size,
                            visit_queued, &v);
}

int mqw_group_close(struct mqw_worker *w, const char *group, size_t group_size)
{
    return !w ? -EINVAL : dispatch_shut(&w->engine->flow, group, group_size, 0);
}

/* ---- options ---- */

/* Bytes of the first version of mqw_options: no program has fewer. */
#define LEAST_BYTES                               \
    (offsetof(struct mqw_options, problem_size) + \
     sizeof(((struct mqw_options *)0)->problem_size))

/* Return true if the row's value is a number, in both structs. */
static bool row_is_number(const struct option_row *row)
{
    return row->type != OPT_FLAG && row->type != OPT_STRING &&
           row->type != OPT_CALL;
}

static uint64_t *option_number(void *base, size_t offset)
{
    return (uint64_t *)(void *)((char *)base + offset);
}

/* Fill in the defaults, which are those of the program. */
static void options_default(struct mqw_options *o)
{
    struct settings set;

    settings_init(&set);
    *o = (struct mqw_options){.struct_size = sizeof *o,
                              .exit_when_idle = MQW_NEVER,
                              .log_level = MQW_LOG_INFO};
    for (size_t i = 0; i < settings_table.count; i++) {
        const struct option_row *row = &settings_table.rows[i];

        if (row->library && row_is_number(row))
            *option_number(o, row->library - 1) =
                *option_number(&set, row->offset);
    }
}

int mqw_options_init(struct mqw_options *options, size_t size)
{
    struct mqw_options o;

    if (!options || size < LEAST_BYTES || size > sizeof o)
        return -EINVAL;
    options_default(&o);
    o.struct_size = size; /* only the fields that the program knows */
    memcpy(options, &o, size);
    return 0;
}

/* Change each "--run-for" in the text of a problem to "run_for". */
static void fields_name(struct problem *p)
{
    char *to = p->text;

    for (const char *from = p->text; *from;) {
        if (strncmp(from, "--", 2) != 0 || !islower((unsigned char)from[2])) {
            *to++ = *from++;
            continue;
        }
        for (from += 2; islower((unsigned char)*from) || *from == '-'; from++)
            *to++ = *from == '-' ? '_' : *from;
    }
    *to = '\0';
}

static int option_field_read(struct settings *set, const struct option_row *row,
                             const struct mqw_options *o, struct problem *p)
{
    const void *from = (const char *)o + row->library - 1;
    void *into = (char *)set + row->offset;
    const char *text = NULL;
    int err = 0;

    if (row_is_number(row)) {
        uint64_t value = *(const uint64_t *)from;

        /* A field with its default counts as not given. It is not checked,
         * because the default may be "none", which the flag does not take. */
        if (value != *(uint64_t *)into) {
            err = settings_check_number(row, value, p);
            if (row->seen)
                *((bool *)set + row->seen - 1) = true;
        }
        *(uint64_t *)into = value;
    } else if (row->type == OPT_FLAG) {
        *(bool *)into = *(const int *)from != 0;
    } else {
        text = *(const char *const *)from;
    }
    if (text && row->type == OPT_CALL)
        err = option_read(row, text, set, p);
    else if (text) {
        *(const char **)into = strdup(text); /* options_free */
        if (!*(const char **)into)
            err = problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    return err;
}

/* Read all options, with the checks of the flags. A problem names the field. */
static int options_read(struct settings *set, const struct mqw_options *o,
                        struct problem *p)
{
    const char separator[2] = {(char)o->group_separator, '\0'};
    int err;

    settings_init(set);
    if (!o->queue)
        return problem_set(p, EX_USAGE, EINVAL, "no queue: set options.queue");
    /* These fields have other types or values than their flags. */
    set->take_signals = o->take_signals != 0;
    set->allow_disk_custody = o->allow_disk_custody != 0;
    set->exit_when_idle = o->exit_when_idle != MQW_NEVER;
    set->exit_when_idle_ns = set->exit_when_idle ? o->exit_when_idle : 0;
    err = queue_name(o->queue, set->queue, p);
    for (size_t i = 0; i < settings_table.count && !err; i++)
        if (settings_table.rows[i].library)
            err = option_field_read(set, &settings_table.rows[i], o, p);
    if (!err && (o->log_level < MQW_LOG_DEBUG || o->log_level > MQW_LOG_ERROR ||
                 o->log_format < LOG_TEXT || o->log_format > LOG_JSON))
        err = problem_set(p, EX_USAGE, EINVAL,
                          "log_level is 0 to 3, log_format 0 or 1");
    if (!err && (o->group_separator < 0 || o->group_separator > 127))
        err = problem_set(p, EX_USAGE, EINVAL,
                          "group_separator: %d is not one ASCII character",
                          o->group_separator);
    if (!err && o->group_separator)
        err = option_read(settings_row("group-separator"), separator, set, p);
    if (!err)
        err = settings_check(set, p);
    if (err)
        fields_name(p);
    return err;
}

static void options_free(struct settings *set)
{
    for (size_t i = 0; i < settings_table.count; i++) {
        const struct option_row *row = &settings_table.rows[i];

        if (row->library && row->type == OPT_STRING)
            free(*(char **)(void *)((char *)set + row->offset));
    }
}

/* ---- open and close ---- */

/* Give a line of the log to the program. Any thread. */
static void hand_line(enum log_level level, const char *line, size_t size,
                      void *arg)
{
    const struct mqw_worker *w = arg;

    w->log((enum mqw_log_level)level, line, size, w->what.user);
}

/* The workers that are open, the last one first: it has the process's log. */
static pthread_mutex_t logs_mtx = PTHREAD_MUTEX_INITIALIZER; /* for `logs` */
static LIST_HEAD(, mqw_worker) logs = LIST_HEAD_INITIALIZER(logs);

/* Use the log of the worker that was opened last. */
static void log_choose_locked(void)
{
    struct mqw_worker *w = LIST_FIRST(&logs);

    if (!w)
        log_setup(LOG_INFO, LOG_TEXT);
    else
        log_setup((enum log_level)w->log_level, (enum log_format)w->log_format);
    log_divert(w && w->log ? hand_line : NULL, w);
}

/* The worker that takes the process's signals. There is one at most: the kernel
 * gives a signal to one of the descriptors that wait for it, so a signal would
 * stop only one of two workers, and the first to be closed would restore the
 * signal mask that the other still needs. */
static pthread_mutex_t signals_mtx = PTHREAD_MUTEX_INITIALIZER;
static struct mqw_worker *signals_owner; /* NULL: the program */

void mqw_close(struct mqw_worker **worker)
{
    struct mqw_worker *w = worker ? *worker : NULL;

    if (!w)
        return;
    *worker = NULL;
    engine_close(&w->engine);
    if (w->orders.fd >= 0)
        close(w->orders.fd);
    pthread_mutex_lock(&signals_mtx);
    if (signals_owner == w) { /* give the signals back */
        signals_owner = NULL;
        sigaction(SIGPIPE, &w->pipe, NULL);
        sigaction(SIGXFSZ, &w->size, NULL);
        pthread_sigmask(SIG_SETMASK, &w->mask, NULL);
    }
    pthread_mutex_unlock(&signals_mtx);
    pthread_mutex_lock(&logs_mtx);
    LIST_REMOVE(w, logs);
    log_choose_locked(); /* back to an earlier worker's log, or to stderr */
    pthread_mutex_unlock(&logs_mtx);
    options_free(&w->set);
    free(w);
}

/* Open everything that may fail after the options were read. */
static int open_parts(struct mqw_worker *w, const struct mqw_options *o,
                      struct problem *p)
{
    int err = 0;

    w->log = o->log;
    w->log_level = o->log_level;
    w->log_format = o->log_format;
    pthread_mutex_lock(&logs_mtx);
    LIST_INSERT_HEAD(&logs, w, logs);
    log_choose_locked();
    pthread_mutex_unlock(&logs_mtx);
    /* Take the signals that mqworker takes, until mqw_close. */
    pthread_mutex_lock(&signals_mtx);
    if (w->set.take_signals && signals_owner) {
        err = problem_set(p, EX_USAGE, EBUSY,
                          "take_signals: another worker of this process has "
                          "them, and each signal reaches one worker only; "
                          "leave it out, and call mqw_stop for each worker");
    } else if (w->set.take_signals) {
        signals_owner = w;
        pthread_sigmask(SIG_SETMASK, NULL, &w->mask);
        sigaction(SIGPIPE, NULL, &w->pipe);
        sigaction(SIGXFSZ, NULL, &w->size);
        signals_block(false);
    }
    pthread_mutex_unlock(&signals_mtx);
    if (err)
        return err;
    w->orders.ready = orders_ready;
    w->orders.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->orders.fd < 0)
        return problem_set(p, EX_OSERR, errno, "cannot start: eventfd: %s",
                           errno_text(errno));
    err = engine_open(&w->engine, &w->set, &handler_inproc, p);
    if (err)
        return err;
    err = loop_watch(w->engine->flow.loop, &w->orders, EPOLLIN);
    return err ? problem_set(p, EX_OSERR, -err, "cannot start: epoll_ctl: %s",
                             errno_text(-err))
               : 0;
}

static void problem_copy(const struct mqw_options *o, const struct problem *p)
{
    if (o->problem && o->problem_size > 0)
        strlcpy(o->problem, p->text, o->problem_size);
}

int mqw_open(struct mqw_worker **out, const struct mqw_options *options,
             mqw_handler *handler, void *user)
{
    struct mqw_worker *w = out ? calloc(1, sizeof *w) : NULL;
    size_t size = options ? options->struct_size : 0;
    struct mqw_options o;
    struct problem p = {0};
    int err;

    if (!out)
        return -EINVAL;
    *out = NULL;
    if (!w)
        return -ENOMEM;
    w->orders.fd = -1;
    /* The program may know fewer fields: the others keep their defaults. */
    options_default(&o);
    if (size < LEAST_BYTES || size > sizeof o) {
        err = problem_set(&p, EX_USAGE, EINVAL,
                          "the options have %zu bytes, this library knows "
                          "%zu: call mqw_options_init first; it fails where "
                          "the library is older than the program",
                          size, sizeof o);
    } else {
        memcpy(&o, options, size);
        if (o.retry_for == 0) /* how older programs say "no limit" */
            o.retry_for = MQW_NEVER;
        err = options_read(&w->set, &o, &p);
    }
    if (!err && !handler)
        err = problem_set(&p, EX_USAGE, EINVAL, "no handler");
    if (err) {
        problem_copy(&o, &p);
        options_free(&w->set);
        free(w);
        return err;
    }
    w->what = (struct inproc){
        .handle = handler, .settled = o.settled, .user = user, .worker = w};
    w->set.inproc = &w->what;
    err = open_parts(w, &o, &p);
    if (err) {
        problem_copy(&o, &p);
        mqw_close(&w);
    }
    *out = w;
    return err;
}

int mqw_work(struct mqw_worker *w)
{
    return !w ? -EINVAL : engine_run(w->engine);
}

int mqw_run(const struct mqw_options *options, mqw_handler *handler, void *user)
{
    struct mqw_worker *w;
    int status = mqw_open(&w, options, handler, user);

    if (status)
        return status;
    status = mqw_work(w);
    mqw_close(&w);
    return status;
}
