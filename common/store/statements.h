/* statements.h - all SQL on rows, as STATEMENT(name, text)
 *
 * WHAT   One list of statements, from which sql.h makes the names and sql.c the
 *        texts. The numbers of states and flags are those of store.h. The
 *        condition "state >= 3" lets SQLite use the index of letters. The
 *        condition on the body comes last, so that few bodies are read.
 * WHO    sql.h and sql.c; each defines STATEMENT before it includes this file.
 */
#define ROW_COLUMNS                                                        \
    "row, state, ifnull(receive_seq, 0), id, priority, attempts, crashes," \
    " flags, group_key, due_ns, delay_ns, first_received_ns, died_ns,"     \
    " reason, error, header_size, length(data)"
#define LAST_REPLAY(column)           \
    "(SELECT " column " FROM replays" \
    " WHERE replays.row = messages.row ORDER BY n DESC LIMIT 1)"
/* Text of the last attempt's error, if messages.error is that error. */
#define ERROR_TEXT_OF                                           \
    "(SELECT CASE WHEN attempts.error IS messages.error THEN"   \
    " nullif(error_text(attempts.error, said, stderr), '') END" \
    " FROM attempts WHERE attempts.row = messages.row"          \
    " ORDER BY n DESC LIMIT 1)"
#define LETTER_COLUMNS                                                         \
    ROW_COLUMNS ", data, (SELECT stderr FROM attempts"                         \
                " WHERE attempts.row = messages.row ORDER BY n DESC LIMIT 1)," \
                " boot, " LAST_REPLAY("token") ", " LAST_REPLAY(               \
                    "marked_ns") ", " LAST_REPLAY("sent") ", " ERROR_TEXT_OF

#define LETTER_WANTED                                               \
    " AND (died_ns, row) > (?1, ?2) AND (died_ns, row) < (?3, ?4)"  \
    " AND (?5 = 0 OR reason = ?5)"                                  \
    " AND (?6 IS NULL OR group_key = ?6)"                           \
    " AND (?7 IS NULL OR error_like(?7, error, " ERROR_TEXT_OF "))" \
    " AND (?8 IS NULL OR body_has(data, header_size, ?8))"
#define LETTERS " FROM messages WHERE state >= 3 AND state = ?9" LETTER_WANTED
/* Rows that were letters: the replayed message failed and is to run again. */
#define RETRIES                                                   \
    " FROM messages WHERE state < 3 AND row IN (SELECT row FROM " \
    "replays)" LETTER_WANTED
/* Only an operator removes a letter before its hook has run. */
#define HOOK_OVER \
    " AND NOT EXISTS (SELECT 1 FROM hooks WHERE hooks.row = messages.row)"
/* Unlike the flags of each row, the index messages_cancelled is read fast. */
#define NOT_CANCELLED(state)                                         \
    " AND row NOT IN (SELECT row FROM messages WHERE state = " state \
    " AND flags & 8)"
#define NEWEST_FIRST " ORDER BY died_ns DESC, row DESC"
#define OLDEST_FIRST " ORDER BY died_ns, row"

/* Columns of a waiting row: ROW_COLUMNS, but with the error of the last attempt
 * if the row has none; then up to `most` bytes of the body, and the text of the
 * last attempt's error. */
#define LAST_ERROR                                     \
    "ifnull(error, (SELECT a.error FROM attempts AS a" \
    " WHERE a.row = messages.row ORDER BY n DESC LIMIT 1))"
#define LAST_TEXT                                                \
    "(SELECT nullif(error_text(a.error, said, stderr), '') FROM" \
    " attempts AS a WHERE a.row = messages.row ORDER BY n DESC LIMIT 1)"
#define WAITING_COLUMNS(most)                                              \
    "row, state, ifnull(receive_seq, 0), id, priority, attempts, crashes," \
    " flags, group_key, due_ns, delay_ns, first_received_ns, died_ns, "    \
    "reason, " LAST_ERROR ", header_size, length(data),"                   \
    " substr(data, header_size + 1, " most "), " LAST_TEXT
