/* envelope.c - the properties of a message on a broker (see envelope.h) */
#include "common/amqp/envelope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/amqp/topology.h"
#include "common/base/basics.h"
#include "common/base/clock.h"

static bool field_named(amqp_bytes_t key, const char *name)
{
    return key.len == strlen(name) && memcmp(key.bytes, name, key.len) == 0;
}

static bool field_begins(amqp_bytes_t key, const char *with)
{
    return key.len >= strlen(with) &&
           memcmp(key.bytes, with, strlen(with)) == 0;
}

/* Read a number, for which the library of a producer may use any width. Returns
 * false if there is none, or if it is below 0. */
static bool field_number(const amqp_field_value_t *v, uint64_t *out)
{
    int64_t n;

    switch (v->kind) {
    case AMQP_FIELD_KIND_I8:
        n = (int)v->value.i8 < 0 ? -1 : (uint8_t)v->value.i8;
        break;
    case AMQP_FIELD_KIND_U8:
        n = v->value.u8;
        break;
    case AMQP_FIELD_KIND_I16:
        n = v->value.i16;
        break;
    case AMQP_FIELD_KIND_U16:
        n = v->value.u16;
        break;
    case AMQP_FIELD_KIND_I32:
        n = v->value.i32;
        break;
    case AMQP_FIELD_KIND_U32:
        n = v->value.u32;
        break;
    case AMQP_FIELD_KIND_I64:
        n = v->value.i64;
        break;
    case AMQP_FIELD_KIND_U64:
    case AMQP_FIELD_KIND_TIMESTAMP:
        n = v->value.u64 > INT64_MAX ? -1 : (int64_t)v->value.u64;
        break;
    default:
        return false;
    }
    *out = (uint64_t)n;
    return n >= 0;
}

static bool field_text(const amqp_field_value_t *v, amqp_bytes_t *out)
{
    if (v->kind != AMQP_FIELD_KIND_UTF8 && v->kind != AMQP_FIELD_KIND_BYTES)
        return false;
    *out = v->value.bytes;
    return true;
}

#define POOL_PAGE 4096
#define OURS      "mqw-"
#define OURS_MOST 16 /* headers of a copy that are written here */
#define ENTRY     5  /* values of an attempt in the history */

amqp_basic_properties_t *envelope_decode(amqp_bytes_t raw, amqp_pool_t *pool)
{
    void *decoded;

    init_amqp_pool(pool, POOL_PAGE);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, pool, raw, &decoded) ==
        AMQP_STATUS_OK)
        return decoded;
    empty_amqp_pool(pool);
    return NULL;
}

/* ---- reading ---- */

/* Return true if the broker itself writes this header. */
static bool field_is_brokers(amqp_bytes_t key)
{
    return field_begins(key, "x-death") ||
           field_begins(key, "x-first-death-") ||
           field_begins(key, "x-last-death-") ||
           field_named(key, "x-delivery-count") ||
           field_named(key, "x-acquired-count");
}

/* The headers of a message, for the text header in front of its body. */
struct reading {
    struct envelope *e;
    struct header h;
    struct header_x x[HEADER_X_MAX];
    size_t x_count;
    bool named; /* it has an id */
};

/* Return the error text for a restricting header without a valid value; NULL if
 * `key` is another header. */
static const char *restriction_error(amqp_bytes_t key)
{
    return field_named(key, "mqw-due")       ? "mqw-due is not a time in ns"
           : field_named(key, "mqw-expires") ? "mqw-expires is not a time in ns"
           : field_named(key, "mqw-timeout")
               ? "mqw-timeout is not a number of ms above 0"
               : NULL;
}

/* Read one header of the message. A restriction without a valid value makes the
 * message a dead letter, because ignoring the restriction would run the message
 * too early, too late or for too long. Any other header without a valid value
 * is left out. */
