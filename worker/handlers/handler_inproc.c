/* handler_inproc.c - a C function as handler: of a program, or of a shared
 * object (see handler.h, docs/library.md)
 *
 * Each work item has a place, with a timer for the time limit
 * (call_deadline.h). If the function returns in time, the returned value is the
 * verdict; otherwise the verdict is the timeout. The function runs on the
 * thread of its work item.
 *
 * A shared object is never unloaded: threads of the pool may still run
 * destructors of its thread-specific data.
 */
#include "worker/handlers/handler.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/config/settings.h"
#include "worker/handlers/call_deadline.h"
#include "worker/loop/timers.h"
#include "worker/rules/verdict.h"

struct mqw_context {
    struct handler *handler;
    struct outcome *out;
};

/* A call of the C function. It is part of a place; inproc_settled has one on
 * its stack. */
struct call {
    char id[ULID_TEXT];         /* "" until mqw_id */
    struct mqw_message message; /* argument of the function */
    struct mqw_context context;
    const struct delivery *d;
    struct timer abort; /* for --timeout-abort; started at the limit */
    uint64_t limit_ns;  /* UINT64_MAX: none */
    unsigned given;     /* fields_given of the previous message; 0: none */
    atomic_bool late;   /* the limit has passed */
};

/* The calls of one work item, one at a time. The parts that are the same for
 * all of its calls are filled in once. */
struct place {
    struct call_deadline deadline;
    struct call call;
};

/* c = constant after open   a = atomic */
struct handler {
    struct inproc what;         /* c */
    const struct settings *set; /* c */
    struct timers *timers;      /* c */
    atomic_int signal;          /* a  sent by stop; 0: none yet */
    /* One for each number of a work item, initialized at its first call. Places
     * stay mapped, so that seize may read one whose call has ended. */
    struct place *places; /* in `memory` */
    void *memory;
};

static const struct call *call_of(const struct mqw_message *message)
{
    return CONTAINER_OF(message, const struct call, message);
}

/* ---- what a handler may call ---- */

const char *mqw_id(const struct mqw_message *message)
{
    struct call *c = (struct call *)call_of(message);

    return c->id[0] ? c->id : ulid_print(*message_name(c->d->message), c->id);
}

const char *mqw_header(const struct mqw_message *message, const char *name,
                       size_t *size)
{
    const struct delivery *d = call_of(message)->d;
    struct header_text key, value;
    size_t cursor = 0, want = strlen(name);

    if (d->header.x_count == 0 && strncmp(name, "x-", 2) == 0)
        return NULL;
    while (header_next(d->message->data, &d->header, &cursor, &key, &value)) {
        if (key.size == want && memcmp(key.at, name, want) == 0) {
            *size = value.size;
            return value.at;
        }
    }
    return NULL;
}

int mqw_cancelled(const struct mqw_message *message)
{
    const struct call *c = call_of(message);

    return atomic_load_explicit(&c->late, memory_order_relaxed) ||
           atomic_load_explicit(&c->context.handler->signal,
                                memory_order_relaxed);
}

void *mqw_user(const struct mqw_context *context)
{
    return context->handler->what.user;
}

struct mqw_worker *mqw_worker_of(const struct mqw_context *context)
{
    return context->handler->what.worker;
}

void mqw_set_delay(struct mqw_context *context, uint64_t delay_ns)
{
    context->out->delayed = true;
    context->out->delay_ns = delay_ns;
}

void mqw_set_reason(struct mqw_context *context, const char *text)
{
    strlcpy(context->out->error, text, sizeof context->out->error);
    context->out->said = text[0] != '\0';
}

/* ---- a call ---- */

/* Fill in the parts that are the same for all messages. */
static void call_init(struct call *c, struct handler *h)
{
    c->message = (struct mqw_message){.queue = h->set->queue};
    c->context.handler = h;
    c->given = UINT_MAX;
    atomic_init(&c->late, false);
}

/* Return the flags and header fields that the message has, apart from its
 * group; 0 for most messages. */
static inline unsigned fields_given(const struct delivery *d)
{
    return (d->header.fields & ~(unsigned)HEADER_GROUP) | d->message->flags;
}