#define WAITING_WANTED                                                   \
    " AND (?5 IS NULL OR error_like(?5, " LAST_ERROR ", " LAST_TEXT "))" \
    " AND NOT flags & 8"                                                 \
    " AND first_received_ns >= ?7 AND first_received_ns < ?8"            \
    " AND (?6 IS NULL OR body_has(data, header_size, ?6))"
#define BY_DUE                                                      \
    " AND (due_ns, row) > (?1, ?2) AND due_ns <= ?3" WAITING_WANTED \
    " ORDER BY due_ns, row LIMIT ?10"

/* Columns of the group k. Each is one search of the index messages_groups, even
 * if the group has many letters, unless all of them were let go. */
#define GROUP_COLUMNS                                                       \
    "k, (SELECT count(*) FROM messages WHERE group_key = k AND state = 2)," \
    " EXISTS (SELECT 1 FROM messages WHERE group_key = k AND state >= 3"    \
    " AND NOT flags & 16),"                                                 \
    " coalesce((SELECT max(row) FROM messages WHERE group_key = k"          \
    " AND state = 1 AND attempts > 0), (SELECT min(row) FROM messages"      \
    " WHERE group_key = k AND state = 1 AND flags & 4))"

/* Distance of the wall clock from CLOCK_BOOTTIME at the worker's last check
 * (store_clock_follow). All due times in the table refer to that wall clock,
 * and due rows are found by it. */
#define AHEAD "(SELECT ahead_ns FROM clock)"
/* Due time to write: `boot` by CLOCK_BOOTTIME, or `due` if `boot` is 0; capped
 * in the year 2262. */
#define DUE(due, boot)                                                    \
    "iif(" boot " > 0, min(" boot ", 9223372036854775807 - max(0, " AHEAD \
    ")) + "                                                               \
    "" AHEAD ", " due ")"

/* clang-format off */
STATEMENT(SQL_BEGIN, "BEGIN IMMEDIATE")
STATEMENT(SQL_COMMIT, "COMMIT")
STATEMENT(SQL_ROLLBACK, "ROLLBACK")
STATEMENT(SQL_SAVE, "SAVEPOINT op")
STATEMENT(SQL_UNDO, "ROLLBACK TO op")
STATEMENT(SQL_RELEASE, "RELEASE op")
STATEMENT(SQL_INSERT,
    "INSERT INTO messages (state, receive_seq, id, priority, attempts,"
    " crashes, flags, group_key, due_ns, delay_ns, first_received_ns,"
    " died_ns, reason, error, boot, header_size, data)"
    " VALUES (?1, nullif(?2, 0), ?3, ?4, ?5, ?6, ?7, ?8, " DUE("?9", "?10") ","
    " ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)")
STATEMENT(SQL_UPDATE,
    "UPDATE messages SET state = ?1, receive_seq = nullif(?2, 0), id = ?3,"
    " priority = ?4, attempts = ?5, crashes = ?6, flags = ?7 | (flags & 8),"
    " group_key = ?8, due_ns = " DUE("?9", "?10") ", delay_ns = ?11,"
    " first_received_ns = ?12, died_ns = ?13, reason = ?14, error = ?15,"
    " boot = ?16 WHERE row = ?17")
STATEMENT(SQL_DELETE, /* a letter that was edited has another id */
    "DELETE FROM messages WHERE row = ?1 AND"
    " (state < 3 OR ?2 IS NULL OR id = ?2)")
STATEMENT(SQL_ADD_ATTEMPT,
    "INSERT INTO attempts (row, n, started_ns, duration_ns, error, stderr,"
    " said, cpu_ns, peak_bytes) SELECT ?1, 1 + ifnull(max(n), 0), ?2, ?3, ?4,"
    " ?5, ?6, nullif(?7, 0), nullif(?8, 0) FROM attempts WHERE row = ?1")
STATEMENT(SQL_STRAYS,
    "SELECT died_ns, row FROM messages WHERE state >= 3 AND state = 4"
    " AND (died_ns, row) > (?1, ?2) AND elsewhere(boot, ?4)"
    " AND NOT EXISTS (SELECT 1 FROM spool WHERE letter = messages.row)"
    OLDEST_FIRST " LIMIT ?3")
