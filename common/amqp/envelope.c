/* envelope.c - the properties of a message on a broker (see envelope.h) */
#include "common/amqp/envelope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/amqp/topology.h"
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

/* field_number - of whatever width a producer's library chose; false: none, or
 * below 0 */
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

/* ---- reading ---- */

static bool text(const amqp_field_value_t *v, struct header_text *out)
{
    amqp_bytes_t bytes;

    if (!field_text(v, &bytes))
        return false;
    *out = (struct header_text){bytes.bytes, bytes.len};
    return true;
}

/* brokers - an x- header that is the broker's own */
static bool brokers(amqp_bytes_t key)
{
    return field_begins(key, "x-death") ||
           field_begins(key, "x-first-death-") ||
           field_begins(key, "x-last-death-") ||
           field_named(key, "x-delivery-count") ||
           field_named(key, "x-acquired-count");
}

/* What the headers say, for the text header in front of the body. */
struct reading {
    struct envelope *e;
    struct header h;
    struct header_x x[HEADER_X_MAX];
    size_t x_count;
    bool named; /* it has an id */
};

/* foreign - an x- header of a producer */
static void foreign(struct reading *r, const amqp_table_entry_t *t)
{
    struct header_text name = {t->key.bytes, t->key.len}, value;

    if (r->x_count < HEADER_X_MAX && header_x_name_ok(name.at, name.size) &&
        !brokers(t->key) && text(&t->value, &value) &&
        header_value_ok(value.at, value.size))
        r->x[r->x_count++] = (struct header_x){name, value};
}

/* group - it says where the message belongs, whether it can be one or not */
static void group(struct reading *r, const amqp_table_entry_t *t)
{
    struct envelope *e = r->e;
    struct header_text key;

    e->has_group = true;
    e->good_group = text(&t->value, &key) && key.size > 0 &&
                    header_value_ok(key.at, key.size);
    if (!e->good_group)
        return;
    e->group_crc = partition_crc(key.at, key.size);
    r->h.group = key;
    r->h.fields |= HEADER_GROUP;
}

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
static void header(struct reading *r, const amqp_table_entry_t *t)
{
    struct envelope *e = r->e;
    struct header_text id;
    uint64_t n;

    if (!field_begins(t->key, OURS)) {
        foreign(r, t);
    } else if (field_named(t->key, "mqw-id")) {
        r->named =
            text(&t->value, &id) && ulid_parse(id.at, id.size, &e->id) == 0;
    } else if (field_named(t->key, "mqw-group")) {
        group(r, t);
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

/* A hash of 128 bits: FNV-1a twice, the second from another seed and over
 * other bytes. */
struct hash {
    uint64_t a, b;
};

static void mix(struct hash *h, const void *data, size_t size)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < size; i++) {
        h->a = (h->a ^ at[i]) * 0x100000001b3U;
        h->b = (h->b ^ (at[i] + 1U)) * 0x100000001b3U;
        h->b ^= h->a >> 29;
    }
}

/* derive - an id of what does not change from delivery to delivery. Equal
 * messages share it: nothing tells them apart. */
static void derive(struct envelope *e, const amqp_basic_properties_t *p,
                   const void *body, size_t size)
{
    const amqp_bytes_t all[] = {p->message_id, p->correlation_id, p->reply_to,
                                p->type, p->app_id};
    struct hash h = {0xcbf29ce484222325U, 0x84222325cbf29ce4U};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mix(&h, &all[i].len, sizeof all[i].len);
        mix(&h, all[i].bytes, all[i].len);
    }
    mix(&h, &p->timestamp, sizeof p->timestamp);
    mix(&h, body, size);
    memcpy(e->id.bytes, &h, sizeof e->id.bytes);
    e->id.bytes[0] |= 1; /* all 0 would be no id */
    e->derived = true;
}

/* known - properties that have a place of their own; those that are not there
 * are 0 */
