/* test_letters_write.c - dead letters: history, marks, removal, import */
#include <errno.h>

#include "tests/unit/store/letter_fixture.h"

TestSuite(letters_write, .init = fixture_init, .fini = fixture_fini);

/* ---- history ---- */

static int check_attempt(unsigned n, const struct store_attempt *a, void *arg)
{
    char error[16];
    cr_assert(n == ++*(unsigned *)arg);
    snprintf(error, sizeof error, "exit %u", n);
    cr_assert_str_eq(a->error, error);
    cr_assert(a->started_ns == n && a->duration_ns == n * 10);
    cr_assert(a->stderr_size == 2 && memcmp(a->stderr_tail, "\0e", 2) == 0);
    return n == 45 ? 5 : 0;
}

Test(letters_write, the_history_comes_oldest_first)
{
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    char error[16];
    unsigned seen = 0;
    for (unsigned n = 1; n <= 44; n++) {
        snprintf(error, sizeof error, "exit %u", n);
        struct store_attempt a = {n, n * 10, error, "\0e", 2, false};
        cr_assert(store_put(s, &m, &a, &m.row) == 0);
    }
    cr_assert(letters_history(s, m.row, check_attempt, &seen) == 0);
    cr_assert(seen == 44);
    seen = 0;
    cr_assert(letters_history(s, 99, check_attempt, &seen) == 0 && seen == 0);
    struct store_attempt a = {45, 450, "exit 45", "\0e", 2, false};
    cr_assert(store_put(s, &m, &a, NULL) == 0);
    cr_assert(store_put(s, &m, &a, NULL) == 0);
    cr_assert(letters_history(s, m.row, check_attempt, &seen) == 5);
    store_close(&s);
}

/* Keep what the visited attempt used. */
static int usage_see(unsigned n, const struct store_attempt *a, void *arg)
{
    ((struct usage *)arg)[n] = a->usage;
    return 0;
}

/* The file is from an older version of the same number, which still has it open
 * while the new one adds the missing columns. */
Test(letters_write, a_store_without_the_usage_of_attempts_gets_it)
{
    struct store_row m = fixture_row(STORE_DEAD, "x"), gone = m;
    struct usage is[5], used = {.cpu_ns = 12345000, .peak_bytes = 1 << 20};
    struct store_attempt old = {.error = "exit 1"}, new = old;
    struct store *s = fixture_open(), *other;

    new.usage = used;
    cr_assert(store_put(s, &m, &new, &m.row) == 0);
    store_close(&s);
    /* SQLite before 3.35 cannot drop a column. */
    fixture_sql("CREATE TABLE older ("
                " row INTEGER NOT NULL"
                " REFERENCES messages (row) ON DELETE CASCADE,"
                " n INTEGER NOT NULL, started_ns INTEGER NOT NULL,"
                " duration_ns INTEGER NOT NULL, error TEXT,"
                " stderr BLOB NOT NULL, said INTEGER NOT NULL DEFAULT 0,"
                " PRIMARY KEY (row, n)) WITHOUT ROWID");
    fixture_sql("INSERT INTO older SELECT row, n, started_ns, duration_ns,"
                " error, stderr, said FROM attempts");
    fixture_sql("DROP TABLE attempts");
    fixture_sql("ALTER TABLE older RENAME TO attempts");
    s = fixture_open();
    other = fixture_open();
    cr_assert(letters_history(other, m.row, usage_see, is) == 0);
    cr_assert(is[1].cpu_ns == 0 && is[1].peak_bytes == 0);
    gone.row = 99;
    cr_assert(store_put(s, &gone, &new, NULL) == -ENOENT);
    fixture_sql("CREATE TRIGGER half BEFORE INSERT ON attempts"
                " BEGIN SELECT RAISE(ABORT, 'no'); END");
    cr_assert(store_put(s, &m, &new, NULL) < 0);
    fixture_sql("DROP TRIGGER half");
    cr_assert(fixture_sql("SELECT count(*) FROM pragma_table_info('attempts')"
                          " WHERE name = 'cpu_ns'") == 0,
              "a failed write added the column");
    cr_assert(store_put(s, &m, &new, NULL) == 0);
    cr_assert(store_put(s, &m, &old, NULL) == 0);
    cr_assert(fixture_sql("INSERT INTO attempts (row, n, started_ns,"
                          " duration_ns, error, stderr, said)"
                          " VALUES (1, 4, 1, 1, NULL, x'', 0)") == -1);
    cr_assert(letters_history(other, m.row, usage_see, is) == 0);
    cr_assert(is[1].cpu_ns == 0 && is[3].cpu_ns == 0 && is[4].cpu_ns == 0);
    cr_assert(is[2].cpu_ns == used.cpu_ns &&
              is[2].peak_bytes == used.peak_bytes);
    cr_assert(fixture_sql("SELECT count(*) FROM attempts WHERE cpu_ns IS NULL"
                          " AND peak_bytes IS NULL") == 3);
    store_close(&other);
    store_close(&s);
}