STATEMENT(SQL_DOUBT, "UPDATE messages SET flags = flags | 1"
                     " WHERE state IN (1, 2) AND flags & 1 = 0")
STATEMENT(SQL_RECALL,
    "UPDATE messages SET state = 3, boot = NULL"
    " WHERE row = ?1 AND state = 4 AND elsewhere(boot, ?2)"
    " AND NOT EXISTS (SELECT 1 FROM spool WHERE letter = messages.row)")
STATEMENT(SQL_DUE,
    "SELECT due_ns, receive_seq, row, max(0, due_ns - " AHEAD ")"
    " FROM messages INDEXED BY messages_order WHERE state = 1"
    " AND priority = ?1 AND (due_ns, receive_seq, row) > (?2, ?3, ?4)"
    " ORDER BY due_ns, receive_seq, row LIMIT ?5")
STATEMENT(SQL_DUE_PRIORITY,
    "SELECT priority FROM messages INDEXED BY messages_order"
    " WHERE state = 1 AND priority < ?1 ORDER BY priority DESC LIMIT 1")
STATEMENT(SQL_DUE_NEXT,
    "SELECT max(0, due_ns - " AHEAD ") FROM messages INDEXED BY messages_due"
    " WHERE state = 1 AND due_ns > ?1 + " AHEAD " ORDER BY due_ns LIMIT 1")
STATEMENT(SQL_CLOCK, "SELECT ahead_ns, boot FROM clock")
STATEMENT(SQL_CLOCK_SET, "UPDATE clock SET ahead_ns = ?1, boot = ?2")
STATEMENT(SQL_CLOCK_ROWS,
    "UPDATE messages SET due_ns = min(due_ns + ?1, ?2 + delay_ns),"
    " first_received_ns = first_received_ns + ?1"
    " WHERE state = 1 AND delay_ns > 0"
    " AND (?1 <> 0 OR due_ns > ?2 + delay_ns)")
STATEMENT(SQL_GET,
    "SELECT " ROW_COLUMNS ", CASE WHEN length(data) <= ?2 THEN data END"
    " FROM messages WHERE row = ?1")
STATEMENT(SQL_STATE, "SELECT state FROM messages WHERE row = ?1")
STATEMENT(SQL_FIND_SEQ, "SELECT row FROM messages WHERE receive_seq = ?1")
STATEMENT(SQL_FIND_ID,
    "SELECT row FROM messages WHERE state >= 3 AND id = ?1 UNION ALL"
    " SELECT row FROM messages WHERE state = 1 AND id = ?1 UNION ALL"
    " SELECT row FROM messages WHERE state = 2 AND id = ?1"
    " ORDER BY row DESC LIMIT 1")
STATEMENT(SQL_MAX_SEQ,
    "SELECT max((SELECT ifnull(max(receive_seq), 0) FROM messages"
    " WHERE receive_seq IS NOT NULL), (SELECT ifnull(max(seq), 0) FROM keys))")
STATEMENT(SQL_KEY,
    "SELECT seq, id, from_ns, until_ns FROM keys WHERE key = ?1")
STATEMENT(SQL_KEY_TAKE,
    "INSERT OR REPLACE INTO keys (key, seq, id, from_ns, until_ns)"
    " VALUES (?1, ?2, ?3, ?4, ?5)")
STATEMENT(SQL_KEY_ANCHOR,
    "UPDATE keys SET until_ns = ?2 + (until_ns - from_ns), from_ns = ?2"
    " WHERE key = ?1")
STATEMENT(SQL_KEY_FREE, "DELETE FROM keys WHERE seq = ?1")
STATEMENT(SQL_KEY_DROP, "DELETE FROM keys WHERE key = ?1")
STATEMENT(SQL_KEYS,
    "SELECT key, id, from_ns, until_ns FROM keys WHERE key > ?1"
    " AND until_ns > ?2 ORDER BY key LIMIT 65")
