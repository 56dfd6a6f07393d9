/* handler_inproc.c - a C function as handler (see handler_inproc.h)
 *
 * The time limit is the place's (call_deadline.h). Its answer is asked for
 * once, when the function has returned: in time, and what it returned is the
 * verdict; or too late, and the verdict is the timeout.
 */
#include "worker/config/settings.h"
#include "worker/handlers/handler_inproc.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/handlers/call_deadline.h"
#include "worker/loop/timers.h"
#include "worker/rules/verdict.h"

struct mqw_context {
    struct handler *handler;
    struct outcome *out;
};

/* A call; that of the place, or on the stack of its thread. */
struct call {
    char id[ULID_TEXT];         /* "" until somebody asks */
    struct mqw_message message; /* what the function is given */
    struct mqw_context context;
    const struct delivery *d;
    struct timer abort; /* after the limit, if it is wanted */
    uint64_t limit_ns;  /* UINT64_MAX: none */
    unsigned said;      /* not 0: view_said is to write the message again */
    atomic_bool late;   /* the limit has passed */
};

/* Where a work item calls: one call at a time. The parts that are the same for
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
    /* By the number of the work item; each made at its first call. A slot stays
     * mapped, so that stop may look at one whose call has ended. */
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

/* What is the same for all messages */
static void call_init(struct call *c, struct handler *h)
{
    c->message = (struct mqw_message){.queue = h->set->queue};
    c->context.handler = h;
    c->said = UINT_MAX;
    atomic_init(&c->late, false);
}

/* Whether it says more of itself than its group; not 0: it does */
static inline unsigned fields_said(const struct delivery *d)
{
    return (d->header.fields & ~(unsigned)HEADER_GROUP) | d->message->flags;
}

/* What its flags and its header's fields say, or those of the one
 * before said */
__attribute__((noinline)) static void view_said(struct call *c,
                                                const struct delivery *d)
{
    struct mqw_message *to = &c->message;
    unsigned flags = d->message->flags;

    to->sent_ns = d->header.fields & HEADER_SENT ? d->header.sent_ns : 0;
    to->max_attempts = (uint32_t)delivery_max_attempts(d, to->max_attempts);
    to->redelivered = (flags & MESSAGE_REDELIVERED) != 0;
    to->length_inferred = (flags & MESSAGE_LENGTH_INFERRED) != 0;
    c->limit_ns = delivery_limit_ns(d, c->limit_ns);
    c->said = fields_said(d);
}

/* The message as the function sees it; most say nothing, or name their
 * group only */
static inline void view_fill(struct call *c, const struct handler *h,
                             const struct delivery *d)
{
    struct mqw_message *to = &c->message;
    const struct message *m = d->message;
    const struct settings *set = h->set; /* these two may change meanwhile */

    to->max_attempts = (uint32_t)set->max_attempts;
    c->limit_ns = set->timeout_ns;
    to->body = d->body;
    to->size = d->body_size;
    to->group = d->group.at;
    to->group_size = d->group.size;
    to->received_ns = m->received_ns;
    to->priority = m->priority;
    to->attempt = m->failures + 1;
    if (fields_said(d) | c->said)
        view_said(c, d);
    c->d = d;
    c->id[0] = '\0';
}

/* It had its time; custody brings the message back */
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

/* The time limit came before the end
 * The worker's own stop, if it came first, is no failure of the handler.
 */
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
             F_STR("next", "it sees mqw_cancelled"));
    if (!h->set->timeout_abort)
        return;
    timer_init(&c->abort, end_process);
    timers_start_after(h->timers, &c->abort, h->set->kill_after_ns);
}

/* The time limit came first */
static void judge_late(const struct call *c, int returned, struct outcome *out)
{
    log_info("handler_late", F_STR("msg", mqw_id(&c->message)),
             F_INT("returned", returned), F_DURATION("limit", c->limit_ns));
    verdict_timeout(out, c->limit_ns);
    out->delayed = out->said = false;
}