static void envelope_field_read(struct reading *r, const amqp_table_entry_t *t)
{
    amqp_bytes_t text = {0, NULL};
    bool is_text = field_text(&t->value, &text);
    struct header_text name = {t->key.bytes, t->key.len};
    struct header_text value = {text.bytes, text.len};
    struct envelope *e = r->e;
    uint64_t n;

    if (!field_begins(t->key, OURS)) { /* a line of the producer's own */
        if (r->x_count < HEADER_X_MAX && header_x_name_ok(name.at, name.size) &&
            !field_is_brokers(t->key) && is_text &&
            header_value_ok(value.at, value.size))
            r->x[r->x_count++] = (struct header_x){name, value};
    } else if (field_named(t->key, "mqw-id")) {
        r->named = is_text && ulid_parse(value.at, value.size, &e->id) == 0;
    } else if (field_named(t->key, "mqw-group")) {
        e->has_group = true;
        e->good_group =
            is_text && value.size > 0 && header_value_ok(value.at, value.size);
        if (e->good_group) {
            e->group_crc = partition_crc(value.at, value.size);
            r->h.group = value;
            r->h.fields |= HEADER_GROUP;
        }
    } else if (!field_number(&t->value, &n)) {
        if (!e->wrong)
            e->wrong = restriction_error(t->key);
    } else if (field_named(t->key, "mqw-sent")) {
        e->sent_ns = r->h.sent_ns = n;
        r->h.fields |= HEADER_SENT;
    } else if (field_named(t->key, "mqw-expires")) {
        r->h.expires_ns = n;
        r->h.fields |= HEADER_EXPIRES;
    } else if (field_named(t->key, "mqw-timeout") &&
               (n == 0 || n > HEADER_MS_MAX)) {
        e->wrong = restriction_error(t->key);
    } else if (field_named(t->key, "mqw-timeout")) {
        r->h.timeout_ms = n;
        r->h.fields |= HEADER_TIMEOUT;
    } else if (field_named(t->key, "mqw-attempt")) {
        e->attempt = n < UINT32_MAX ? n : UINT32_MAX;
    } else if (field_named(t->key, "mqw-replay")) {
        e->replay = n;
    } else if (field_named(t->key, "mqw-hop")) {
        e->hop = n;
    } else if (field_named(t->key, "mqw-line")) {
        e->line = n;
    } else if (field_named(t->key, "mqw-first")) {
        e->first_ns = n;
    } else if (field_named(t->key, "mqw-due")) {
        e->due_ns = n;
    } else if (field_named(t->key, "mqw-resent")) {
        e->resent = n != 0;
    } else if (field_named(t->key, "mqw-forwarded") && n > 0 &&
               n <= UINT32_MAX) {
        r->h.forwarded = n;
        r->h.fields |= HEADER_FORWARDED;
    }
}

/* Continue a hash of 128 bits: FNV-1a twice, the second one from another seed
 * and over other bytes. */
static void hash_add(uint64_t h[2], const void *data, size_t size)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < size; i++) {
        h[0] = (h[0] ^ at[i]) * FNV_PRIME;
        h[1] = (h[1] ^ (at[i] + 1U)) * FNV_PRIME;
        h[1] ^= h[0] >> 29;
    }
}

/* Derive an id from the parts of a message that do not change from delivery to
 * delivery. Equal messages share it, because they differ in nothing. */
static void id_derive(struct envelope *e, const amqp_basic_properties_t *p,
                      const void *body, size_t size)
{
    const amqp_bytes_t all[] = {p->message_id, p->correlation_id, p->reply_to,
                                p->type, p->app_id};
    uint64_t h[2] = {FNV_BEGIN, 0x84222325cbf29ce4U};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        hash_add(h, &all[i].len, sizeof all[i].len);
        hash_add(h, all[i].bytes, all[i].len);
    }
    hash_add(h, &p->timestamp, sizeof p->timestamp);
    hash_add(h, body, size);
    memcpy(e->id.bytes, h, sizeof e->id.bytes);
    e->id.bytes[0] |= 1; /* all 0 would be no id */
    e->derived = true;
}