STATEMENT(SQL_KEYS_COUNT, "SELECT count(*) FROM keys WHERE until_ns > ?1")
STATEMENT(SQL_ROW_SEQ,
    "SELECT ifnull(receive_seq, 0) FROM messages WHERE row = ?1")
STATEMENT(SQL_KEYS_OVER,
    "DELETE FROM keys WHERE key IN (SELECT key FROM keys"
    " WHERE until_ns <= ?1 ORDER BY until_ns LIMIT 8)")
STATEMENT(SQL_COUNT_WAITING, "SELECT count(*) FROM messages WHERE state = 1")
STATEMENT(SQL_COUNT_PARKED, "SELECT count(*) FROM messages WHERE state = 2")
STATEMENT(SQL_AGES,
    "SELECT (SELECT first_received_ns FROM messages WHERE row = (SELECT"
    " min(row) FROM messages INDEXED BY messages_due WHERE state = 1"
    NOT_CANCELLED("1") ")),"
    " (SELECT first_received_ns FROM messages WHERE row = (SELECT min(row)"
    " FROM messages INDEXED BY messages_parked WHERE state = 2"
    NOT_CANCELLED("2") ")),"
    " (SELECT received_ns FROM spool WHERE NOT flags & 8"
    " ORDER BY key LIMIT 1),"
    " (SELECT first_received_ns FROM messages WHERE receive_seq ="
    " (SELECT max(receive_seq) FROM messages)),"
    " (SELECT min(due_ns) FROM messages INDEXED BY messages_due"
    " WHERE state = 1" NOT_CANCELLED("1") ")")
STATEMENT(SQL_FIRST_WAITING,
    "SELECT row, first_received_ns FROM messages WHERE row IN (SELECT row FROM"
    " messages INDEXED BY messages_due WHERE state = 1" NOT_CANCELLED("1")
    " ORDER BY row LIMIT ?1) ORDER BY row")
STATEMENT(SQL_FIRST_PARKED,
    "SELECT row, first_received_ns FROM messages WHERE row IN (SELECT row FROM"
    " messages INDEXED BY messages_parked WHERE state = 2" NOT_CANCELLED("2")
    " ORDER BY row LIMIT ?1) ORDER BY row")
STATEMENT(SQL_FIRST_SPOOLED,
    "SELECT key, received_ns FROM spool WHERE NOT flags & 8"
    " ORDER BY key LIMIT ?1")
STATEMENT(SQL_COUNT_CANCELLED,
    "SELECT count(*) FROM messages WHERE state = ?1 AND flags & 8")
STATEMENT(SQL_COUNT_DEAD, /* few letters are replayed, so this is faster */
    "SELECT (SELECT count(*) FROM messages WHERE state >= 3) -"
    " (SELECT count(*) FROM messages WHERE state >= 3 AND state = 4)")
STATEMENT(SQL_COUNT_REPLAYED,
    "SELECT count(*) FROM messages WHERE state >= 3 AND state = 4")
STATEMENT(SQL_NEXT_DEAD,
    "SELECT row FROM messages WHERE state >= 3 AND state = 3"
    " AND (died_ns, row) > (?1, ?2)" HOOK_OVER OLDEST_FIRST " LIMIT 1")
STATEMENT(SQL_OLDEST_DEAD,
    "SELECT died_ns, row FROM messages WHERE state >= 3 AND state = 3"
    " AND (died_ns, row) > (?1, ?2)" HOOK_OVER OLDEST_FIRST " LIMIT ?3")
STATEMENT(SQL_LETTERS_OF_ID,
    "SELECT died_ns, row FROM messages WHERE state >= 3 AND id = ?4"
    " AND row > ?2 ORDER BY row LIMIT ?3")
STATEMENT(SQL_HOOK_ADD, "INSERT OR REPLACE INTO hooks (row) VALUES (?1)")
STATEMENT(SQL_HOOK_NEXT, "SELECT n, row FROM hooks WHERE n > ?1"
                         " ORDER BY n LIMIT 1")
