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

/* Return the value of the first field with this name; NULL: there is none. */
static const amqp_field_value_t *value_find(const amqp_table_t *t,
                                            const char *name)
{
    for (int i = 0; i < t->num_entries; i++)
        if (field_named(t->entries[i].key, name))
            return &t->entries[i].value;
    return NULL;
}

/* Read a number, for which the library of a producer may use any width. Returns
 * false and leaves *out unchanged if there is none, or if it is below 0. */
static bool number_find(const amqp_table_t *t, const char *name, uint64_t *out)
{
    const amqp_field_value_t *v = value_find(t, name);
    int64_t n = -1;

    switch (v ? v->kind : AMQP_FIELD_KIND_VOID) {
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
        break;
    }
    if (n < 0)
        return false;
    *out = (uint64_t)n;
    return true;
}

static bool field_text(const amqp_field_value_t *v, amqp_bytes_t *out)
{
    if (v->kind != AMQP_FIELD_KIND_UTF8 && v->kind != AMQP_FIELD_KIND_BYTES)
        return false;
    *out = v->value.bytes;
    return true;
}

/* Read a text. Returns false and leaves *out unchanged if there is none. */
static bool text_find(const amqp_table_t *t, const char *name,
                      amqp_bytes_t *out)
{
    const amqp_field_value_t *v = value_find(t, name);

    return v && field_text(v, out);
}

#define POOL_PAGE 4096
#define OURS      "mqw-"
#define OURS_MOST 16 /* headers of a copy that are written here */
#define ENTRY     7  /* most values of an attempt in the history */

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

/* Continue a hash of 128 bits: FNV-1a twice, the second time from another seed
 * and over changed bytes. */
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
 * delivery. Equal messages get the same id. */
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
    struct header h = {.size = body_size, .fields = HEADER_ID | HEADER_SIZE};
    struct header_x x[HEADER_X_FIT];
    const amqp_basic_properties_t *p;
    const amqp_table_t *t;
    size_t x_count = 0;
    amqp_bytes_t text;
    amqp_pool_t pool;
    uint64_t resent, derived;
    int n;

    *out = (struct envelope){0};
    p = envelope_decode(raw, &pool);
    if (!p)
        return -EBADMSG;
    t = &p->headers;
    /* Properties that are missing are 0 or empty. */
    out->priority = p->priority;
    if (!(text_find(t, "mqw-id", &text) &&
          ulid_parse(text.bytes, text.len, &out->id) == 0) &&
        ulid_parse(p->message_id.bytes ? p->message_id.bytes : "",
                   p->message_id.len, &out->id) != 0)
        id_derive(out, p, body, body_size);
    if (number_find(t, "mqw-derived", &derived) && derived != 0)
        out->derived = true;
    h.id = out->id;
    out->has_group = value_find(t, "mqw-group") != NULL;
    out->good_group = text_find(t, "mqw-group", &text) && text.len > 0 &&
                      header_value_ok(text.bytes, text.len);
    if (out->good_group) {
        out->group_crc = partition_crc(text.bytes, text.len);
        h.group = (struct header_text){text.bytes, text.len};
        h.fields |= HEADER_GROUP;
    }
    if (number_find(t, "mqw-attempt", &out->attempt) &&
        out->attempt > UINT32_MAX)
        out->attempt = UINT32_MAX;
    (void)number_find(t, "mqw-replay", &out->replay);
    (void)number_find(t, "mqw-hop", &out->hop);
    (void)number_find(t, "mqw-line", &out->line);
    (void)number_find(t, "mqw-first", &out->first_ns);
    out->resent = number_find(t, "mqw-resent", &resent) && resent != 0;
    if (number_find(t, "mqw-forwarded", &h.forwarded) && h.forwarded > 0 &&
        h.forwarded <= UINT32_MAX)
        h.fields |= HEADER_FORWARDED;
    if (number_find(t, "mqw-sent", &h.sent_ns)) {
        out->sent_ns = h.sent_ns;
        h.fields |= HEADER_SENT;
    } else if (p->timestamp > 0 &&
               p->timestamp < (uint64_t)INT64_MAX / NS_PER_S) {
        h.sent_ns = p->timestamp * NS_PER_S;
        h.fields |= HEADER_SENT;
    }
    /* A restriction without a valid value makes the message a dead letter:
     * without the restriction it would run too early, too late or for too long.
     * Any other header without a valid value is left out. */
    if (!number_find(t, "mqw-due", &out->due_ns) && value_find(t, "mqw-due"))
        out->wrong = "mqw-due is not a time in ns";
    if (number_find(t, "mqw-expires", &h.expires_ns))
        h.fields |= HEADER_EXPIRES;
    else if (value_find(t, "mqw-expires"))
        out->wrong = "mqw-expires is not a time in ns";
    if (number_find(t, "mqw-timeout", &h.timeout_ms) && h.timeout_ms > 0 &&
        h.timeout_ms <= HEADER_MS_MAX)
        h.fields |= HEADER_TIMEOUT;
    else if (value_find(t, "mqw-timeout"))
        out->wrong = "mqw-timeout is not a number of ms above 0";
    /* Keep the producer's own lines, as many as there is room for. */
    for (int i = 0; i < t->num_entries && x_count < HEADER_X_FIT; i++) {
        amqp_bytes_t key = t->entries[i].key;

        if (!field_begins(key, OURS) && !field_is_brokers(key) &&
            header_x_name_ok(key.bytes, key.len) &&
            field_text(&t->entries[i].value, &text) &&
            header_value_ok(text.bytes, text.len))
            x[x_count++] =
                (struct header_x){{key.bytes, key.len}, {text.bytes, text.len}};
    }
    while ((n = header_write(head, HEADER_MAX, &h, x, x_count)) == -EMSGSIZE &&
           x_count > 0)
        x_count--;
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
    (void)number_find(&p->headers, "mqw-number", &found);
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

