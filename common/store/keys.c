/* keys.c - keys that make messages unique for a while (see store.h)
 *
 * A message claims its key before it runs, or is stored, for the first time.
 * Crash before the commit: the message is in its slot, and claims the key at
 * the next start, before any later message does. After the commit: the key
 * names the message's sequence, so the message is no duplicate of itself when
 * it comes again.
 * Another message is a duplicate if the key was taken when that message was
 * received; the time of the claim does not matter. So a kill between the claim
 * and the end of a duplicate leads to the same answer at the next start.
 * Messages claim in the order of their sequences, except that a later message
 * may claim first after the disk refused a claim. So a key also stores the time
 * from which its message has it.
 * The worker claims and frees keys, on any thread; mqctl lists and drops them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/store/sql.h"

/* How long an expired key is kept, for a message that comes again or had to
 * wait for the disk, and for a clock that is set back a little. */
#define STAYS_NS (60 * NS_PER_S)

enum holder { HOLDER_NONE, HOLDER_SELF, HOLDER_OTHER };

/* Find the holder of the key, from a row of SQL_KEY; HOLDER_NONE if the key was
 * free when the message came. *ahead is set if an earlier message holds the key
 * from a time in the future, because the clock was set back since. */
static enum holder holder_of(sqlite3_stmt *st, const struct store_key *key,
                             struct ulid *first, bool *ahead)
{
    const void *id = sqlite3_column_blob(st, 1);
    uint64_t seq = sql_column_u64(st, 0);

    *ahead = false;
    /* If the claim of a later message begins no earlier than this message's
     * claim expires, this message had the key first, and the later one was its
     * duplicate until then. Otherwise the later message had the key first. */
    if (seq == key->seq ||
        (seq > key->seq && sql_column_u64(st, 2) >= key->until_ns))
        return HOLDER_SELF;
    if (seq < key->seq && sql_column_u64(st, 3) <= key->received_ns)
        return HOLDER_NONE;
    *ahead = seq < key->seq && sql_column_u64(st, 2) > key->received_ns;
    *first = (struct ulid){{0}};
    if (id && sqlite3_column_bytes(st, 1) == sizeof *first)
        memcpy(first, id, sizeof *first);
    return HOLDER_OTHER;
}

/* Take the key if no message has it. Each call that takes a key also deletes up
 * to eight expired keys, so that their number does not grow. */
int sql_key_claim(struct sql *sql, void *claim)
{
    struct key_claim *c = claim;
    const struct store_key *k = c->key;
    enum holder holder = HOLDER_NONE;
    bool ahead = false;
    sqlite3_stmt *st;
    int err =
        sql_bind(sql, SQL_KEY, &st, SQL_VALUES(value_text(k->text, k->size)));

    if (err)
        return err;
    err = sql_step(st);
    if (err > 0)
        holder = holder_of(st, k, c->first, &ahead);
    c->taken = holder == HOLDER_OTHER;
    sql_done(st);
    /* The claim begins in the future, so its times are wrong, but its length is
     * right: let it begin now. */
    if (err >= 0 && ahead)
        err = sql_run(sql, SQL_KEY_ANCHOR,
                      SQL_VALUES(value_text(k->text, k->size),
                                 value_u64(k->received_ns)));
    if (err < 0 || holder != HOLDER_NONE)
        return err < 0 ? err : 0;
    err =
        sql_run(sql, SQL_KEY_TAKE,
                SQL_VALUES(value_text(k->text, k->size), value_u64(k->seq),
                           value_blob(k->id.bytes, sizeof k->id.bytes),
                           value_u64(k->received_ns), value_u64(k->until_ns)));
    if (err || k->received_ns < STAYS_NS)
        return err;
    return sql_run(sql, SQL_KEYS_OVER,
                   SQL_VALUES(value_u64(k->received_ns - STAYS_NS)));
}

int sql_key_free(struct sql *sql, uint64_t seq)
{
    return seq ? sql_run(sql, SQL_KEY_FREE, SQL_VALUES(value_u64(seq))) : 0;
}

int store_key_free(struct store *s, uint64_t seq)
{
    return seq ? store_run(s, SQL_KEY_FREE, SQL_VALUES(value_u64(seq)), NULL)
               : 0;
}

int store_key_drop(struct store *s, const char *text, size_t size)
{
    int64_t n;
    int err =
        store_run(s, SQL_KEY_DROP, SQL_VALUES(value_text(text, size)), &n);

    return err || n > 0 ? err : -ENOENT;
}

int64_t store_keys_count(struct store *s, uint64_t now_ns)
{
    return store_tally(s, SQL_KEYS_COUNT, SQL_VALUES(value_u64(now_ns)));
}

/* Copy a row of SQL_KEYS. */
static int key_copy(sqlite3_stmt *st, const void *arg, void **row,
                    size_t *bytes)
{
    static const int columns[] = {0, 1};
    struct sql_bytes part[2];
    struct store_key *key = sql_copy(st, sizeof *key, columns, 2, part);

    (void)arg;
    if (!key)
        return -ENOMEM;
    *row = key;
    *bytes = sizeof *key + part[0].size;
    *key = (struct store_key){.text = part[0].at,
                              .size = part[0].size,
                              .received_ns = sql_column_u64(st, 2),
                              .until_ns = sql_column_u64(st, 3)};
    if (part[0].at && part[0].size <= STORE_GROUP_MAX &&
        part[1].size == sizeof key->id) {
        memcpy(key->id.bytes, part[1].at, sizeof key->id.bytes);
        return 0;
    }
    free(key);
    return -EUCLEAN;
}

int store_keys_each(struct store *s, uint64_t now_ns,
                    int (*visit)(const struct store_key *key, void *arg),
                    void *arg)
{
    char last[STORE_GROUP_MAX] = "";
    struct store_page page;
    size_t size = 0;
    int more, err;

    do {
        more = store_page_read(
            s, &page, key_copy, NULL, SQL_KEYS,
            SQL_VALUES(value_text(last, size), value_u64(now_ns)));
        err = more < 0 ? more : 0;
        for (size_t i = 0; i < page.count; i++) {
            const struct store_key *key = page.rows[i];

            size = key->size;
            memcpy(last, key->text, size);
            if (!err)
                err = visit(key, arg);
            free(page.rows[i]);
        }
    } while (!err && more == STEP_ROW);
    return err;
}

int store_key_claim(struct store *s, const struct store_key *key,
                    struct ulid *first)
{
    struct key_claim c = {.key = key, .first = first};
    enum holder holder = HOLDER_NONE;
    bool ahead = false;
    sqlite3_stmt *st;
    int err = store_ask(s, &st, SQL_KEY,
                        SQL_VALUES(value_text(key->text, key->size)));

    if (err > 0)
        holder = holder_of(st, key, first, &ahead);
    (void)store_answered(s, st, err);
    if (err < 0)
        return err;
    /* A read is enough if the key has a holder. */
    if (holder != HOLDER_NONE && !ahead)
        return holder == HOLDER_OTHER ? -EEXIST : 0;
    err = FAULT_POINTS("store_key", store_write(s, sql_key_claim, NULL, &c));
    return !err && c.taken ? -EEXIST : err;
}