STATEMENT(SQL_HOOK_DONE, "DELETE FROM hooks WHERE n = ?1")
STATEMENT(SQL_HOOK_LATER,
    "INSERT OR REPLACE INTO hooks (row) SELECT row FROM hooks WHERE n = ?1")
STATEMENT(SQL_HOOKS_FORGET, "DELETE FROM hooks")
STATEMENT(SQL_DROP,
    "DELETE FROM messages WHERE row = ?1 AND died_ns = ?2 AND state = 3")
STATEMENT(SQL_PARKED_HIGH,
    "SELECT row, priority, receive_seq FROM messages WHERE state = 2 AND"
    " group_key = ?1 ORDER BY priority DESC, receive_seq LIMIT 1")
STATEMENT(SQL_PARKED_LOW,
    "SELECT row, priority, receive_seq FROM messages WHERE state = 2 AND"
    " group_key = ?1 ORDER BY priority, receive_seq LIMIT 1")
STATEMENT(SQL_GROUPS,
    "SELECT " GROUP_COLUMNS " FROM (SELECT group_key AS k FROM messages"
    " WHERE group_key IS NOT NULL AND group_key > ?1"
    " ORDER BY group_key LIMIT 1)")
STATEMENT(SQL_GROUP,
    "SELECT " GROUP_COLUMNS " FROM (SELECT group_key AS k FROM messages"
    " WHERE group_key = ?1 LIMIT 1)")
STATEMENT(SQL_GROUP_LETTER,
    "SELECT row FROM messages WHERE group_key = ?1 AND state >= 3"
    " AND NOT flags & 16"
    " UNION ALL SELECT row FROM messages WHERE group_key = ?1"
    " AND state = 1 AND flags & 4 LIMIT 1")
STATEMENT(SQL_LIST_NEWEST,
    "SELECT " LETTER_COLUMNS LETTERS NEWEST_FIRST " LIMIT ?10")
STATEMENT(SQL_LIST_OLDEST,
    "SELECT " LETTER_COLUMNS LETTERS OLDEST_FIRST " LIMIT ?10")
STATEMENT(SQL_LIST_RETRIES,
    "SELECT " LETTER_COLUMNS RETRIES NEWEST_FIRST " LIMIT ?10")
STATEMENT(SQL_WAITING,
    "SELECT " WAITING_COLUMNS("?9") " FROM messages"
    " WHERE state = 1" BY_DUE)
STATEMENT(SQL_WAITING_KIND,
    "SELECT " WAITING_COLUMNS("?9") " FROM messages"
    " WHERE state = 1 AND (attempts > 0) = ?11" BY_DUE)
STATEMENT(SQL_WAITING_GROUP,
    "SELECT " WAITING_COLUMNS("?9") " FROM messages INDEXED BY messages_groups"
    " WHERE group_key = ?4 AND state = 1"
    " AND (due_ns <= ?12 OR ?11 < 0 OR (attempts > 0) = ?11)" BY_DUE)
STATEMENT(SQL_WAITING_PARKED,
    "SELECT " WAITING_COLUMNS("?9") " FROM messages WHERE state = 2"
    " AND group_key = ?4 AND priority = ?2 AND receive_seq > ?1"
    WAITING_WANTED " ORDER BY receive_seq LIMIT ?10")
STATEMENT(SQL_WAITING_ROW,
    "SELECT " WAITING_COLUMNS("?2") " FROM messages"
    " WHERE row = ?1 AND state <= 2 AND NOT flags & 8")
STATEMENT(SQL_RUN_NOW,
    "UPDATE messages SET due_ns = ?2, delay_ns = 1"
    " WHERE row = ?1 AND state = 1 AND due_ns > ?2 AND NOT flags & 8")
STATEMENT(SQL_CANCEL,
    "UPDATE messages SET flags = flags | 8, due_ns = min(due_ns, ?2),"
    " delay_ns = 1"
    " WHERE row = ?1 AND state <= 2 AND NOT flags & 8")
STATEMENT(SQL_PARKED_NEXT,
    "SELECT group_key FROM messages WHERE state = 2 AND group_key > ?1"
    " ORDER BY group_key LIMIT 1")