/* Return true if the copy keeps this header of the original unchanged. */
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
           !(c->derived && field_named(key, "mqw-derived")) &&
           !(c->no_expiry && field_named(key, "mqw-expires")) &&
           !field_is_brokers(key);
}

/* Write the history: the attempts of the original, then the new ones. If there
 * are too many, keep the first attempt and the last ones. */
static void history_write(struct writing *w, const amqp_table_t *old,
                          const struct envelope_change *c)
{
    const amqp_field_value_t *was = value_find(old, "mqw-history");
    bool has = was && was->kind == AMQP_FIELD_KIND_ARRAY;
    int before = has ? was->value.array.num_entries : 0;
    int sum = before + (int)c->failed_count, n = 0;
    amqp_field_value_t *all = pool_room(w, ENVELOPE_HISTORY * sizeof *all);
    amqp_table_entry_t *t;

    if (!all || sum == 0)
        return;
    for (int i = 0; i < sum; i++) {
        const struct envelope_attempt *a;
        int values = 5;

        if (i > 0 && i <= sum - ENVELOPE_HISTORY)
            continue;
        if (i < before) {
            all[n++] = was->value.array.entries[i];
            continue;
        }
        a = &c->failed[i - before];
        t = pool_room(w, ENTRY * sizeof *t);
        if (!t)
            return;
        t[0] = entry_number("at", a->at_ns);
        t[1] = entry_number("attempt", a->number);
        t[2] = entry_number("ms", a->duration_ns / NS_PER_MS);
        t[3] = entry_of_text(w, "error", a->error,
                             a->error ? strnlen(a->error, ENVELOPE_ERROR) : 0);
        t[4] = entry_of_text(w, "machine", a->machine, strlen(a->machine));
        if (a->usage.cpu_ns)
            t[values++] = entry_number("cpu-us", a->usage.cpu_ns / NS_PER_US);
        if (a->usage.peak_bytes)
            t[values++] = entry_number("peak-kib", a->usage.peak_bytes >> 10);
        all[n++] = (amqp_field_value_t){.kind = AMQP_FIELD_KIND_TABLE,
                                        .value.table = {values, t}};
    }
    entry_put(w, (amqp_table_entry_t){.key = amqp_cstring_bytes("mqw-history"),
                                      .value = {.kind = AMQP_FIELD_KIND_ARRAY,
                                                .value.array = {n, all}}});
}