int envelope_read(struct envelope *out, amqp_bytes_t raw, const void *body,
                  size_t body_size, char head[HEADER_MAX])
{
    struct reading r = {.e = out};
    const amqp_basic_properties_t *p;
    amqp_pool_t pool;
    int n;

    *out = (struct envelope){0};
    p = envelope_decode(raw, &pool);
    if (!p)
        return -EBADMSG;
    for (int i = 0; i < p->headers.num_entries; i++)
        envelope_field_read(&r, &p->headers.entries[i]);
    /* Properties that are missing are 0 or empty. */
    out->priority = p->priority;
    if (!r.named && ulid_parse(p->message_id.bytes ? p->message_id.bytes : "",
                               p->message_id.len, &out->id) != 0)
        id_derive(out, p, body, body_size);
    if (!(r.h.fields & HEADER_SENT) && p->timestamp > 0 &&
        p->timestamp < (uint64_t)INT64_MAX / NS_PER_S) {
        r.h.sent_ns = p->timestamp * NS_PER_S;
        r.h.fields |= HEADER_SENT;
    }
    r.h.id = out->id;
    r.h.size = body_size;
    r.h.fields |= HEADER_ID | HEADER_SIZE;
    /* Leave out x- lines for which there is no room. */
    while ((n = header_write(head, HEADER_MAX, &r.h, r.x, r.x_count)) ==
               -EMSGSIZE &&
           r.x_count > 0)
        r.x_count--;
    empty_amqp_pool(&pool);
    out->head = n > 0 ? (size_t)n : 0;
    return n < 0 ? n : 0;
}

uint64_t envelope_number(amqp_bytes_t raw)
{
    amqp_pool_t pool;
    const amqp_basic_properties_t *p = envelope_decode(raw, &pool);
    uint64_t found = 0;

    if (!p)
        return 0;
    for (int i = 0; i < p->headers.num_entries; i++)
        if (field_named(p->headers.entries[i].key, "mqw-number"))
            (void)field_number(&p->headers.entries[i].value, &found);
    empty_amqp_pool(&pool);
    return found;
}

/* ---- writing ---- */

/* A copy in the making. */
struct writing {
    struct envelope_copy *copy;
    amqp_table_entry_t *entries;
    int count;
    bool failed; /* no memory */
};

static void *pool_room(struct writing *w, size_t size)
{
    void *at = amqp_pool_alloc(&w->copy->pool, size);

    w->failed = w->failed || !at;
    return at;
}

/* Make a text entry. Its text is copied, because it may outlive its source. */
static amqp_table_entry_t entry_of_text(struct writing *w, const char *name,
                                        const char *value, size_t size)
{
    void *at = pool_room(w, size ? size : 1);

    if (at && size)
        memcpy(at, value, size);
    return (amqp_table_entry_t){.key = amqp_cstring_bytes(name),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                          .value.bytes = {at ? size : 0, at}}};
}

static void entry_put(struct writing *w, amqp_table_entry_t entry)
{
    w->entries[w->count++] = entry;
}

/* Return true if the copy has this header of the original, unchanged. */
static bool field_stays(amqp_bytes_t key, const struct envelope_change *c)
{
    static const char *const renewed[] = {
        "mqw-id",     "mqw-attempt", "mqw-first",  "mqw-due",    "mqw-hop",
        "mqw-resent", "mqw-history", "mqw-stderr", "mqw-number", "mqw-reason",
        "mqw-error",  "mqw-died",    "CC",         "BCC"};

    for (size_t i = 0; i < sizeof renewed / sizeof renewed[0]; i++)
        if (field_named(key, renewed[i]))
            return false;
    return !(c->replay && field_named(key, "mqw-replay")) &&
           !(c->line && field_named(key, "mqw-line")) &&
           !(c->no_expiry && field_named(key, "mqw-expires")) &&
           !field_is_brokers(key);
}