/* Fill in what depends on the optional flags and header fields, or restore
 * their defaults after a message that had some. */
__attribute__((noinline)) static void
optional_fields_fill(struct call *c, const struct delivery *d)
{
    struct mqw_message *to = &c->message;
    unsigned flags = d->message->flags;

    to->sent_ns = d->header.fields & HEADER_SENT ? d->header.sent_ns : 0;
    to->max_attempts = (uint32_t)delivery_max_attempts(d, to->max_attempts);
    to->redelivered = (flags & MESSAGE_REDELIVERED) != 0;
    to->length_inferred = (flags & MESSAGE_LENGTH_INFERRED) != 0;
    c->limit_ns = delivery_limit_ns(d, c->limit_ns);
    c->given = fields_given(d);
}

/* Fill in the message as the function sees it. */
static inline void view_fill(struct call *c, const struct handler *h,
                             const struct delivery *d)
{
    struct mqw_message *to = &c->message;
    const struct message *m = d->message;
    const struct settings *set = h->set;

    /* Both settings may change while the worker runs. */
    to->max_attempts = (uint32_t)set->max_attempts;
    c->limit_ns = set->timeout_ns;
    to->body = d->body;
    to->size = d->body_size;
    to->group = d->group.at;
    to->group_size = d->group.size;
    to->received_ns = m->received_ns;
    to->priority = m->priority;
    to->attempt = m->failures + 1;
    if (fields_given(d) | c->given)
        optional_fields_fill(c, d);
    c->d = d;
    c->id[0] = '\0';
}

/* Abort the process, because the function still runs --kill-after past its
 * limit. Called in the peeker. Custody keeps the message. */
static void end_process(struct timer *timer)
{
    const struct call *c = CONTAINER_OF(timer, struct call, abort);
    char id[ULID_TEXT];

    log_error("handler_abort",
              F_STR("msg", ulid_print(*message_name(c->d->message), id)),
              F_DURATION("limit", c->limit_ns),
              F_STR("next", "the process aborts; the next one runs the message "
                            "again and counts the crash"));
    log_flush();
    abort();
}

/* Handle a time limit that has passed, in the peeker. While the worker stops
 * its handlers, a longer run is not a failure of the handler. */
static void call_expire(void *call)
{
    struct call *c = call;
    struct handler *h = c->context.handler;
    char id[ULID_TEXT];

    if (atomic_load(&h->signal))
        return;
    atomic_store(&c->late, true);
    log_info("handler_timeout",
             F_STR("msg", ulid_print(*message_name(c->d->message), id)),
             F_DURATION("limit", c->limit_ns),
             F_STR("next", "mqw_cancelled is true from now on: the function "
                           "should return"));
    if (!h->set->timeout_abort)
        return;
    timer_init(&c->abort, end_process);
    timers_start_after(h->timers, &c->abort, h->set->kill_after_ns);
}

/* Initialize a place at its first call. Not inline, so that the usual path has
 * a small frame. */
__attribute__((noinline)) static void place_init(struct place *place,
                                                 struct handler *h)
{
    call_init(&place->call, h);
    call_deadline_init(&place->deadline, h->timers, call_expire, &place->call);
}

/* Judge a call that was late, or returned anything but MQW_DONE. Not inline, so
 * that the usual path has a small frame. */
__attribute__((noinline)) static void
call_ended(struct place *place, int returned, bool late, struct outcome *out)
{
    struct call *c = &place->call;
    struct handler *h = c->context.handler;

    if (late && atomic_load(&c->late)) {
        if (h->set->timeout_abort)
            timers_cancel_sync(h->timers, &c->abort);
        log_info("handler_late", F_STR("msg", mqw_id(&c->message)),
                 F_INT("returned", returned), F_DURATION("limit", c->limit_ns));
        verdict_timeout(out, c->limit_ns);
        out->delayed = out->said = false;
        atomic_store(&c->late, false);
        return;
    }
    out->verdict = (enum mqw_verdict)returned;
    if (returned == MQW_DONE)
        return;
    if (returned < MQW_DONE || returned >= VERDICT_COUNT) {
        snprintf(out->error, sizeof out->error,
                 "returned %d, which is no verdict", returned);
        out->said = false;
        out->verdict = MQW_RETRY;
    } else if (!out->error[0] && verdict_rules[returned].explains) {
        snprintf(out->error, sizeof out->error, "returned %s",
                 verdict_rules[returned].name);
    }
    if (out->verdict == MQW_RETRY && atomic_load(&h->signal))
        out->kind = OUTCOME_STOPPED;
}