static int check_tail(unsigned n, const struct store_attempt *a, void *arg)
{
    (void)n, (void)arg;
    cr_assert(a->stderr_size == 4096 && a->stderr_tail[4095] == 'z');
    cr_assert(a->error == NULL);
    return 0;
}

Test(letters_write, only_the_end_of_a_long_stderr_is_kept)
{
    char text[5000];
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    struct store_attempt a = {.stderr_tail = text, .stderr_size = sizeof text};
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'z';
    cr_assert(store_put(s, &m, &a, &m.row) == 0);
    cr_assert(letters_history(s, m.row, check_tail, NULL) == 0);
    store_close(&s);
}

/* ---- marks ---- */

/* Return a mark of that letter, with a token of its own. */
static struct letter_mark marked(struct store *s, int64_t row, uint64_t died_ns)
{
    static uint64_t now = 1000;
    struct letter_mark m = {.row = row, .died_ns = died_ns, .marked_ns = now++};
    struct store_row is;
    if (store_get(s, row, &is, NULL, 0, NULL) == 0)
        m.id = is.id;
    cr_assert(store_token_make(s, &m.token) == 0);
    return m;
}

/* Keep how the visited letter was sent last. */
static int replay_see(const struct letter *l, void *arg)
{
    *(struct letter_replay *)arg = l->replay;
    return 0;
}
static struct letter_replay replay_of(struct store *s, int64_t row)
{
    struct letter_replay r;
    cr_assert(letters_get(s, row, replay_see, &r) == 0);
    return r;
}

Test(letters_write, a_mark_needs_a_dead_letter_of_that_death)
{
    struct store *s = six();
    struct letter_mark m[] = {marked(s, 1, 101), marked(s, 7, 100),
                              marked(s, 99, 100), marked(s, 1, 100),
                              marked(s, 1, 100)};
    cr_assert(letters_mark_replayed(s, &m[0], NULL) == -ENOENT);
    cr_assert(letters_mark_replayed(s, &m[1], NULL) == -ENOENT); /* waits */
    cr_assert(letters_mark_replayed(s, &m[2], NULL) == -ENOENT);
    cr_assert(letters_mark_replayed(s, &m[3], NULL) == 0);
    cr_assert(letters_mark_replayed(s, &m[4], NULL) == -EALREADY);
    cr_assert(count(s, (struct letter_filter){.replayed = true}) == 2);
    cr_assert(fixture_sql("SELECT count(*) FROM replays") == 1,
              "a refused mark was stored");
    cr_assert(store_recall(s, NULL, NULL) == 0, "marked in this boot");
    store_close(&s);
}

Test(letters_write, a_mark_is_seen_with_its_token_and_whether_it_was_sent)
{
    struct store *s = six();
    struct letter_mark m = marked(s, 1, 100), other = marked(s, 2, 200);
    cr_assert(!replay_of(s, 1).known && !replay_of(s, 1).here);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    struct letter_replay r = replay_of(s, 1);
    cr_assert(r.known && r.here && !r.sent && r.marked_ns == m.marked_ns);
    cr_assert(memcmp(&r.token, &m.token, sizeof r.token) == 0);
    cr_assert(letters_mark_replayed(s, &other, &m) == 0);
    cr_assert(replay_of(s, 1).sent, "the next mark did not note it");
    cr_assert(!replay_of(s, 2).sent);
    cr_assert(letters_mark_sent(s, &other) == 0);
    cr_assert(replay_of(s, 2).sent);
    fixture_sql("UPDATE messages SET boot = substr(boot, 1, instr(boot, '@'))"
                " || '5' || substr(boot, instr(boot, '/')) WHERE row = 1");
    cr_assert(replay_of(s, 1).here, "not here, as the clock was set");
    fixture_sql("UPDATE messages SET boot = 'another' WHERE row = 1");
    cr_assert(!replay_of(s, 1).here);
    store_close(&s);
}