static void known(struct reading *r, const amqp_basic_properties_t *p)
{
    struct envelope *e = r->e;

    e->priority = p->priority;
    if (!r->named)
        r->named = ulid_parse(p->message_id.bytes ? p->message_id.bytes : "",
                              p->message_id.len, &e->id) == 0;
    if (!(r->h.fields & HEADER_SENT) && p->timestamp > 0 &&
        p->timestamp < (uint64_t)INT64_MAX / NS_PER_S) {
        r->h.sent_ns = p->timestamp * NS_PER_S;
        r->h.fields |= HEADER_SENT;
    }
}

/* head_write - with as many of the x- lines as there is room for */
static int head_write(struct reading *r, char head[HEADER_MAX])
{
    int n = header_write(head, HEADER_MAX, &r->h, r->x, r->x_count);

    while (n == -EMSGSIZE && r->x_count > 0)
        n = header_write(head, HEADER_MAX, &r->h, r->x, --r->x_count);
    return n;
}

int envelope_read(struct envelope *out, amqp_bytes_t raw, const void *body,
                  size_t body_size, char head[HEADER_MAX])
{
    struct reading r = {.e = out};
    amqp_basic_properties_t *p;
    amqp_pool_t pool;
    void *decoded;
    int n = -EBADMSG;

    *out = (struct envelope){0};
    init_amqp_pool(&pool, POOL_PAGE);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, raw, &decoded) ==
        AMQP_STATUS_OK) {
        p = decoded;
        for (int i = 0; i < p->headers.num_entries; i++)
            header(&r, &p->headers.entries[i]);
        known(&r, p);
        if (!r.named)
            derive(out, p, body, body_size);
        r.h.id = out->id;
        r.h.size = body_size;
        r.h.fields |= HEADER_ID | HEADER_SIZE;
        n = head_write(&r, head);
    }
    empty_amqp_pool(&pool);
    out->head = n > 0 ? (size_t)n : 0;
    return n < 0 ? n : 0;
}

uint64_t envelope_number(amqp_bytes_t raw)
{
    amqp_basic_properties_t *p;
    uint64_t found = 0;
    amqp_pool_t pool;
    void *decoded;

    init_amqp_pool(&pool, POOL_PAGE);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, raw, &decoded) ==
        AMQP_STATUS_OK) {
        p = decoded;
        for (int i = 0; i < p->headers.num_entries; i++)
            if (field_named(p->headers.entries[i].key, "mqw-number"))
                (void)field_number(&p->headers.entries[i].value, &found);
    }
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

static void *room(struct writing *w, size_t size)
{
    void *at = amqp_pool_alloc(&w->copy->pool, size);

    w->failed = w->failed || !at;
    return at;
}

/* bytes - a copy, as what is written may outlive what it was made of */
static amqp_bytes_t bytes(struct writing *w, const void *from, size_t size)
{
    void *at = room(w, size ? size : 1);

    if (at && size)
        memcpy(at, from, size);
    return (amqp_bytes_t){at ? size : 0, at};
}

static amqp_table_entry_t entry_number(const char *name, uint64_t n)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_I64,
                  .value.i64 = n > INT64_MAX ? INT64_MAX : (int64_t)n}};
}

static amqp_table_entry_t entry_text(struct writing *w, const char *name,
                                     const char *value, size_t size)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_UTF8,
                  .value.bytes = bytes(w, value, size)}};
}

static void put(struct writing *w, amqp_table_entry_t entry)
{
    w->entries[w->count++] = entry;
}

/* stays - a header that the copy has, too */
static bool stays(amqp_bytes_t key, const struct envelope_change *c)
{
    static const char *const renewed[] = {
        "mqw-id",     "mqw-attempt", "mqw-first",  "mqw-due",    "mqw-hop",
        "mqw-resent", "mqw-history", "mqw-stderr", "mqw-number", "mqw-reason",
        "mqw-error",  "mqw-died",    "CC",         "BCC"};

    for (size_t i = 0; i < sizeof renewed / sizeof renewed[0]; i++)
        if (field_named(key, renewed[i]))
            return false;
    if (c->replay && field_named(key, "mqw-replay"))
        return false;
    if (c->line && field_named(key, "mqw-line"))
        return false;
    if (c->no_expiry && field_named(key, "mqw-expires"))
        return false;
    return !brokers(key);
}