static void inproc_run(struct handler *h, struct delivery *d,
                       struct outcome *out)
{
    struct place *place = &h->places[d->place];
    struct call *c = &place->call;
    int returned;
    bool late;

    if (__builtin_expect(!place->deadline.timers, 0))
        place_init(place, h);
    view_fill(c, h, d);
    c->context.out = out;
    outcome_begin(out);
    call_deadline_enter(&place->deadline, d->message,
                        ns_add(d->begun_ns, c->limit_ns));
    returned = h->what.handle(&c->message, &c->context);
    late = call_deadline_leave(&place->deadline);
    if (late || returned != MQW_DONE)
        call_ended(place, returned, late, out);
}

static bool inproc_wants_settled(const struct handler *h)
{
    return h->what.settled != NULL;
}

static void inproc_settled(struct handler *h, const struct settlement *s)
{
    struct delivery d;
    struct call c;

    delivery_parse(&d, s->message, 0);
    call_init(&c, h);
    view_fill(&c, h, &d);
    if (s->group.at) {
        c.message.group = s->group.at;
        c.message.group_size = s->group.size;
    }
    h->what.settled(&c.message, s->verdict, s->took_ns, h->what.user);
}

/* Take the messages away from the running calls, because a thread cannot be
 * killed. The verdicts of these calls are ignored. A crash in here counts as a
 * crash of the message. A call that ends before this is settled as usual. */
static unsigned inproc_seize(struct handler *h)
{
    unsigned taken = 0;

    for (size_t i = 0; i < ITEMS_MAX; i++) {
        struct message *m = call_deadline_seize(&h->places[i].deadline);

        if (m)
            m->ops->unrun(m, true);
        taken += call_deadline_seized(&h->places[i].deadline);
    }
    return taken;
}

static void inproc_stop(struct handler *h, int sig)
{
    atomic_store(&h->signal, sig);
}

/* Open a handler that calls settings.inproc; plugin_open sets `what` itself. */
static int inproc_open(struct handler **out, const struct handler_setup *setup,
                       struct problem *p)
{
    const size_t align = _Alignof(struct place);
    struct handler *h = calloc(1, sizeof *h);

    *out = NULL;
    if (h)
        h->memory = calloc(1, ITEMS_MAX * sizeof *h->places + align);
    if (h && !h->memory) {
        free(h);
        h = NULL;
    }
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->places = (void *)(((uintptr_t)h->memory + align - 1) / align * align);
    if (setup->settings->inproc)
        h->what = *setup->settings->inproc;
    h->set = setup->settings;
    h->timers = setup->timers;
    *out = h;
    return 0;
}

static void inproc_close(struct handler **handler)
{
    struct handler *h = *handler;

    if (!h)
        return;
    *handler = NULL;
    if (h->what.fini)
        h->what.fini(h->what.user);
    for (size_t i = 0; i < ITEMS_MAX; i++)
        if (h->places[i].deadline.timers)
            call_deadline_fini(&h->places[i].deadline);
    free(h->memory);
    free(h);
}

const struct handler_ops handler_inproc = {
    .name = "in-process",
    .within = true,
    .guess_ns = NS_PER_US,
    .open = inproc_open,
    .run = inproc_run,
    .stop = inproc_stop,
    .close = inproc_close,
    .settled = inproc_settled,
    .wants_settled = inproc_wants_settled,
};

/* ---- a plugin ---- */

/* Store the address of a symbol of the object, or of a library that it needs,
 * in the function pointer `into`; NULL: there is none. POSIX lets the pointer
 * that dlsym(3) returns be read as a pointer to a function. */
static void symbol_find(void *object, const char *name, void *into)
{
    void *at = dlsym(object, name);

    memcpy(into, &at, sizeof at);
}

