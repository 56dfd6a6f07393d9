/* envelope_made.c - the properties of a message that was on no broker yet (see
 * envelope_made.h)
 *
 * They are encoded after each step, and envelope_copy goes on from there: so
 * there is one writer of histories and of all headers of ours.
 */
#include "common/amqp/envelope_made.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM    65536              /* history and stderr have 8 KiB */
#define ENTRIES (HEADER_X_MAX + 5) /* and sent, expires, timeout, ... */

static amqp_bytes_t word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

static amqp_bytes_t text(struct header_text t)
{
    return (amqp_bytes_t){t.size, (void *)(uintptr_t)t.at};
}

static amqp_table_entry_t number(const char *name, uint64_t n)
{
    return (amqp_table_entry_t){
        .key = word(name),
        .value = {.kind = AMQP_FIELD_KIND_I64,
                  .value.i64 = n > INT64_MAX ? INT64_MAX : (int64_t)n}};
}

/* encode - anew to `raw`; the old bytes are given up when the new ones are
 * there */
static int encode(struct envelope_made *e, amqp_basic_properties_t *p)
{
    amqp_bytes_t to = {ROOM, malloc(ROOM)};
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
    amqp_table_entry_t all[ENTRIES];
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
    p.message_id = word(id_text);
    if (priority) {
        p.priority = priority < UINT8_MAX ? (uint8_t)priority : UINT8_MAX;
        p._flags |= AMQP_BASIC_PRIORITY_FLAG;
    }
    if (h->fields & HEADER_SENT)
        all[n++] = number("mqw-sent", h->sent_ns);
    if (h->fields & HEADER_EXPIRES)
        all[n++] = number("mqw-expires", h->expires_ns);
    if (h->fields & HEADER_TIMEOUT)
        all[n++] = number("mqw-timeout", h->timeout_ms);
    if (h->fields & HEADER_FORWARDED)
        all[n++] = number("mqw-forwarded", h->forwarded);
    if (h->fields & HEADER_GROUP)
        all[n++] =
            (amqp_table_entry_t){.key = word("mqw-group"),
                                 .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                           .value.bytes = text(h->group)}};
    while (h->bytes && n < ENTRIES &&
           header_next_x(data, h, &cursor, &name, &value))
        all[n++] = (amqp_table_entry_t){.key = text(name),
                                        .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                                  .value.bytes = text(value)}};
    p.headers = (amqp_table_t){n, all};
    return encode(e, &p);
}

int envelope_made_attempt(struct envelope_made *e, const struct ulid *id,
                          const struct envelope_attempt *failed)
{
    const struct envelope_change change = {
        .id = id, .attempt = failed->number, .failed = failed};
    int err = envelope_copy(&e->copy, e->raw, &change, false);

    if (err)
        return err;
    err = encode(e, &e->copy.properties);
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