/* What it returned, which is not just DONE */
__attribute__((noinline)) static void
return_judge(const struct call *c, int returned, struct outcome *out)
{
    struct handler *h = c->context.handler;

    out->verdict = (enum mqw_verdict)returned;
    if (returned == MQW_DONE)
        return;
    if (returned < MQW_DONE || returned >= VERDICT_COUNT) {
        snprintf(out->error, sizeof out->error, "returned %d, no verdict",
                 returned);
        out->said = false;
        out->verdict = MQW_RETRY;
    } else if (!out->error[0] && verdict_rules[returned].explains) {
        snprintf(out->error, sizeof out->error, "returned %s",
                 verdict_rules[returned].name);
    }
    if (out->verdict == MQW_RETRY && atomic_load(&h->signal))
        out->kind = OUTCOME_STOPPED;
}

/* Its first call; not inline, for the reason that ended has */
__attribute__((noinline)) static void place_init(struct place *place,
                                                 struct handler *h)
{
    call_init(&place->call, h);
    call_deadline_init(&place->deadline, h->timers, call_expire, &place->call);
}

/* The limit came before the end of the call; unless the worker's own
 * stop did, that is a timeout */
__attribute__((noinline)) static void too_late(struct call *c, int returned,
                                               struct outcome *out)
{
    struct handler *h = c->context.handler;

    if (!atomic_load(&c->late)) {
        return_judge(c, returned, out);
        return;
    }
    if (h->set->timeout_abort)
        timers_cancel_sync(h->timers, &c->abort);
    judge_late(c, returned, out);
    atomic_store(&c->late, false);
}

/* A call that was late, or did not return just DONE; not inline, as the
 * usual way has a small frame */
__attribute__((noinline)) static void
call_ended(struct place *place, int returned, bool late, struct outcome *out)
{
    if (late)
        too_late(&place->call, returned, out);
    else
        return_judge(&place->call, returned, out);
}

/* One message, one call */
void inproc_run(struct handler *h, struct delivery *d, struct outcome *out)
{
    struct place *place = &h->places[d->place];
    struct call *c = &place->call;
    int returned;
    bool late;

    if (__builtin_expect(!place->deadline.timers, 0))
        place_init(place, h);
    view_fill(c, h, d);
    c->context.out = out;
    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_DONE;
    out->ran = true;
    out->said = false;
    out->delayed = false;
    out->error[0] = '\0';
    out->tail_size = 0;
    call_deadline_enter(&place->deadline, d->message,
                        ns_add(d->begun_ns, c->limit_ns));
    returned = h->what.handle(&c->message, &c->context);
    late = call_deadline_leave(&place->deadline);
    if (late || returned != MQW_DONE)
        call_ended(place, returned, late, out);
}

bool inproc_hears(const struct handler *h)
{
    return h->what.settled != NULL;
}

/* A verdict is durable */
void inproc_settled(struct handler *h, const struct settlement *s)
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

/* A thread cannot be killed, but what it returns can be ignored
 * A crash in here counts as one. A call that ends first settles as always.
 */
unsigned inproc_seize(struct handler *h)
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

void inproc_stop(struct handler *h, int sig)
{
    atomic_store(&h->signal, sig);
}

int inproc_open(struct handler **out, const struct handler_setup *setup,
                const struct inproc *what, struct problem *p)
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
    h->what = *what;
    h->set = setup->settings;
    h->timers = setup->timers;
    *out = h;
    return 0;
}

void inproc_close(struct handler **handler)
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

static int embedded_open(struct handler **out,
                         const struct handler_setup *setup, struct problem *p)
{
    return inproc_open(out, setup, setup->settings->inproc, p);
}

const struct handler_ops handler_inproc = {
    .name = "in-process",
    .within = true,
    .guess_ns = NS_PER_US,
    .open = embedded_open,
    .run = inproc_run,
    .stop = inproc_stop,
    .close = inproc_close,
    .settled = inproc_settled,
    .hears = inproc_hears,
};