Test(letters_write, an_edit_changes_body_and_mark_together)
{
    struct store *s = six();
    struct letter_edit e = {
        .id = {{1, 2}}, .data = "MQW/1\n\nnew", .size = 10, .header_size = 7};
    struct letter_mark mark = marked(s, 1, 100), stale = mark;
    char text[16];
    struct store_row m;
    cr_assert(store_get(s, 1, &m, text, sizeof text, NULL) == 0);
    const struct ulid old = m.id;
    mark.edit = stale.edit = &e;
    stale.died_ns++;
    cr_assert(letters_mark_replayed(s, &stale, NULL) == -ENOENT,
              "marked, but it died again");
    cr_assert(!replay_of(s, 1).known);
    cr_assert(letters_mark_replayed(s, &mark, NULL) == 0);
    cr_assert(store_get(s, 1, &m, text, sizeof text, NULL) == 0);
    cr_assert(m.state == STORE_REPLAYED && m.size == 10 && m.header_size == 7);
    cr_assert(memcmp(text, "MQW/1\n\nnew", 10) == 0);
    cr_assert(memcmp(&m.id, &e.id, sizeof m.id) == 0);
    cr_assert(m.died_ns == 100 && m.reason == REASON_EXHAUSTED);
    struct letter_replay r = replay_of(s, 1);
    cr_assert(r.here && !r.sent);
    cr_assert(memcmp(&r.token, &mark.token, sizeof r.token) == 0);
    cr_assert(letters_mark_replayed(s, &mark, NULL) == -EALREADY);
    cr_assert(store_delete(s, 1, &old) == 0);
    cr_assert(replay_of(s, 1).known, "the end of the old message removed it");
    fixture_sql("UPDATE messages SET boot = 'another' WHERE row = 1");
    mark.token.bytes[15]++;
    cr_assert(letters_mark_replayed(s, &mark, NULL) == -EALREADY,
              "marked, but another edit came first");
    mark.id = e.id;
    cr_assert(letters_mark_replayed(s, &mark, NULL) == 0,
              "refused, but what was sent before is lost");
    cr_assert(store_delete(s, 1, &e.id) == 0);
    cr_assert(store_get(s, 1, &m, text, sizeof text, NULL) == -ENOENT);
    store_close(&s);
}

Test(letters_write, sent_once_more_it_keeps_its_token)
{
    struct store *s = six();
    struct letter_mark m = marked(s, 1, 100), wrong = marked(s, 1, 100);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    cr_assert(letters_mark_sent(s, &m) == 0);
    fixture_sql("UPDATE messages SET boot = 'another' WHERE row = 1");
    m.again = wrong.again = true;
    m.marked_ns = 5000;
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    struct letter_replay r = replay_of(s, 1);
    cr_assert(r.here && !r.sent && r.marked_ns == 5000);
    cr_assert(memcmp(&r.token, &m.token, sizeof r.token) == 0);
    cr_assert(fixture_sql("SELECT count(*) FROM replays") == 1);
    cr_assert(letters_mark_replayed(s, &wrong, NULL) == -ENOENT,
              "marked, but another replay began");
    cr_assert(letters_unmark(s, &wrong) == -ENOENT);
    cr_assert(fixture_sql("SELECT count(*) FROM replays") == 1);
    store_close(&s);
}

Test(letters_write, a_replay_that_failed_is_listed_alone_until_it_ends)
{
    struct letter_filter retries = {.replayed = true, .retries = true};
    struct letter_filter other = retries;
    struct store *s = six();
    struct letter_mark m = marked(s, 2, 200);
    struct store_row row = letter(0, REASON_NONE, "exit 7", "b", "beta");
    struct seen seen;

    cr_assert(list(s, retries, false).n == 0);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    cr_assert(list(s, retries, false).n == 0, "listed on its way");
    row.row = 2;
    row.state = STORE_WAITING;
    fixture_put(s, &row);
    seen = list(s, retries, false);
    cr_assert(seen.n == 1 && seen.rows[0] == 2);
    other.error_like = "exit 8";
    cr_assert(list(s, other, false).n == 0);
    cr_assert(letters_get(s, 2, see, &seen) == -ENOENT, "found as a letter");
    row.state = STORE_DEAD;
    row.died_ns = 700;
    fixture_put(s, &row);
    cr_assert(list(s, retries, false).n == 0);
    store_close(&s);
}