STATEMENT(SQL_PARKED_PRIORITY,
    "SELECT priority FROM messages WHERE state = 2 AND group_key = ?1"
    " AND priority < ?2 ORDER BY priority DESC LIMIT 1")
STATEMENT(SQL_GROUP_HEAD,
    "SELECT row FROM messages WHERE group_key = ?1 AND state = 1"
    " AND attempts > 0 LIMIT 1")
STATEMENT(SQL_EDGE,
    "SELECT died_ns, row" LETTERS NEWEST_FIRST " LIMIT 1 OFFSET ?10")
STATEMENT(SQL_SUMMARY,
    "SELECT value, count(*) AS times, max(died_ns) AS newest, text FROM"
    " (SELECT CASE ?11 WHEN 0 THEN reason WHEN 1 THEN error"
    " ELSE group_key END AS value, CASE ?11 WHEN 1 THEN " ERROR_TEXT_OF
    " END AS text, died_ns" LETTERS NEWEST_FIRST
    " LIMIT ?10) GROUP BY value, text ORDER BY times DESC, newest DESC,"
    " value, text")
STATEMENT(SQL_LETTER,
    "SELECT " LETTER_COLUMNS " FROM messages WHERE row = ?1 AND (state >= 3"
    " OR (?2 AND EXISTS (SELECT 1 FROM replays WHERE replays.row = ?1)))")
STATEMENT(SQL_HISTORY, /* a store of an older version has fewer columns */
    "SELECT * FROM attempts WHERE row = ?1 AND n > ?2 ORDER BY n LIMIT 1")
STATEMENT(SQL_MARK,
    "UPDATE messages SET state = 4, boot = ?3"
    " WHERE row = ?1 AND died_ns = ?2 AND id = ?4 AND state = 3")
STATEMENT(SQL_MARK_AGAIN,
    "UPDATE messages SET boot = ?3"
    " WHERE row = ?1 AND died_ns = ?2 AND id = ?4 AND state = 4")
STATEMENT(SQL_EDIT, /* a letter sent elsewhere is not on its way */
    "UPDATE messages SET state = 4, boot = ?3, id = ?5, header_size = ?6,"
    " data = ?7 WHERE row = ?1 AND died_ns = ?2 AND id = ?4"
    " AND (state = 3 OR (state = 4 AND elsewhere(boot, ?3)))")
STATEMENT(SQL_SENT_AWAY,
    "DELETE FROM messages WHERE row = ?1 AND died_ns = ?2 AND id = ?4"
    " AND (state = 3 OR (state = 4 AND elsewhere(boot, ?3)))")
STATEMENT(SQL_MARKED,
    "SELECT 1 FROM messages WHERE row = ?1 AND died_ns = ?2 AND state = 4")
STATEMENT(SQL_UNMARK,
    "UPDATE messages SET state = 3, boot = NULL WHERE row = ?1 AND state = 4")
STATEMENT(SQL_REPLAY_ADD,
    "INSERT INTO replays (row, n, token, died_ns, marked_ns, sent)"
    " SELECT ?1, 1 + ifnull(max(n), 0), ?2, ?3, ?4, 0"
    " FROM replays WHERE row = ?1")
STATEMENT(SQL_REPLAY_AGAIN,
    "UPDATE replays SET marked_ns = ?3, sent = 0 WHERE row = ?1"
    " AND n = (SELECT max(n) FROM replays WHERE row = ?1) AND token = ?2")
STATEMENT(SQL_REPLAY_SENT,
    "UPDATE replays SET sent = 1 WHERE row = ?1 AND token = ?2")
STATEMENT(SQL_REPLAY_DROP,
    "DELETE FROM replays WHERE row = ?1 AND token = ?2 AND marked_ns = ?3")
