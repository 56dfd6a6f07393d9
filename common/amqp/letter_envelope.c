/* letter_envelope.c - what a dead letter on a broker says of its death (see
 * letter_envelope.h) */
#include "common/amqp/letter_envelope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/amqp/field.h"
#include "common/base/clock.h"

#define POOL_PAGE 4096

static void attempt_read(struct letter_envelope *l, const amqp_table_t *t)
{
    struct letter_attempt *a = &l->attempts[l->attempt_count++];

    *a = (struct letter_attempt){0};
    for (int i = 0; i < t->num_entries; i++) {
        const amqp_table_entry_t *e = &t->entries[i];

        if (field_named(e->key, "at"))
            (void)field_number(&e->value, &a->at_ns);
        else if (field_named(e->key, "ms"))
            (void)field_number(&e->value, &a->ms);
        else if (field_named(e->key, "error"))
            (void)field_text(&e->value, &a->error);
        else if (field_named(e->key, "machine"))
            (void)field_text(&e->value, &a->machine);
    }
}

static void history_read(struct letter_envelope *l, const amqp_field_value_t *v)
{
    if (v->kind != AMQP_FIELD_KIND_ARRAY)
        return;
    for (int i = 0; i < v->value.array.num_entries; i++) {
        const amqp_field_value_t *one = &v->value.array.entries[i];

        if (one->kind == AMQP_FIELD_KIND_TABLE &&
            l->attempt_count < ENVELOPE_HISTORY)
            attempt_read(l, &one->value.table);
    }
}

static enum dead_reason reason_of(amqp_bytes_t text)
{
    char word[24] = "";
    enum dead_reason reason;

    if (text.len < sizeof word)
        memcpy(word, text.bytes, text.len);
    reason = dead_reason_parse(word);
    return reason == REASON_COUNT ? REASON_NONE : reason;
}

/* brokers_death - of a message that the broker dropped: expired, rejected,
 * delivered too often. The newest death comes first. */
static void brokers_death(struct letter_envelope *l,
                          const amqp_field_value_t *v)
{
    const amqp_table_t *t;
    uint64_t seconds;

    if (v->kind != AMQP_FIELD_KIND_ARRAY || v->value.array.num_entries == 0 ||
        v->value.array.entries[0].kind != AMQP_FIELD_KIND_TABLE)
        return;
    t = &v->value.array.entries[0].value.table;
    for (int i = 0; i < t->num_entries; i++) {
        const amqp_table_entry_t *e = &t->entries[i];

        if (field_named(e->key, "reason") && field_text(&e->value, &l->error))
            l->reason = field_named(l->error, "expired")    ? REASON_EXPIRED
                        : field_named(l->error, "rejected") ? REASON_REJECTED
                                                            : REASON_CRASHED;
        else if (field_named(e->key, "time") &&
                 field_number(&e->value, &seconds) &&
                 seconds < UINT64_MAX / NS_PER_S)
            l->died_ns = seconds * NS_PER_S;
    }
}

static void header_read(struct letter_envelope *l, const amqp_table_entry_t *e)
{
    amqp_bytes_t text;

    if (field_named(e->key, "mqw-reason") && field_text(&e->value, &text))
        l->reason = reason_of(text);
    else if (field_named(e->key, "mqw-error"))
        (void)field_text(&e->value, &l->error);
    else if (field_named(e->key, "mqw-died"))
        (void)field_number(&e->value, &l->died_ns);
    else if (field_named(e->key, "mqw-expires"))
        (void)field_number(&e->value, &l->expires_ns);
    else if (field_named(e->key, "mqw-group"))
        (void)field_text(&e->value, &l->group);
    else if (field_named(e->key, "mqw-stderr"))
        (void)field_text(&e->value, &l->tail);
    else if (field_named(e->key, "mqw-history"))
        history_read(l, &e->value);
    else if (field_named(e->key, "x-delivery-count"))
        (void)field_number(&e->value, &l->deliveries);
}

int letter_envelope_read(struct letter_envelope *out, amqp_bytes_t raw)
{
    const amqp_table_t *all;
    void *decoded;

    *out = (struct letter_envelope){0};
    init_amqp_pool(&out->pool, POOL_PAGE);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &out->pool, raw, &decoded) !=
        AMQP_STATUS_OK) {
        letter_envelope_free(out);
        return -EBADMSG;
    }
    all = &((amqp_basic_properties_t *)decoded)->headers;
    for (int i = 0; i < all->num_entries; i++)
        header_read(out, &all->entries[i]);
    /* What a worker said of its death counts before what the broker says. */
    for (int i = 0; i < all->num_entries && out->reason == REASON_NONE; i++)
        if (field_named(all->entries[i].key, "x-death"))
            brokers_death(out, &all->entries[i].value);
    return 0;
}

void letter_envelope_free(struct letter_envelope *l)
{
    empty_amqp_pool(&l->pool);
}

int letter_envelope_same(struct envelope_copy *out, amqp_bytes_t raw)
{
    amqp_table_t *all;
    void *decoded;
    int kept = 0;

    init_amqp_pool(&out->pool, POOL_PAGE);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &out->pool, raw, &decoded) !=
        AMQP_STATUS_OK) {
        envelope_copy_free(out);
        return -EBADMSG;
    }
    out->properties = *(amqp_basic_properties_t *)decoded;
    out->properties._flags &=
        ~(amqp_flags_t)(AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_EXPIRATION_FLAG);
    all = &out->properties.headers;
    for (int i = 0; i < all->num_entries; i++)
        if (!field_named(all->entries[i].key, "x-delivery-count") &&
            !field_named(all->entries[i].key, "CC") &&
            !field_named(all->entries[i].key, "BCC"))
            all->entries[kept++] = all->entries[i];
    all->num_entries = kept;
    return 0;
}