static int plugin_refuse(struct problem *p, const char *file, const char *what)
{
    return problem_set(p, EX_USAGE, EINVAL, "--plugin %s: %s", file, what);
}

/* Load the shared object, unless it is loaded already, check its version before
 * calling anything in it, and find its functions. */
static int plugin_load(const struct settings *set, void **object,
                       struct inproc *what, struct problem *p)
{
    const char *file = set->plugin;
    char path[PATH_MAX], text[512];
    const unsigned *abi;
    struct stat st;
    bool exports = dlsym(RTLD_DEFAULT, "mqw_id") != NULL;
    /* With a slash in the name, dlopen searches no other folder. */
    int n = snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./",
                     file);

    if (n < 0 || (size_t)n >= sizeof path)
        return plugin_refuse(p, file, "the path is too long");
    /* dlopen would wait for ever at a named pipe. */
    if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size == 0))
        return plugin_refuse(
            p, file, "is not a shared object; build one with cc -shared -fPIC");
    *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*object) {
        snprintf(text, sizeof text, "cannot be loaded: %s; %s%.200s%s",
                 dlerror(), exports ? "ldd -r " : "", exports ? path : "",
                 exports ? " shows what it lacks, cc -shared -fPIC builds one"
                         : "plugins find no mqw_ functions in this program, "
                           "because it is linked statically or without "
                           "-rdynamic; run one with shared libraries and "
                           "-rdynamic");
        return plugin_refuse(p, file, text);
    }
    abi = dlsym(*object, "mqw_abi");
    if (!abi)
        return plugin_refuse(p, file,
                             "it has no mqw_abi, so it is not a plugin: "
                             "include mqworker.h where mqw_handle is defined");
    if (*abi != MQW_ABI) {
        snprintf(text, sizeof text,
                 "it was compiled for version %u of the plugin interface, this "
                 "mqworker has version %d: compile it with this mqworker.h",
                 *abi, MQW_ABI);
        return plugin_refuse(p, file, text);
    }
    symbol_find(*object, "mqw_handle", &what->handle);
    symbol_find(*object, "mqw_settled", &what->settled);
    symbol_find(*object, "mqw_fini", &what->fini);
    return what->handle
               ? 0
               : plugin_refuse(p, file,
                               "the plugin has no function mqw_handle; in C++ "
                               "declare it extern \"C\", as in mqworker.h");
}

static int plugin_check(const struct settings *set, struct problem *p)
{
    struct inproc what = {0};
    void *object;

    return plugin_load(set, &object, &what, p);
}

static int plugin_open(struct handler **out, const struct handler_setup *setup,
                       struct problem *p)
{
    const struct settings *set = setup->settings;
    char meaning[128] = "", arg[256] = "without --plugin-arg";
    int (*init)(const char *arg, void **user) = NULL;
    struct inproc what = {0};
    void *object = NULL;
    int err, status;

    *out = NULL;
    err = plugin_load(set, &object, &what, p);
    if (err)
        return err;
    symbol_find(object, "mqw_init", &init);
    status = init ? init(set->plugin_arg, &what.user) : 0;
    if (status == 0) {
        err = inproc_open(out, setup, p);
        if (!err)
            (*out)->what = what;
        return err;
    }
    if (status < 0 && status > -4096) /* the range of errno in Linux */
        snprintf(meaning, sizeof meaning, " (%s)", errno_text(-status));
    if (set->plugin_arg)
        snprintf(arg, sizeof arg, "with --plugin-arg \"%s\"", set->plugin_arg);
    return problem_set(p, EX_UNAVAILABLE, ECANCELED,
                       "--plugin %s: its mqw_init returned %d%s %s; see what "
                       "the plugin asks for",
                       set->plugin, status, meaning, arg);
}

const struct handler_ops handler_plugin = {
    .name = "plugin",
    .within = true,
    .guess_ns = NS_PER_US,
    .check = plugin_check,
    .open = plugin_open,
    .run = inproc_run,
    .stop = inproc_stop,
    .seize = inproc_seize,
    .close = inproc_close,
    .settled = inproc_settled,
    .wants_settled = inproc_wants_settled,
};