STATEMENT(SQL_REPLAY_FIND,
    "SELECT given.seq, m.state, m.id, m.died_ns, r.n, r.died_ns,"
    " (SELECT max(n) FROM replays WHERE row = ?1)"
    " FROM (SELECT ifnull(max(seq), 0) AS seq FROM sqlite_sequence"
    " WHERE name = 'messages') AS given"
    " LEFT JOIN messages AS m ON m.row = ?1"
    " LEFT JOIN replays AS r ON r.row = ?1 AND r.token = ?2")
STATEMENT(SQL_GROUP_LET_GO,
    "UPDATE messages SET flags = flags | 16"
    " WHERE group_key = ?1 AND state >= 3 AND NOT flags & 16")
STATEMENT(SQL_LAST_ROW, "SELECT ifnull(max(row), 0) FROM messages")
STATEMENT(SQL_LETTER_HAS_ID,
    "SELECT 1 FROM messages WHERE state >= 3 AND id = ?1 AND priority = ?2"
    " AND data = ?3 AND (row <= ?4 OR died_ns = ?5) LIMIT 1")
STATEMENT(SQL_LETTER_HAS_DEATH,
    "SELECT 1 FROM messages WHERE state >= 3 AND state IN (3, 4)"
    " AND died_ns = ?1 AND priority = ?2 AND data = ?3 LIMIT 1")
STATEMENT(SQL_DISCARD, /* a letter that was edited has another id */
    "DELETE FROM messages WHERE row = ?1 AND state >= 3 AND id = ?2")
STATEMENT(SQL_SHRINK_WORTH, /* over 1 MiB and over a quarter is unused */
    "SELECT freelist_count > 256 AND freelist_count > page_count / 4 FROM"
    " pragma_freelist_count, pragma_page_count")
STATEMENT(SQL_SHRINK, "PRAGMA incremental_vacuum(1024)")
STATEMENT(SQL_SPOOL_IN,
    "INSERT INTO spool (key, received_ns, id, crashes, flags, letter, data)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
STATEMENT(SQL_SPOOL_OUT, "DELETE FROM spool WHERE key = ?1")
STATEMENT(SQL_SPOOL_MORE, "UPDATE spool_state SET count = count + ?1")
STATEMENT(SQL_SPOOL_NOTE,
    "UPDATE spool SET id = ?2, crashes = ?3, flags = ?4 | (flags & 8)"
    " WHERE key = ?1")
STATEMENT(SQL_SPOOL_CANCEL,
    "UPDATE spool SET flags = flags | 8 WHERE key = ?1 AND NOT flags & 8"
    " AND CASE WHEN ?2 > 0 THEN length(data) <= ?2"
    " ELSE (SELECT boot IS NULL FROM spool_state) END")
STATEMENT(SQL_SPOOL_CANCELLED,
    "SELECT (flags & 8) / 8 FROM spool WHERE key = ?1")
STATEMENT(SQL_SPOOL_COUNT_CANCELLED,
    "SELECT count(*) FROM spool WHERE flags & 8")
STATEMENT(SQL_SPOOL_READ,
    "SELECT key, received_ns, id, crashes, flags, ifnull(letter, 0), data"
    " FROM spool WHERE key > ?1 ORDER BY key LIMIT ?2")
STATEMENT(SQL_SPOOL_LAST,
    "SELECT key FROM spool WHERE key < ?1 ORDER BY key DESC LIMIT 1")
STATEMENT(SQL_SPOOL_STATE, "SELECT count, boot, doubt, run FROM spool_state")
STATEMENT(SQL_SPOOL_STATE_SET,
    "UPDATE spool_state SET boot = ?1, run = ?2, doubt = ?3")
STATEMENT(SQL_SPOOL_STATE_END, "UPDATE spool_state SET boot = NULL")
STATEMENT(SQL_VERSION, "PRAGMA user_version")
STATEMENT(SQL_IDENTITY, "SELECT id FROM identity")
STATEMENT(SQL_NUMBER,
    "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'commits'")
STATEMENT(SQL_FIRST_NUMBER,
    "INSERT INTO sqlite_sequence (name, seq) VALUES ('commits', ?1)")
STATEMENT(SQL_COMMITS, "SELECT seq FROM sqlite_sequence WHERE name = 'commits'")
/* clang-format on */