static amqp_field_value_t attempt_entry(struct writing *w,
                                        const struct envelope_attempt *a)
{
    amqp_table_entry_t *t = pool_room(w, ENTRY * sizeof *t);

    if (!t)
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_VOID};
    t[0] = entry_number("at", a->at_ns);
    t[1] = entry_number("attempt", a->number);
    t[2] = entry_number("ms", a->duration_ns / NS_PER_MS);
    t[3] = entry_of_text(w, "error", a->error,
                         a->error ? strnlen(a->error, ENVELOPE_ERROR) : 0);
    t[4] = entry_of_text(w, "machine", a->machine, strlen(a->machine));
    return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_TABLE,
                                .value.table = {ENTRY, t}};
}

/* Write the history: of the attempts of the original and the new ones the first
 * and the last. */
static void history_write(struct writing *w, const amqp_table_t *old,
                          const struct envelope_change *c)
{
    const amqp_array_t *was = NULL;
    amqp_field_value_t *all;
    int before, sum, n = 0;

    for (int i = 0; i < old->num_entries; i++)
        if (field_named(old->entries[i].key, "mqw-history") &&
            old->entries[i].value.kind == AMQP_FIELD_KIND_ARRAY)
            was = &old->entries[i].value.value.array;
    before = was ? was->num_entries : 0;
    sum = before + (int)c->failed_count;
    all = pool_room(w, ENVELOPE_HISTORY * sizeof *all);
    if (!all || sum == 0)
        return;
    for (int i = 0; i < sum; i++)
        if (i == 0 || i > sum - ENVELOPE_HISTORY)
            all[n++] = i < before ? was->entries[i]
                                  : attempt_entry(w, &c->failed[i - before]);
    entry_put(w, (amqp_table_entry_t){.key = amqp_cstring_bytes("mqw-history"),
                                      .value = {.kind = AMQP_FIELD_KIND_ARRAY,
                                                .value.array = {n, all}}});
}

/* Write the end of the last handler's stderr. */
static void tail_write(struct writing *w, const amqp_table_t *old,
                       const struct envelope_change *c)
{
    const struct envelope_attempt *last =
        c->failed_count ? &c->failed[c->failed_count - 1] : NULL;
    size_t size = last ? last->tail_size : 0;

    if (size > ENVELOPE_STDERR)
        size = ENVELOPE_STDERR;
    if (size > 0)
        entry_put(w, entry_of_text(w, "mqw-stderr",
                                   last->tail + last->tail_size - size, size));
    for (int i = 0; !last && i < old->num_entries; i++)
        if (field_named(old->entries[i].key, "mqw-stderr"))
            entry_put(w, old->entries[i]);
}

/* Write the headers that a copy has of its own. */
static void ours_write(struct writing *w, const struct envelope_change *c)
{
    const struct {
        const char *name;
        uint64_t value; /* 0: not written */
    } numbers[] = {{"mqw-line", c->line},      {"mqw-hop", c->hop},
                   {"mqw-first", c->first_ns}, {"mqw-replay", c->replay},
                   {"mqw-due", c->due_ns},     {"mqw-resent", c->resent},
                   {"mqw-died", c->died_ns}};
    char id[ULID_TEXT];

    ulid_print(*c->id, id);
    entry_put(w, entry_of_text(w, "mqw-id", id, strlen(id)));
    entry_put(w, entry_number("mqw-attempt", c->attempt));
    entry_put(w, entry_number("mqw-number", c->number));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value)
            entry_put(w, entry_number(numbers[i].name, numbers[i].value));
    if (c->reason)
        entry_put(w,
                  entry_of_text(w, "mqw-reason", c->reason, strlen(c->reason)));
    if (c->error)
        entry_put(w, entry_of_text(w, "mqw-error", c->error,
                                   strnlen(c->error, ENVELOPE_ERROR)));
}

