/* broker.c - dead letters of a queue on a broker (see broker.h)
 *
 * To look at a letter is to be given it: the broker counts that as a delivery,
 * and where a queue has a limit of them, drops what was looked at too often. So
 * a letter that was given REFRESH times is published again, with all that it
 * says, and counts from 0 again.
 */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/amqp/letter_envelope.h"
#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/text/complain.h"

#define MOST    50000 /* letters that are looked at: memory, and prefetch */
#define REFRESH 8     /* below the 20 of RabbitMQ 4 */
#define WAIT_NS (30 * NS_PER_S) /* for a confirm */
#define FREE_NS (10 * NS_PER_S) /* for one who just looked to be gone */
#define NAP_NS  (20 * NS_PER_MS)

/* ---- held letters ---- */

struct held *held_at(struct broker *b, int64_t row)
{
    if (row < 1 || (uint64_t)row > b->count || b->held[row - 1].gone)
        return NULL;
    return &b->held[row - 1];
}

void *held_properties(struct broker *b, const struct held *h)
{
    void *raw = malloc(h->size + 1);

    if (!raw || fseek(b->properties, h->at, SEEK_SET) != 0 ||
        fread(raw, 1, h->size, b->properties) != h->size) {
        free(raw);
        return NULL;
    }
    return raw;
}

/* ack - one delivery, and no other; `gone` where it was sent */
static int ack(struct broker *b, uint64_t tag, bool *gone)
{
    int err =
        link_status(b->link, amqp_basic_ack(b->link->c, LINK_CHANNEL, tag, 0));

    *gone = !err;
    return err;
}

/* held_ack - its copies first: should we be killed in between, the letter is
 * there, and what was sent of it has its number */
int held_ack(struct broker *b, struct held *h)
{
    size_t at = (size_t)(h - b->held);
    int err = 0;

    for (size_t i = 0; i < b->copy_count && !err; i++)
        if (b->copies[i].of == at && !b->copies[i].gone)
            err = ack(b, b->copies[i].tag, &b->copies[i].gone);
    return err ? err : ack(b, h->tag, &h->gone);
}

int held_heard(struct broker *b)
{
    uint32_t messages, consumers;

    return topology_count(b->link, b->dead, &messages, &consumers);
}

int held_tend(struct broker *b)
{
    amqp_frame_t f;
    int n;

    while ((n = link_frame(b->link, &f)) == YES)
        if (f.frame_type == AMQP_FRAME_METHOD && f.channel == LINK_CHANNEL &&
            link_closed_by(b->link, &f.payload.method))
            return -ECONNRESET;
    link_tidy(b->link);
    return n;
}

static bool stop(void)
{
    return cli_interrupt_seen() != 0;
}

static bool never(void)
{
    return false;
}

int held_publisher(struct broker *b, uint64_t wait_ns, struct problem *p)
{
    const struct publisher_setup setup = {.link = b->setup,
                                          .topology = b->topology,
                                          .wait_ns = wait_ns,
                                          .stop = cli_interrupt_seen() ? never
                                                                       : stop};

    return b->publisher ? 0 : publisher_open(&b->publisher, &setup, p);
}

int held_publish(struct broker *b, const char *queue,
                 const amqp_basic_properties_t *properties, const void *body,
                 size_t size, uint64_t wait_ns, struct problem *p)
{
    int err = held_publisher(b, wait_ns, p);

    if (err)
        return err;
    err = publisher_put(b->publisher,
                        &(struct publication){.queue = queue,
                                              .id = "",
                                              .properties = properties,
                                              .body = body,
                                              .size = size},
                        p);
    if (!err)
        err = publisher_flush(b->publisher, p);
    if (err) /* it is not sent again behind our back */
        publisher_close(&b->publisher);
    return err;
}

const char *broker_machine(void *arg, int64_t row, unsigned n)
{
    struct broker *b = arg;
    struct letter_envelope l;
    struct held *h = held_at(b, row);
    void *raw = h ? held_properties(b, h) : NULL;

    b->machine[0] = '\0';
    if (raw && letter_envelope_read(&l, (amqp_bytes_t){h->size, raw}) == 0) {
        if (n >= 1 && n <= l.attempt_count) {
            amqp_bytes_t from = l.attempts[n - 1].machine;

            if (from.len < sizeof b->machine && from.len > 0) {
                memcpy(b->machine, from.bytes, from.len);
                b->machine[from.len] = '\0';
            }
        }
        letter_envelope_free(&l);
    }
    free(raw);
    return b->machine[0] ? b->machine : NULL;
}

int64_t broker_discard(struct context *ctx, const int64_t *rows, size_t n)
{
    struct broker *b = ctx->broker;
    int64_t gone = 0;

    for (size_t i = 0; i < n; i++) {
        struct held *h = held_at(b, rows[i]);
        int err = h ? held_ack(b, h) : 0;

        if (err)
            return err;
        gone += h != NULL;
    }
    return gone;
}