Test(letters_write, a_sent_letter_is_removed_if_it_is_the_one_that_was_read)
{
    struct store *s = six();
    struct letter_edit e = {.id = {{1, 2}}, .data = "new", .size = 3};
    struct letter_mark read = marked(s, 1, 100), edit = read, other;
    other = read;
    other.died_ns++;
    cr_assert(letters_remove_sent(s, &other) == -ENOENT, "it died again");
    other = marked(s, 7, 100);
    cr_assert(letters_remove_sent(s, &other) == -ENOENT, "it waits");
    edit.edit = &e;
    cr_assert(letters_mark_replayed(s, &edit, NULL) == 0);
    cr_assert(letters_remove_sent(s, &read) == -ENOENT);
    cr_assert(letters_unmark(s, &edit) == 0);
    cr_assert(letters_remove_sent(s, &read) == -ENOENT, "another body");
    cr_assert(letters_mark_replayed(s, &read, NULL) == -ENOENT);
    read = marked(s, 1, 100);
    cr_assert(letters_mark_replayed(s, &read, NULL) == 0);
    cr_assert(letters_remove_sent(s, &read) == -ENOENT, "it is on its way");
    fixture_sql("UPDATE messages SET boot = 'another' WHERE row = 1");
    cr_assert(letters_remove_sent(s, &read) == 0,
              "kept, but sent in another boot");
    cr_assert(letters_remove_sent(s, &read) == -ENOENT);
    store_close(&s);
}

Test(letters_write, a_mark_is_taken_back_by_who_made_it)
{
    struct store *s = six();
    struct letter_mark m = marked(s, 1, 100), again = m;
    cr_assert(letters_unmark(s, &m) == -ENOENT);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    cr_assert(letters_unmark(s, &m) == 0);
    cr_assert(letters_unmark(s, &m) == -ENOENT);
    cr_assert(count(s, (struct letter_filter){0}) == 5);
    cr_assert(fixture_sql("SELECT count(*) FROM replays") == 0);
    cr_assert(letters_mark_replayed(s, &m, NULL) == 0);
    again.again = true;
    again.marked_ns++;
    cr_assert(letters_mark_replayed(s, &again, NULL) == 0);
    cr_assert(letters_unmark(s, &m) == -ENOENT,
              "the other one's message may be in the queue");
    cr_assert(count(s, (struct letter_filter){.replayed = true}) == 2);
    store_close(&s);
}

Test(letters_write, a_discard_takes_letters_only)
{
    static const int64_t rows[] = {1, 1, 5, 7, 8, 99};
    struct store *s = six();
    cr_assert(fixture_discard(s, rows, 6) == 2);
    cr_assert(fixture_discard(s, rows, 6) == 0);
    cr_assert(fixture_discard(s, NULL, 0) == 0);
    /* Letter 2 was edited after its id was read. */
    struct letter_name other = {.row = 2, .id = {{1}}};
    cr_assert(letters_discard(s, &other, 1) == 0);
    cr_assert(store_count(s, STORE_WAITING) == 1);
    cr_assert(store_count(s, STORE_PARKED) == 1);
    cr_assert(store_count(s, STORE_DEAD) == 4);
    store_close(&s);
}

Test(letters_write, a_large_discard_gives_its_room_back)
{
    enum { N = 300 };
    static char body[8192];
    static struct letter_import letters[N];
    int64_t rows[N];
    struct stat before, after;
    struct store *s = fixture_open();
    for (int i = 0; i < N; i++) {
        letters[i].m = letter(1, REASON_EXPIRED, NULL, NULL, "");
        letters[i].m.data = body;
        letters[i].m.size = sizeof body;
        rows[i] = i + 1;
    }
    cr_assert(letters_import(s, letters, N, NULL) == 0);
    fixture_sql("PRAGMA wal_checkpoint");
    stat(fixture_db, &before);
    cr_assert(fixture_discard(s, rows, N - 1) == N - 1);
    cr_assert(letters_shrink(s) == 0);
    store_close(&s);
    stat(fixture_db, &after);
    cr_assert(after.st_size < before.st_size / 4, "%ld of %ld",
              (long)after.st_size, (long)before.st_size);
    s = fixture_open();
    cr_assert(store_count(s, STORE_DEAD) == 1);
    store_close(&s);
}

/* ---- import ---- */