/* attempt_entry - one failed run */
static amqp_field_value_t attempt_entry(struct writing *w,
                                        const struct envelope_attempt *a)
{
    amqp_table_entry_t *t = room(w, ENTRY * sizeof *t);
    size_t error = a->error ? strlen(a->error) : 0;

    if (!t)
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_VOID};
    if (error > ENVELOPE_ERROR)
        error = ENVELOPE_ERROR;
    t[0] = entry_number("at", a->at_ns);
    t[1] = entry_number("attempt", a->number);
    t[2] = entry_number("ms", a->duration_ns / NS_PER_MS);
    t[3] = entry_text(w, "error", a->error, error);
    t[4] = entry_text(w, "machine", a->machine, strlen(a->machine));
    return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_TABLE,
                                .value.table = {ENTRY, t}};
}

/* history - of the original, and one more: the first and the last ones */
static void history(struct writing *w, const amqp_table_t *old,
                    const struct envelope_attempt *failed)
{
    const amqp_array_t *was = NULL;
    amqp_field_value_t *all;
    int from = 0, n = 0, more = failed != NULL;

    for (int i = 0; i < old->num_entries; i++)
        if (field_named(old->entries[i].key, "mqw-history") &&
            old->entries[i].value.kind == AMQP_FIELD_KIND_ARRAY)
            was = &old->entries[i].value.value.array;
    all = room(w, ENVELOPE_HISTORY * sizeof *all);
    if (!all || (!was && !more))
        return;
    if (was && was->num_entries + more > ENVELOPE_HISTORY) {
        all[n++] = was->entries[0];
        from = was->num_entries + more - (ENVELOPE_HISTORY - 1);
    }
    for (; was && from < was->num_entries; from++)
        all[n++] = was->entries[from];
    if (more)
        all[n++] = attempt_entry(w, failed);
    put(w, (amqp_table_entry_t){.key = amqp_cstring_bytes("mqw-history"),
                                .value = {.kind = AMQP_FIELD_KIND_ARRAY,
                                          .value.array = {n, all}}});
}

/* tail_write - the end of what the last handler wrote to stderr */
static void tail_write(struct writing *w, const amqp_table_t *old,
                       const struct envelope_attempt *failed)
{
    size_t size = failed ? failed->tail_size : 0;

    if (size > ENVELOPE_STDERR)
        size = ENVELOPE_STDERR;
    if (size > 0)
        put(w, entry_text(w, "mqw-stderr",
                          failed->tail + failed->tail_size - size, size));
    for (int i = 0; !failed && i < old->num_entries; i++)
        if (field_named(old->entries[i].key, "mqw-stderr"))
            put(w, old->entries[i]);
}

/* ours - what we say of the copy */
static void ours(struct writing *w, const struct envelope_change *c)
{
    char id[ULID_TEXT];

    ulid_print(*c->id, id);
    put(w, entry_text(w, "mqw-id", id, strlen(id)));
    put(w, entry_number("mqw-attempt", c->attempt));
    put(w, entry_number("mqw-number", c->number));
    if (c->line)
        put(w, entry_number("mqw-line", c->line));
    if (c->hop)
        put(w, entry_number("mqw-hop", c->hop));
    if (c->first_ns)
        put(w, entry_number("mqw-first", c->first_ns));
    if (c->replay)
        put(w, entry_number("mqw-replay", c->replay));
    if (c->due_ns)
        put(w, entry_number("mqw-due", c->due_ns));
    if (c->resent)
        put(w, entry_number("mqw-resent", 1));
    if (c->reason)
        put(w, entry_text(w, "mqw-reason", c->reason, strlen(c->reason)));
    if (c->error)
        put(w, entry_text(w, "mqw-error", c->error,
                          strnlen(c->error, ENVELOPE_ERROR)));
    if (c->died_ns)
        put(w, entry_number("mqw-died", c->died_ns));
}