/* Fill the properties of a copy from those of the original. */
static int copy_fill(struct envelope_copy *out,
                     const amqp_basic_properties_t *p,
                     const struct envelope_change *c, bool plain)
{
    struct writing w = {.copy = out};

    w.entries = pool_room(&w, ((size_t)p->headers.num_entries + OURS_MOST) *
                                  sizeof *w.entries);
    if (!w.entries)
        return -ENOMEM;
    for (int i = 0; i < p->headers.num_entries; i++)
        if (field_stays(p->headers.entries[i].key, c))
            entry_put(&w, p->headers.entries[i]);
    ours_write(&w, c);
    if (!plain) {
        history_write(&w, &p->headers, c);
        tail_write(&w, &p->headers, c);
    }
    out->properties = *p;
    out->properties.headers = (amqp_table_t){w.count, w.entries};
    out->properties.delivery_mode = 2;
    out->properties._flags &=
        ~(amqp_flags_t)(AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_EXPIRATION_FLAG |
                        AMQP_BASIC_CLUSTER_ID_FLAG);
    out->properties._flags |=
        AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    return w.failed ? -ENOMEM : 0;
}

int envelope_copy(struct envelope_copy *out, amqp_bytes_t raw,
                  const struct envelope_change *change, bool plain)
{
    const amqp_basic_properties_t *p = envelope_decode(raw, &out->pool);
    int err = p ? copy_fill(out, p, change, plain) : -EBADMSG;

    if (p && err)
        envelope_copy_free(out);
    return err;
}

void envelope_copy_free(struct envelope_copy *c)
{
    empty_amqp_pool(&c->pool);
}

#define ADDED_ROOM   65536 /* for properties; history and stderr have 8 KiB */
#define MADE_ENTRIES (HEADER_X_MAX + 5) /* and sent, expires, timeout, ... */

int envelope_attempt_add(amqp_bytes_t *out, amqp_bytes_t raw,
                         const struct ulid *id,
                         const struct envelope_attempt *failed)
{
    const struct envelope_change change = {.id = id,
                                           .attempt = failed->number,
                                           .failed = failed,
                                           .failed_count = 1};
    struct envelope_copy copy;
    int n, err = envelope_copy(&copy, raw, &change, false);

    if (err)
        return err;
    *out = (amqp_bytes_t){ADDED_ROOM, malloc(ADDED_ROOM)};
    n = out->bytes
            ? amqp_encode_properties(AMQP_BASIC_CLASS, &copy.properties, *out)
            : -1;
    envelope_copy_free(&copy);
    if (n >= 0) {
        out->len = (size_t)n;
        return 0;
    }
    err = out->bytes ? -EMSGSIZE : -ENOMEM;
    free(out->bytes);
    return err;
}

static amqp_table_entry_t entry_of(struct header_text name,
                                   struct header_text value)
{
    return (amqp_table_entry_t){
        .key = {name.size, (void *)(uintptr_t)name.at},
        .value = {.kind = AMQP_FIELD_KIND_UTF8,
                  .value.bytes = {value.size, (void *)(uintptr_t)value.at}}};
}

int envelope_make(struct envelope_copy *out, uint32_t priority,
                  const void *data, const struct header *h,
                  const struct envelope_change *change)
{
    amqp_table_entry_t all[MADE_ENTRIES];
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG |
                                           AMQP_BASIC_DELIVERY_MODE_FLAG |
                                           AMQP_BASIC_MESSAGE_ID_FLAG};
    struct header_text name, value;
    char *id;
    size_t cursor = 0;
    int n = 0, err;

    init_amqp_pool(&out->pool, POOL_PAGE);
    id = amqp_pool_alloc(&out->pool, ULID_TEXT);
    if (!id) {
        envelope_copy_free(out);
        return -ENOMEM;
    }
    p.message_id = amqp_cstring_bytes(ulid_print(*change->id, id));
    if (priority) {
        p.priority = priority < UINT8_MAX ? (uint8_t)priority : UINT8_MAX;
        p._flags |= AMQP_BASIC_PRIORITY_FLAG;
    }
    if (h->fields & HEADER_SENT)
        all[n++] = entry_number("mqw-sent", h->sent_ns);
    if (h->fields & HEADER_EXPIRES)
        all[n++] = entry_number("mqw-expires", h->expires_ns);
    if (h->fields & HEADER_TIMEOUT)
        all[n++] = entry_number("mqw-timeout", h->timeout_ms);
    if (h->fields & HEADER_FORWARDED)
        all[n++] = entry_number("mqw-forwarded", h->forwarded);
    if (h->fields & HEADER_GROUP)
        all[n++] = entry_of((struct header_text){"mqw-group", 9}, h->group);
    while (h->bytes && n < MADE_ENTRIES &&
           header_next_x(data, h, &cursor, &name, &value))
        all[n++] = entry_of(name, value);
    p.headers = (amqp_table_t){n, all};
    err = copy_fill(out, &p, change, false);
    if (err)
        envelope_copy_free(out);
    return err;
}