Test(letters_write, an_import_makes_new_letters_with_their_history)
{
    struct store_attempt history[] = {{1, 10, "exit 1", "\0e", 2, false},
                                      {2, 20, "exit 2", "\0e", 2, false}};
    struct letter_import l[2] = {
        {letter(5, REASON_EXHAUSTED, "exit 2", "g", "one"), history, 2, false,
         false},
        {letter(6, REASON_REJECTED, "exit 65", NULL, "two"), NULL, 0, false,
         false},
    };
    unsigned seen = 0;
    struct store *s = six();
    l[0].m.row = 1;
    l[0].m.state = STORE_REPLAYED;
    l[0].m.receive_seq = l[1].m.receive_seq = 4;
    l[1].m.state = (enum store_state)0;
    cr_assert(letters_import(s, l, 2, NULL) == 0);
    cr_assert(store_count(s, STORE_DEAD) == 7);
    cr_assert(letters_history(s, 9, check_attempt, &seen) == 0 && seen == 2);
    store_close(&s);
}

Test(letters_write, an_import_is_all_or_nothing)
{
    struct store_attempt history[] = {{1, 10, "exit 1", "e", 1, false}};
    struct letter_import l[2] = {
        {letter(5, REASON_EXHAUSTED, "exit 2", "g", "one"), history, 1, false,
         false},
        {letter(6, REASON_REJECTED, "exit 65", NULL, "two"), NULL, 0, false,
         false},
    };
    struct store *s = fixture_open();
    l[1].m.header_size = 99;
    cr_assert(letters_import(s, l, 2, NULL) == -EINVAL);
    cr_assert(store_count(s, STORE_DEAD) == 0);
    cr_assert(fixture_sql("SELECT count(*) FROM attempts") == 0);
    store_close(&s);
}

/* ---- beside a worker ---- */

static int open_transactions(const struct letter *l, void *arg)
{
    (void)l;
    /* Only without a reader can the -wal be copied back and emptied. */
    cr_assert(fixture_sql("PRAGMA wal_checkpoint(TRUNCATE)") >= 0);
    struct stat st;
    char wal[PATH_MAX + 8];
    snprintf(wal, sizeof wal, "%s-wal", fixture_db);
    cr_assert(stat(wal, &st) == 0 && st.st_size == 0);
    ++*(int *)arg;
    return 0;
}

Test(letters_write, no_transaction_is_open_during_a_visit)
{
    struct store *s = six();
    int visits = 0;
    cr_assert(letters_each(s, &(struct letter_filter){0}, false,
                           open_transactions, &visits) == 0);
    cr_assert(visits == 5);
    store_close(&s);
}

Test(letters_write, a_group_that_is_let_go_waits_until_a_letter_dies_again)
{
    struct store *s = fixture_open();
    struct store_row m = letter(500, REASON_EXPIRED, NULL, NULL, "x");
    struct store_group g;
    int64_t row;

    m.group = "a";
    m.group_size = 1;
    m.row = fixture_put(s, &m);
    cr_assert(letters_let_go(s, "b", 1) == 0);
    cr_assert(store_group_letter(s, "a", 1, &row) == 0 && row == m.row);
    cr_assert(letters_let_go(s, "a", 1) == 1);
    cr_assert(letters_let_go(s, "a", 1) == 0, "let go twice");
    cr_assert(store_group_letter(s, "a", 1, &row) == -ENOENT);
    cr_assert(store_get_group(s, "a", 1, &g) == 0 && g.letters == 0);
    cr_assert(store_get_group(s, "b", 1, &g) == -ENOENT);
    cr_assert(store_count(s, STORE_DEAD) == 1, "the letter is gone");
    m.died_ns = 600;
    fixture_put(s, &m);
    cr_assert(store_group_letter(s, "a", 1, &row) == 0, "it died again");
    cr_assert(store_get_group(s, "a", 1, &g) == 0 && g.letters == 1);
    store_close(&s);
}

Test(letters_write, two_programs_see_each_others_writes)
{
    struct store *worker = six(), *tool = fixture_open();
    int64_t row = 2;
    struct store_row m;
    cr_assert(fixture_discard(tool, &row, 1) == 1);
    cr_assert(store_get(worker, row, &m, NULL, 0, NULL) == -ENOENT);
    m = letter(700, REASON_EXPIRED, NULL, NULL, "new");
    fixture_put(worker, &m);
    cr_assert(list(tool, (struct letter_filter){0}, false).died[0] == 700);
    store_close(&tool);
    fixture_put(worker, &m);
    store_close(&worker);
}