/* fill - the copy's properties, from those of the original */
static int fill(struct envelope_copy *out, amqp_basic_properties_t *p,
                const struct envelope_change *c, bool plain)
{
    struct writing w = {.copy = out};

    w.entries = room(&w, ((size_t)p->headers.num_entries + OURS_MOST) *
                             sizeof *w.entries);
    if (!w.entries)
        return -ENOMEM;
    for (int i = 0; i < p->headers.num_entries; i++)
        if (stays(p->headers.entries[i].key, c))
            put(&w, p->headers.entries[i]);
    ours(&w, c);
    if (!plain) {
        history(&w, &p->headers, c->failed);
        tail_write(&w, &p->headers, c->failed);
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
    void *decoded;
    int err = -EBADMSG;

    init_amqp_pool(&out->pool, POOL_PAGE);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &out->pool, raw, &decoded) ==
        AMQP_STATUS_OK)
        err = fill(out, decoded, change, plain);
    if (err)
        envelope_copy_free(out);
    return err;
}

void envelope_copy_free(struct envelope_copy *c)
{
    empty_amqp_pool(&c->pool);
}

#define MADE_ROOM    65536              /* history and stderr have 8 KiB */
#define MADE_ENTRIES (HEADER_X_MAX + 5) /* and sent, expires, timeout, ... */

static amqp_bytes_t header_bytes(struct header_text t)
{
    return (amqp_bytes_t){t.size, (void *)(uintptr_t)t.at};
}

/* Encode anew to `raw`; the old bytes are given up when the new ones are
 * there */
static int made_encode(struct envelope_made *e, amqp_basic_properties_t *p)
{
    amqp_bytes_t to = {MADE_ROOM, malloc(MADE_ROOM)};
    int n = -1;

    if (!to.bytes)
        return -ENOMEM;
    n = amqp_encode_properties(AMQP_BASIC_CLASS, p, to);
    if (n < 0) {
        free(to.bytes);
        return -EMSGSIZE;
    }
    to.len = (size_t)n;
    free(e->raw.bytes);
    e->raw = to;
    return 0;
}

int envelope_made_begin(struct envelope_made *e, const struct ulid *id,
                        uint32_t priority, const void *data,
                        const struct header *h)
{
    amqp_table_entry_t all[MADE_ENTRIES];
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG |
                                           AMQP_BASIC_DELIVERY_MODE_FLAG |
                                           AMQP_BASIC_MESSAGE_ID_FLAG,
                                 .delivery_mode = 2};
    struct header_text name, value;
    char id_text[ULID_TEXT];
    size_t cursor = 0;
    int n = 0;

    *e = (struct envelope_made){0};
    ulid_print(*id, id_text);
    p.message_id = amqp_cstring_bytes(id_text);
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
        all[n++] = (amqp_table_entry_t){
            .key = amqp_cstring_bytes("mqw-group"),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                      .value.bytes = header_bytes(h->group)}};
    while (h->bytes && n < MADE_ENTRIES &&
           header_next_x(data, h, &cursor, &name, &value))
        all[n++] =
            (amqp_table_entry_t){.key = header_bytes(name),
                                 .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                           .value.bytes = header_bytes(value)}};
    p.headers = (amqp_table_t){n, all};
    return made_encode(e, &p);
}

int envelope_made_attempt(struct envelope_made *e, const struct ulid *id,
                          const struct envelope_attempt *failed)
{
    const struct envelope_change change = {
        .id = id, .attempt = failed->number, .failed = failed};
    int err = envelope_copy(&e->copy, e->raw, &change, false);

    if (err)
        return err;
    err = made_encode(e, &e->copy.properties);
    envelope_copy_free(&e->copy);
    return err;
}

int envelope_made_end(struct envelope_made *e,
                      const struct envelope_change *change)
{
    int err = envelope_copy(&e->copy, e->raw, change, false);

    e->whole = !err;
    return err;
}

void envelope_made_free(struct envelope_made *e)
{
    if (e->whole)
        envelope_copy_free(&e->copy);
    free(e->raw.bytes);
    *e = (struct envelope_made){0};
}

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