/* ---- opening ---- */

/* store_make - one without a name: nothing of a letter stays here */
static int store_make(struct context *ctx)
{
    const char *tmp = getenv("TMPDIR");
    static const char *const files[] = {"/s", "/s-wal", "/s-shm"};
    char dir[200], path[220];
    struct problem p = {0};
    int err;

    snprintf(dir, sizeof dir, "%.150s/mqdlq-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return complain(EX_CANTCREAT, "no folder for copies, %s: %s", dir,
                        errno_text(errno));
    snprintf(path, sizeof path, "%s/s", dir);
    err = store_open(&ctx->store, path, true, &p);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s%s", dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
    return err ? complain_of(&p) : 0;
}

/* letters_count - in NAME.dead, as soon as nobody else has them; -ENOENT: there
 * is no such queue */
static int letters_count(struct broker *b, uint32_t *count)
{
    const struct timespec nap = {.tv_nsec = (long)NAP_NS};
    uint64_t end = clock_mono_ns() + FREE_NS;
    uint32_t consumers;
    int err;

    for (;;) {
        err = topology_count(b->link, b->dead, count, &consumers);
        if (err == -EPROTO && b->link->code == AMQP_NOT_FOUND)
            return -ENOENT;
        if (err || consumers == 0)
            return err;
        if (clock_mono_ns() >= end || cli_interrupt_seen())
            return -EBUSY;
        nanosleep(&nap, NULL);
    }
}

/* count_failed - an exit status */
static int count_failed(struct context *ctx, int err)
{
    const struct broker *b = ctx->broker;

    if (err == -ENOENT && ctx->o->line.verb == VERB_IMPORT)
        return complain(EX_NOINPUT,
                        "virtual host %s has no queue %s yet: start a worker "
                        "of %s, which makes it, and import then",
                        b->operand.vhost, b->dead, ctx->queue);
    if (err == -ENOENT)
        return complain(0,
                        "no dead letters of %s: virtual host %s has no queue "
                        "%s yet, which its worker makes",
                        ctx->queue, b->operand.vhost, b->dead);
    if (err == -EBUSY)
        return held_busy(b);
    if (b->link->code == AMQP_ACCESS_REFUSED)
        return complain(EX_NOPERM,
                        "user %s may not read %s: %s; rabbitmqctl "
                        "set_permissions",
                        b->operand.user, b->dead, b->link->why);
    return complain(EX_UNAVAILABLE, "cannot look at %s: %s", b->dead,
                    b->link->why);
}

static int connect_to(struct context *ctx, struct problem *p)
{
    const struct options *o = ctx->o;
    struct broker *b = ctx->broker;
    int err = broker_operand_parse(&b->operand, o->line.operands[0], p);

    if (!err)
        err = broker_password_find(b->password, &b->operand,
                                   o->access.password_file, p);
    if (err)
        return err;
    (void)strlcpy(ctx->queue, b->operand.shown, sizeof ctx->queue);
    b->topology =
        (struct topology){.operand = &b->operand,
                          .no_create = true,
                          .partitions = (unsigned)o->access.partitions};
    topology_dead(&b->topology, b->dead);
    b->to = b->operand;
    b->setup = (struct link_setup){.operand = &b->to,
                                   .password = b->password,
                                   .tls = o->access.tls,
                                   .name = "mqdlq"};
    return link_open(&b->link, &b->setup, 0, p);
}

int broker_open(struct context *ctx)
{
    struct problem p = {0};
    uint32_t count = 0;
    struct broker *b;
    int err, status;

    ctx->broker = b = calloc(1, sizeof *b);
    if (!b)
        return complain_memory();
    b->properties = tmpfile();
    if (!b->properties)
        return complain(EX_CANTCREAT, "no file for copies: %s",
                        errno_text(errno));
    cli_interrupt_catch();
    if (connect_to(ctx, &p) < 0)
        return complain_of(&p);
    err = letters_count(b, &count);
    if (err)
        return count_failed(ctx, err);
    if (count > MOST && !ctx->o->quiet)
        complain(0,
                 "%s has %" PRIu32 " letters: these are the first %d of them",
                 b->dead, count, MOST);
    b->beyond = count > MOST ? count - MOST : 0;
    status = store_make(ctx);
    if (status)
        return status;
    return count == 0 && ctx->o->line.verb == VERB_IMPORT
               ? held_claim(b)
               : held_look(b, ctx->store, count < MOST ? count : MOST);
}

/* ---- closing ---- */

static int body_copy(const struct letter *l, void *arg)
{
    amqp_bytes_t *out = arg;

    out->bytes = malloc(l->body_size + 1);
    if (!out->bytes)
        return -ENOMEM;
    memcpy(out->bytes, l->body, l->body_size);
    out->len = l->body_size;
    return 0;
}