/* ---- dead letters ---- */

static void attempt_read(struct letter_envelope *l, const amqp_field_value_t *v)
{
    struct letter_attempt *a = &l->attempts[l->attempt_count];

    if (v->kind != AMQP_FIELD_KIND_TABLE ||
        l->attempt_count == ENVELOPE_HISTORY)
        return;
    l->attempt_count++;
    for (int i = 0; i < v->value.table.num_entries; i++) {
        const amqp_table_entry_t *e = &v->value.table.entries[i];

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

/* Read why the broker dropped a message: it expired, was rejected, or was
 * delivered too often. The newest death comes first. */
static void broker_death_read(struct letter_envelope *l,
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

static void letter_field_read(struct letter_envelope *l,
                              const amqp_table_entry_t *e)
{
    const amqp_field_value_t *v = &e->value;
    char word[24] = "";
    amqp_bytes_t text;

    if (field_named(e->key, "mqw-reason") && field_text(v, &text)) {
        if (text.len < sizeof word)
            memcpy(word, text.bytes, text.len);
        l->reason = dead_reason_parse(word);
        if (l->reason == REASON_COUNT)
            l->reason = REASON_NONE;
    } else if (field_named(e->key, "mqw-error")) {
        (void)field_text(v, &l->error);
    } else if (field_named(e->key, "mqw-died")) {
        (void)field_number(v, &l->died_ns);
    } else if (field_named(e->key, "mqw-expires")) {
        (void)field_number(v, &l->expires_ns);
    } else if (field_named(e->key, "mqw-group")) {
        (void)field_text(v, &l->group);
    } else if (field_named(e->key, "mqw-stderr")) {
        (void)field_text(v, &l->tail);
    } else if (field_named(e->key, "mqw-history") &&
               v->kind == AMQP_FIELD_KIND_ARRAY) {
        for (int i = 0; i < v->value.array.num_entries; i++)
            attempt_read(l, &v->value.array.entries[i]);
    } else if (field_named(e->key, "x-delivery-count")) {
        (void)field_number(v, &l->deliveries);
    }
}

int letter_envelope_read(struct letter_envelope *out, amqp_bytes_t raw)
{
    const amqp_basic_properties_t *p;
    const amqp_table_t *all;

    *out = (struct letter_envelope){0};
    p = envelope_decode(raw, &out->pool);
    if (!p)
        return -EBADMSG;
    all = &p->headers;
    for (int i = 0; i < all->num_entries; i++)
        letter_field_read(out, &all->entries[i]);
    /* The reason that a worker gave takes precedence over the broker's. */
    for (int i = 0; i < all->num_entries && out->reason == REASON_NONE; i++)
        if (field_named(all->entries[i].key, "x-death"))
            broker_death_read(out, &all->entries[i].value);
    return 0;
}

void letter_envelope_free(struct letter_envelope *l)
{
    empty_amqp_pool(&l->pool);
}

int letter_envelope_same(struct envelope_copy *out, amqp_bytes_t raw)
{
    const amqp_basic_properties_t *p = envelope_decode(raw, &out->pool);
    amqp_table_t *all;
    int kept = 0;

    if (!p)
        return -EBADMSG;
    out->properties = *p;
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