/* Fill the properties of a copy from those of the original. */
static int copy_fill(struct envelope_copy *out,
                     const amqp_basic_properties_t *p,
                     const struct envelope_change *c, bool plain)
{
    const struct {
        const char *name;
        uint64_t value; /* 0: not written */
    } numbers[] = {{"mqw-line", c->line},      {"mqw-hop", c->hop},
                   {"mqw-first", c->first_ns}, {"mqw-replay", c->replay},
                   {"mqw-due", c->due_ns},     {"mqw-resent", c->resent},
                   {"mqw-died", c->died_ns},   {"mqw-derived", c->derived}};
    const struct envelope_attempt *last =
        c->failed_count ? &c->failed[c->failed_count - 1] : NULL;
    const amqp_table_t *old = &p->headers;
    const amqp_field_value_t *stderr_was;
    struct writing w = {.copy = out};
    char id[ULID_TEXT];

    w.entries = pool_room(&w, ((size_t)old->num_entries + OURS_MOST) *
                                  sizeof *w.entries);
    if (!w.entries)
        return -ENOMEM;
    for (int i = 0; i < old->num_entries; i++)
        if (field_stays(old->entries[i].key, c))
            entry_put(&w, old->entries[i]);
    ulid_print(*c->id, id);
    entry_put(&w, entry_of_text(&w, "mqw-id", id, strlen(id)));
    entry_put(&w, entry_number("mqw-attempt", c->attempt));
    entry_put(&w, entry_number("mqw-number", c->number));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value)
            entry_put(&w, entry_number(numbers[i].name, numbers[i].value));
    if (c->reason)
        entry_put(
            &w, entry_of_text(&w, "mqw-reason", c->reason, strlen(c->reason)));
    if (c->error)
        entry_put(&w, entry_of_text(&w, "mqw-error", c->error,
                                    strnlen(c->error, ENVELOPE_ERROR)));
    if (!plain)
        history_write(&w, old, c);
    /* Keep the end of the last handler's stderr. */
    if (!plain && last && last->tail_size > 0) {
        size_t size = last->tail_size < ENVELOPE_STDERR ? last->tail_size
                                                        : ENVELOPE_STDERR;

        entry_put(&w, entry_of_text(&w, "mqw-stderr",
                                    last->tail + last->tail_size - size, size));
    }
    stderr_was = plain || last ? NULL : value_find(old, "mqw-stderr");
    if (stderr_was)
        entry_put(&w, (amqp_table_entry_t){amqp_cstring_bytes("mqw-stderr"),
                                           *stderr_was});
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
#define MADE_ENTRIES (HEADER_X_FIT + 5) /* and sent, expires, timeout, ... */

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

int letter_envelope_read(struct letter_envelope *out, amqp_bytes_t raw)
{
    const amqp_basic_properties_t *p;
    const amqp_field_value_t *v;
    const amqp_table_t *t;
    char word[24] = "";
    amqp_bytes_t text;
    uint64_t seconds;

    *out = (struct letter_envelope){0};
    p = envelope_decode(raw, &out->pool);
    if (!p)
        return -EBADMSG;
    t = &p->headers;
    if (text_find(t, "mqw-reason", &text) && text.len < sizeof word)
        memcpy(word, text.bytes, text.len);
    out->reason = dead_reason_parse(word);
    if (out->reason == REASON_COUNT)
        out->reason = REASON_NONE;
    (void)text_find(t, "mqw-error", &out->error);
    (void)text_find(t, "mqw-group", &out->group);
    (void)text_find(t, "mqw-stderr", &out->tail);
    (void)number_find(t, "mqw-died", &out->died_ns);
    (void)number_find(t, "mqw-expires", &out->expires_ns);
    (void)number_find(t, "x-delivery-count", &out->deliveries);
    v = value_find(t, "mqw-history");
    for (int i = 0; v && v->kind == AMQP_FIELD_KIND_ARRAY &&
                    i < v->value.array.num_entries &&
                    out->attempt_count < ENVELOPE_HISTORY;
         i++) {
        const amqp_field_value_t *one = &v->value.array.entries[i];
        struct letter_attempt *a = &out->attempts[out->attempt_count];
        uint64_t cpu_us = 0, peak_kib = 0;

        if (one->kind != AMQP_FIELD_KIND_TABLE)
            continue;
        out->attempt_count++;
        (void)number_find(&one->value.table, "at", &a->at_ns);
        (void)number_find(&one->value.table, "ms", &a->ms);
        (void)text_find(&one->value.table, "error", &a->error);
        (void)text_find(&one->value.table, "machine", &a->machine);
        (void)number_find(&one->value.table, "cpu-us", &cpu_us);
        (void)number_find(&one->value.table, "peak-kib", &peak_kib);
        if (cpu_us < INT64_MAX / NS_PER_US && peak_kib < INT64_MAX >> 10)
            a->usage = (struct usage){cpu_us * NS_PER_US, peak_kib << 10};
    }
    /* If no worker gave a reason, read why the broker dropped the message: it
     * expired, was rejected, or was delivered too often. The newest death comes
     * first. */
    v = value_find(t, "x-death");
    if (out->reason != REASON_NONE || !v || v->kind != AMQP_FIELD_KIND_ARRAY ||
        v->value.array.num_entries == 0 ||
        v->value.array.entries[0].kind != AMQP_FIELD_KIND_TABLE)
        return 0;
    t = &v->value.array.entries[0].value.table;
    if (text_find(t, "reason", &out->error))
        out->reason = field_named(out->error, "expired")    ? REASON_EXPIRED
                      : field_named(out->error, "rejected") ? REASON_REJECTED
                                                            : REASON_CRASHED;
    if (number_find(t, "time", &seconds) && seconds < UINT64_MAX / NS_PER_S)
        out->died_ns = seconds * NS_PER_S;
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