/* refresh - a letter that was looked at often is published again
 * Crash before the acknowledgement: it is there twice, and has a line or a time
 * by which both are taken for one (known_first), or else is listed twice. So
 * this can repeat one, never lose one.
 */
static int refresh(struct context *ctx, int64_t row, struct problem *p)
{
    struct broker *b = ctx->broker;
    struct held *h = held_at(b, row);
    struct envelope_copy copy;
    amqp_bytes_t body = {0, NULL};
    void *raw = h ? held_properties(b, h) : NULL;
    int err = raw ? letters_get(ctx->store, row, body_copy, &body) : -EIO;

    if (!err)
        err = letter_envelope_same(&copy, (amqp_bytes_t){h->size, raw});
    if (!err) {
        err = held_publish(b, b->dead, &copy.properties, body.bytes, body.len,
                           WAIT_NS, p);
        envelope_copy_free(&copy);
        FAULT_POINT("letter_refreshed");
        if (!err)
            err = held_ack(b, h);
    }
    free(body.bytes);
    free(raw);
    return err;
}

/* refresh_some - those that need it, while it works: failing to does no harm
 * yet, and the next look tries again */
static size_t refresh_some(struct context *ctx)
{
    struct broker *b = ctx->broker;
    struct problem p = {0};
    size_t n = 0;
    int err = 0;

    for (size_t i = 0; i < b->count && !err; i++) {
        if (b->held[i].gone || b->held[i].deliveries < REFRESH)
            continue;
        err = refresh(ctx, (int64_t)i + 1, &p);
        n += !err;
        if (!err && held_tend(b) < 0)
            break;
    }
    if (err)
        complain(0,
                 "letters of %s that were looked at often could not be "
                 "published again: %s; a delivery-limit of that queue would "
                 "move them to %s.kept",
                 b->dead, p.text[0] ? p.text : errno_text(-err), b->dead);
    return n;
}

/* given_back - until the broker shows those that are left, so that the next
 * look finds them */
static int given_back(struct broker *b, uint32_t left)
{
    const struct timespec nap = {.tv_nsec = (long)NAP_NS};
    uint64_t end = clock_mono_ns() + FREE_NS;
    uint32_t count = 0, consumers;
    uint64_t tag = 0;
    int err = 0;

    for (size_t i = 0; i < b->count; i++)
        tag = b->held[i].gone ? tag : b->held[i].tag;
    for (size_t i = 0; i < b->copy_count; i++)
        if (!b->copies[i].gone && b->copies[i].tag > tag)
            tag = b->copies[i].tag;
    if (b->claimed)
        err = held_unclaim(b);
    else if (tag)
        err = link_status(b->link,
                          amqp_basic_nack(b->link->c, LINK_CHANNEL, tag, 1, 1));
    while (!err) {
        err = topology_count(b->link, b->dead, &count, &consumers);
        if (err || count >= left || clock_mono_ns() >= end)
            break;
        nanosleep(&nap, NULL);
    }
    return err;
}

/* kept_say - what the broker took out of NAME.dead by a rule of its own */
static void kept_say(struct broker *b)
{
    char kept[TOPOLOGY_NAME + 8];
    uint32_t count = 0, consumers;

    snprintf(kept, sizeof kept, "%s.kept", b->dead);
    if (topology_count(b->link, kept, &count, &consumers) == 0 && count > 0)
        complain(0,
                 "%" PRIu32 " letters are in %s: the broker took them out of "
                 "%s, as a policy has a delivery-limit, a length or a time "
                 "to live; rabbitmqctl list_policies -p %s shows it",
                 count, kept, b->dead, b->operand.vhost);
}

int broker_close(struct context *ctx)
{
    struct broker *b = ctx->broker;
    size_t left = 0;
    int status = 0;

    if (!b)
        return 0;
    if (b->link && ctx->store) {
        left = refresh_some(ctx);
        for (size_t i = 0; i < b->count; i++)
            left += !b->held[i].gone;
        for (size_t i = 0; i < b->copy_count; i++)
            left += !b->copies[i].gone;
        left += b->imported + b->beyond; /* never held, so they show at once */
        if (given_back(b, (uint32_t)left) < 0)
            status = complain(EX_UNAVAILABLE,
                              "lost the connection at the end: %s; letters "
                              "that were removed or sent may be in %s still",
                              b->link->why, b->dead);
        else
            kept_say(b);
    }
    publisher_close(&b->publisher);
    link_close(&b->link);
    if (b->properties)
        fclose(b->properties);
    explicit_bzero(b->password, sizeof b->password);
    known_free(&b->known);
    free(b->held);
    free(b->copies);
    free(b);
    ctx->broker = NULL;
    return status;
}
