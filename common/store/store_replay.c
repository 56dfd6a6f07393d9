/* store_replay.c - whether a message is a letter that was sent again; see
 * store.h
 *
 * The number of a letter can be guessed and its message id is in every log, so
 * neither proves anything. A token does: mqdlq makes it, writes it to the row,
 * and then sends it in the header. Only the store and who may read the queue
 * know it. So body and priority need not be compared: who could send other
 * bytes under a token has read the queue, and with that taken the message.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "common/store/sql.h"

_Static_assert(sizeof(struct ulid) == (size_t)2 * STORE_IDENTITY,
               "a token is an identity and as many random bytes");

/* Columns of SQL_REPLAY_FIND. */
enum {
    FIND_GIVEN,  /* the highest number that a row ever had */
    FIND_STATE,  /* NULL: there is no such row */
    FIND_ID,     /* of the message */
    FIND_DIED,   /* of the row */
    FIND_N,      /* of the replay with that token; NULL: none has it */
    FIND_BEGAN,  /* that replay: died_ns of the letter that was sent */
    FIND_LAST_N, /* of the row's last replay */
};

/* store_token_make - one that nobody can guess */
int store_token_make(const struct store *s, struct ulid *token)
{
    ssize_t n = getrandom(token->bytes + STORE_IDENTITY, STORE_IDENTITY, 0);

    memcpy(token->bytes, store_identity(s), STORE_IDENTITY);
    return n == STORE_IDENTITY ? 0 : n < 0 ? -errno : -EIO;
}

/* replay_of_gone - a letter that is not in the store
 * Row numbers are never used twice, so a letter that is gone was settled: done,
 * discarded, or moved to a dead-letter queue. That is certain only of a number
 * that this store has given to a letter: the token must begin with our
 * identity, or the message comes from a store that was removed, or from the
 * store of another queue. A sender that forges such a token loses its own
 * message, and no other. */
static enum store_replay replay_of_gone(const struct store *s, sqlite3_stmt *st,
                                        int64_t row, const struct ulid *token)
{
    bool ours = !memcmp(token->bytes, store_identity(s), STORE_IDENTITY);

    return ours && row <= sqlite3_column_int64(st, FIND_GIVEN) ? REPLAY_OVER
                                                               : REPLAY_NONE;
}

/* replay_of_row - a letter that is there
 * Its last replay is open while it is marked replayed. It is also open if the
 * letter is dead by the very death that it was sent after: then it was recalled
 * (store_recall), and yet here is the message. */
static enum store_replay replay_of_row(sqlite3_stmt *st, const struct ulid *id)
{
    const void *known = sqlite3_column_blob(st, FIND_ID);
    int state = sqlite3_column_int(st, FIND_STATE);

    if (sqlite3_column_type(st, FIND_N) == SQLITE_NULL || !known ||
        sqlite3_column_bytes(st, FIND_ID) != sizeof *id ||
        memcmp(known, id, sizeof *id) != 0)
        return REPLAY_NONE;
    if (sqlite3_column_int64(st, FIND_N) !=
        sqlite3_column_int64(st, FIND_LAST_N))
        return REPLAY_OVER;
    if (state == STORE_DEAD)
        return sql_column_u64(st, FIND_DIED) == sql_column_u64(st, FIND_BEGAN)
                   ? REPLAY_OPEN
                   : REPLAY_OVER;
    return state == STORE_REPLAYED ? REPLAY_OPEN : REPLAY_OVER;
}

/* store_replay_find - one statement, so one moment of the store */
int store_replay_find(struct store *s, int64_t row, const struct ulid *id,
                      const struct ulid *token, enum store_replay *out)
{
    sqlite3_stmt *st;
    int found =
        store_ask(s, &st, SQL_REPLAY_FIND,
                  SQL_VALUES(value_int(row), value_blob(token, sizeof *token)));

    if (found > 0)
        *out = sqlite3_column_type(st, FIND_STATE) == SQLITE_NULL
                   ? replay_of_gone(s, st, row, token)
                   : replay_of_row(st, id);
    return store_answered(s, st, found ? found : -EIO);
}
