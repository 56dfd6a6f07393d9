/* broker_import.c - letters of a file, to NAME.dead (see broker.h)
 *
 * A letter that is there already is left out, so an import that was killed can
 * be run again. The letters that are there are held meanwhile; of a queue that
 * has none, the import is a consumer (held_claim). So nobody replays or
 * discards a letter, or imports beside us.
 * Crash before a confirm: the letter is there, or it is not; the next run of
 * the same file sees which. So a crash here can lose none and repeat none.
 */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/amqp/envelope_made.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/text/complain.h"

#define WAIT_NS (60 * NS_PER_S) /* for a confirm */

/* ---- what is there ---- */

/* beyond_say - once: not all letters are held, so not all are known */
static void beyond_say(struct broker *b)
{
    if (b->beyond && !b->beyond_told)
        complain(0,
                 "%s has more letters than are looked at: what is in the file "
                 "and among the others is there twice afterwards",
                 b->dead);
    b->beyond_told = true;
}

/* id_make - of a letter that was given none: from what it is and where it is in
 * the file, so that it has the same in the next run */
static void id_make(struct store_row *m, uint64_t line)
{
    const unsigned char *at = m->data;
    uint64_t sum[2] = {0xcbf29ce484222325U, line + 1};

    for (size_t i = 0; i < m->size; i++) {
        sum[0] = (sum[0] ^ at[i]) * 0x100000001b3U;
        sum[1] = (sum[1] ^ (at[i] + 1U) ^ sum[0] >> 29) * 0x100000001b3U;
    }
    memcpy(m->id.bytes, sum, sizeof m->id.bytes);
    m->id.bytes[0] |= 1; /* all 0 would be no id */
}

/* ---- one letter ---- */

/* attempts_write - each that failed, with where it was, if that is known */
static int attempts_write(struct envelope_made *e, const struct decoding *d,
                          const struct ulid *id)
{
    int err = 0;

    for (size_t i = 0; i < d->letter.history_count && !err; i++) {
        const struct store_attempt *a = &d->letter.history[i];
        const struct envelope_attempt failed = {
            .at_ns = a->started_ns,
            .duration_ns = a->duration_ns,
            .number = i + 1,
            .error = a->error ? a->error : "",
            .machine = d->machines[i] ? d->machines[i] : "",
            .tail = a->stderr_tail,
            .tail_size = a->stderr_size};

        err = envelope_made_attempt(e, id, &failed);
    }
    return err;
}

/* properties_make - as a worker of the broker would have written them; its line
 * is new, so that a replay is not taken for that of an earlier import */
static int properties_make(struct envelope_made *e, const struct decoding *d,
                           const struct store_row *m)
{
    const struct envelope_change change = {
        .id = &m->id,
        .attempt = m->attempts,
        .first_ns = m->first_received_ns,
        .line = ((uint64_t)arc4random() << 31 ^ arc4random()) | 1,
        .reason = m->reason == REASON_NONE ? NULL : dead_reason_text(m->reason),
        .error = m->error,
        .died_ns = m->died_ns};
    struct header h = {0};
    int err;

    if (m->header_size > 0 && header_parse(m->data, m->size, &h, NULL) < 0)
        h = (struct header){0};
    if (m->group) {
        h.group = (struct header_text){m->group, m->group_size};
        h.fields |= HEADER_GROUP;
    }
    err = envelope_made_begin(e, &m->id, m->priority, m->data, &h);
    if (!err)
        err = attempts_write(e, d, &m->id);
    return err ? err : envelope_made_end(e, &change);
}

/* Publish a letter, unless the broker already has it and `again` is false. */
static int one_put(struct broker *b, const struct decoding *d, bool again,
                   struct envelope_made *e, struct broker_imported *sum,
                   struct problem *p)
{
    struct store_row m = d->letter.m;
    int err;

    if (!d->named)
        id_make(&m, d->line);
    if (!again && known_has(&b->known, &m, d->dated)) {
        sum->present++;
        return 0;
    }
    err = properties_make(e, d, &m);
    if (!err)
        err = known_add(&b->known, &m, NULL, 0);
    if (err)
        return problem_set(p, err == -EMSGSIZE ? EX_DATAERR : EX_OSERR, -err,
                           "line %" PRIu64 ": cannot write its properties: %s",
                           d->line, errno_text(-err));
    return publisher_put(
        b->publisher,
        &(struct publication){.queue = b->dead,
                              .id = "",
                              .properties = &e->copy.properties,
                              .body = (const char *)m.data + m.header_size,
                              .size = m.size - m.header_size},
        p);
}

/* ---- a batch ---- */

/* groups_say - once: sent again to a queue without partitions, a letter of a
 * group dies of that, and why it died before is seen in its history only */
static void groups_say(struct context *ctx, const struct decoding *list,
                       size_t n)
{
    struct broker *b = ctx->broker;
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any = any || list[i].letter.m.group;
    if (!any || b->groups_told || b->topology.partitions || ctx->o->quiet)
        return;
    b->groups_told = true;
    complain(
        0, "some letters name a group, which only a queue with partitions "
           "takes: replay them with --partitions N, as in a queue without any "
           "they are dead again (bad-header)");
}

static int all_put(struct context *ctx, const struct decoding *list, size_t n,
                   struct broker_imported *sum, struct problem *p)
{
    struct broker *b = ctx->broker;
    struct envelope_made *made = calloc(n, sizeof *made);
    uint64_t before = publisher_confirmed(b->publisher);
    int err = made ? 0 : problem_set(p, EX_OSERR, ENOMEM, "out of memory");

    for (size_t i = 0; i < n && !err; i++)
        err = one_put(b, &list[i], ctx->o->again, &made[i], sum, p);
    if (!err)
        err = publisher_flush(b->publisher, p);
    sum->in += publisher_confirmed(b->publisher) - before;
    b->imported += publisher_confirmed(b->publisher) - before;
    if (err) /* its properties go with `made` */
        publisher_close(&b->publisher);
    for (size_t i = 0; made && i < n; i++)
        envelope_made_free(&made[i]);
    free(made);
    return err;
}

int broker_import(struct context *ctx, const struct decoding *list, size_t n,
                  struct broker_imported *sum, struct problem *p)
{
    struct broker *b = ctx->broker;
    int err;

    beyond_say(b);
    groups_say(ctx, list, n);
    err = held_publisher(b, WAIT_NS, p);
    if (!err)
        err = all_put(ctx, list, n, sum, p);
    if (!err && held_tend(b) < 0)
        return problem_set(p, EX_UNAVAILABLE, ECONNRESET,
                           "lost the connection to the broker: %s",
                           b->link->why);
    return err;
}
