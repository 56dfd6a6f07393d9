/* test_kill.c - kill the worker again and again at random moments: no message
 * is lost, invented or changed, and each repeat is marked
 *
 * Producers keep the queue full with plain mq_send. The handler (witness.c)
 * notes each delivery. At the end the test compares the notes and the store
 * with what was sent. KILLS=n makes n instead of 200 kills, SEED=n repeats
 * their moments.
 */
#include <criterion/criterion.h>
#include <bsd/stdlib.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/torture/kill_message.h"
#include "tests/harness/harness.h"
#include "tests/harness/sweep.h"

#define PRODUCERS  2
#define NUMBERS    (1u << 18) /* most messages of a producer */
#define KILLS      200
#define KILL_MS    100 /* most time from a start or delivery to a kill */
#define DRAIN_MS   60000
#define HEADER_FMT "MQW/1\nsize: %zu\nx-number: %u\n\n"

/* State that producers share with the test. a = atomic, all */
struct producers {
    atomic_bool stop;
    atomic_uint sent[PRODUCERS]; /* numbers below were sent */
    atomic_uint tiny[KILL_TINY]; /* sent messages, by size */
};
static struct producers *producers;
static pid_t producer_pid[PRODUCERS]; /* 0: exited */

TestSuite(kill, .init = harness_init, .fini = harness_fini, .timeout = 3600);

/* ---- sending ---- */

/* Make a message and return its size. Every seventh one has a text header. */
static size_t message_make(uint32_t number, char *message)
{
    unsigned char body[KILL_MAX];
    size_t size, head = 0;

    if (number % 7 == 0) {
        size = kill_size(number, 64);
        head = (size_t)snprintf(message, KILL_MAX, HEADER_FMT, size, number);
    } else {
        size = kill_size(number, 0);
    }
    kill_make(number, size, body);
    memcpy(message + head, body, size);
    return head + size;
}

/* Send a message, and before some messages a tiny one. */
static void message_send(mqd_t q, unsigned producer, unsigned i)
{
    uint32_t number = producer * NUMBERS + i;
    char message[KILL_MAX];
    size_t size;

    if (i % 10 == 0) {
        size = kill_hash(number) % KILL_TINY;
        memset(message, 'a' + (int)size, size);
        if (mq_send(q, message, size, 0) < 0)
            _exit(1);
        atomic_fetch_add(&producers->tiny[size], 1);
    }
    size = message_make(number, message);
    if (mq_send(q, message, size, number % 3) < 0)
        _exit(1);
    atomic_store(&producers->sent[producer], i + 1);
}

static _Noreturn void producer_run(const char *queue, unsigned producer)
{
    mqd_t q;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    q = mq_open(queue, O_WRONLY);
    for (unsigned i = 0; i < NUMBERS && !atomic_load(&producers->stop); i++)
        message_send(q, producer, i);
    _exit(0);
}

static void producers_start(const char *queue)
{
    producers = mmap(NULL, sizeof *producers, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(producers != MAP_FAILED);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producer_pid[i] = fork();
        cr_assert_geq(producer_pid[i], 0);
        if (producer_pid[i] == 0)
            producer_run(queue, i);
    }
}

/* Return true if all producers have exited. A producer that waits for room
 * needs a running worker for that. */
static bool producers_gone(void)
{
    bool gone = true;
    int status;

    for (unsigned i = 0; i < PRODUCERS; i++) {
        if (producer_pid[i] == 0)
            continue;
        if (waitpid(producer_pid[i], &status, WNOHANG) == 0) {
            gone = false;
            continue;
        }
        cr_assert_eq(status, 0, "a producer could not send");
        producer_pid[i] = 0;
    }
    return gone;
}

/* ---- the worker ---- */

static struct harness_process *worker_start(const char *queue)
{
    return harness_worker(queue, "-q", "-c", "4", "--backoff", "20ms,40ms",
                          "--jitter", "100", "--max-crashes", "10000",
                          "--on-exit", "3=discard", "--",
                          harness_handler("witness"));
}

/* Return the path of a file of the worker. Queue names start with a slash. */
static const char *state_path(const char *queue, const char *file)
{
    return harness_path("%s%s/%s", harness_state_dir(), queue, file);
}

/* Return true if no message is in the queue, in flight or waiting. */
static bool all_settled(const char *queue)
{
    return harness_queue_length(queue) == 0 && harness_busy_slots(queue) == 0 &&
           harness_sql(queue,
                       "SELECT count(*) FROM messages WHERE state < 3") == 0 &&
           harness_busy_slots(queue) == 0 && harness_queue_length(queue) == 0;
}

/* ---- notes ---- */

struct note {
    char what;
    char key[64], delivery[48];
    int check, redelivered, inferred, status, pid;
    unsigned attempt;
    size_t line;
};
struct notes {
    struct note *at;
    size_t count, room;
};

static void note_add(struct notes *n, const char *line)
{
    struct note note = {.line = n->count};
    int got = sscanf(line, "%c %63s %d %d %u %d %47s %d %d", &note.what,
                     note.key, &note.check, &note.redelivered, &note.attempt,
                     &note.inferred, note.delivery, &note.status, &note.pid);

    cr_assert_eq(got, 9, "a broken note: %s", line);
    if (n->count == n->room) {
        n->room = n->room ? n->room * 2 : 4096;
        n->at = reallocarray(n->at, n->room, sizeof *n->at);
        cr_assert(n->at);
    }
    n->at[n->count++] = note;
}

/* Sort notes by message, and by time for each message. */
static int by_key(const void *a, const void *b)
{
    const struct note *x = a, *y = b;
    int c = strcmp(x->key, y->key);

    return c ? c : (x->line > y->line) - (x->line < y->line);
}

static struct notes notes_read(void)
{
    FILE *f = fopen(harness_path("witness"), "re");
    struct notes n = {0};
    char *line = NULL;
    size_t room = 0;

    cr_assert(f);
    while (getline(&line, &room, f) > 0)
        note_add(&n, line);
    free(line);
    fclose(f);
    qsort(n.at, n.count, sizeof *n.at, by_key);
    return n;
}

/* ---- the audit ---- */

/* Results of a run, for the summary. */
struct tally {
    unsigned long messages, deliveries, redelivered, retried, inferred, cut;
    unsigned long discarded, dead;
    unsigned tiny[KILL_TINY];
    bool ended[PRODUCERS * NUMBERS]; /* by number: its final end was noted */
    uint8_t letters[PRODUCERS * NUMBERS];
};

/* Check a delivery against the one before: it must be marked, or be the next
 * attempt after a failed one. */
static void delivery_check(const struct note *s, const struct note *before,
                           bool failed)
{
    if (!before) {
        cr_assert_eq(s->attempt, 1, "the first attempt of %s is %u", s->key,
                     s->attempt);
        return;
    }
    if (s->attempt == before->attempt + 1)
        cr_assert(failed, "%s: attempt %u although %u did not fail", s->key,
                  s->attempt, before->attempt);
    else
        cr_assert_eq(s->attempt, before->attempt, "%s: attempt %u after %u",
                     s->key, s->attempt, before->attempt);
    cr_assert(s->redelivered || s->attempt > before->attempt,
              "%s was repeated without a mark (delivery %s after %s)", s->key,
              s->delivery, before->delivery);
}

/* Check a body. A kill before the length was noted may cut bytes that look like
 * the fill of a slot; such a message is marked as inferred. */
static void content_check(const struct note *s, struct tally *t)
{
    cr_assert_neq(s->check, KILL_WRONG, "%s arrived corrupt", s->key);
    cr_assert(s->check == KILL_WHOLE || s->inferred,
              "%s was cut short without a mark", s->key);
    t->inferred += s->inferred != 0;
    t->cut += s->check == KILL_CUT;
}

/* Check all notes of one message, in order of time. */
static void message_check(const struct note *n, size_t count, struct tally *t)
{
    const struct note *run = NULL;
    bool failed = false, final = false;

    for (size_t i = 0; i < count; i++) {
        if (n[i].what == 'S') {
            delivery_check(&n[i], run, failed);
            content_check(&n[i], t);
            run = &n[i];
            failed = false;
            t->deliveries++;
            t->redelivered += run->redelivered != 0;
            t->retried += run->attempt > 1;
            continue;
        }
        cr_assert(run && strcmp(run->delivery, n[i].delivery) == 0,
                  "%s: process %d of delivery %s ran on beside delivery %s",
                  n[i].key, n[i].pid, n[i].delivery,
                  run ? run->delivery : "none");
        failed |= n[i].what == 'E' && n[i].status == 1;
        final |= n[i].what == 'E' && n[i].status != 1;
        t->discarded += n[i].what == 'E' && n[i].status == KILL_EXIT_DISCARD;
    }
    cr_assert(final, "%s was never settled", n[0].key);
}

/* Count the message, which must have been sent. */
static void message_count(const char *key, struct tally *t)
{
    unsigned long number = strtoul(key + 1, NULL, 10);

    t->messages++;
    if (key[0] == 't') {
        t->tiny[number]++;
        return;
    }
    cr_assert_lt(number, (unsigned long)PRODUCERS * NUMBERS);
    cr_assert_lt(number % NUMBERS,
                 atomic_load(&producers->sent[number / NUMBERS]),
                 "%s was never sent", key);
    t->ended[number] = true;
}

static void notes_audit(const struct notes *n, struct tally *t)
{
    for (size_t i = 0, end; i < n->count; i = end) {
        for (end = i;
             end < n->count && strcmp(n->at[end].key, n->at[i].key) == 0;)
            end++;
        message_check(n->at + i, end - i, t);
        message_count(n->at[i].key, t);
    }
    for (unsigned p = 0; p < PRODUCERS; p++)
        for (unsigned i = 0; i < atomic_load(&producers->sent[p]); i++)
            cr_assert(t->ended[p * NUMBERS + i], "n%u was lost",
                      p * NUMBERS + i);
    for (unsigned i = 0; i < KILL_TINY; i++)
        cr_assert_eq(t->tiny[i], atomic_load(&producers->tiny[i]),
                     "of %u messages of %u bytes, %u arrived",
                     atomic_load(&producers->tiny[i]), i, t->tiny[i]);
}

/* Check one row of the store. */
static void letter_check(const char *data, size_t size, bool inferred,
                         struct tally *t)
{
    const char *body = memmem(data, size, "\n\n", 2);
    uint32_t number;
    enum kill_what what;

    body = size > 6 && memcmp(data, "MQW/1\n", 6) == 0 ? body + 2 : data;
    what = kill_check((const unsigned char *)body, size - (size_t)(body - data),
                      &number);
    cr_assert(what == KILL_WHOLE || (what == KILL_CUT && inferred),
              "a letter is corrupt");
    cr_assert_eq(kill_exit(number, 1), KILL_EXIT_DEAD,
                 "n%u should not have died", number);
    cr_assert_eq(t->letters[number]++, 0, "n%u died twice", number);
    t->dead++;
}

/* Check that exactly the messages that had to die are in the store, once. */
static void letters_audit(const char *path, struct tally *t)
{
    sqlite3 *db;
    sqlite3_stmt *st;

    cr_assert_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(
                     db, "SELECT data, state, reason, flags FROM messages", -1,
                     &st, NULL),
                 SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        cr_assert_eq(sqlite3_column_int(st, 1), 3, "not a dead letter");
        cr_assert_eq(sqlite3_column_int(st, 2), 2, "not rejected");
        letter_check(sqlite3_column_blob(st, 0),
                     (size_t)sqlite3_column_bytes(st, 0),
                     (sqlite3_column_int(st, 3) & 2) != 0, t);
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    for (uint32_t i = 0; i < PRODUCERS * NUMBERS; i++)
        if (t->ended[i] && kill_exit(i, 1) == KILL_EXIT_DEAD)
            cr_assert_eq(t->letters[i], 1, "the letter of n%u is lost", i);
}

/* Return true if the worker of this test started the process. */
static bool is_of_test(const char *pid)
{
    char wanted[512];
    size_t size;
    const char *env =
        harness_read(harness_path("/proc/%s/environ", pid), &size);

    snprintf(wanted, sizeof wanted, "TEST_DIR=%s", harness_dir());
    return memmem(env, size, wanted, strlen(wanted)) != NULL;
}

/* Check that no process is left, not even of killed workers. */
static void no_process_left(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;

    cr_assert(proc);
    while ((e = readdir(proc)))
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            cr_assert_not(is_of_test(e->d_name), "process %s is still running",
                          e->d_name);
    closedir(proc);
}

/* Compare what was sent with what was noted and stored. */
static void audit(const char *queue, unsigned kills)
{
    static struct tally t;
    struct notes n = notes_read();

    notes_audit(&n, &t);
    letters_audit(state_path(queue, "store.db"), &t);
    no_process_left();
    fprintf(stderr,
            "kills %u, messages %lu, deliveries %lu, redelivered %lu, retries "
            "%lu, dead %lu, discarded %lu, length inferred %lu, cut %lu\n",
            kills, t.messages, t.deliveries, t.redelivered, t.retried, t.dead,
            t.discarded, t.inferred, t.cut);
    cr_assert_gt(t.redelivered, kills / 10, "too few kills hit a handler");
    free(n.at);
}

/* ---- the tests ---- */

static unsigned from_environment(const char *name, unsigned preset)
{
    const char *text = getenv(name);

    return text && text[0] ? (unsigned)strtoul(text, NULL, 10) : preset;
}

static off_t notes_size(void)
{
    struct stat st;

    return stat(harness_path("witness"), &st) < 0 ? 0 : st.st_size;
}

/* Wait for a random moment of the worker's life, which is usually after its
 * first delivery. `before` is the size of the notes when it was started. */
static void live_until(struct harness_process *w, off_t before, unsigned slow)
{
    uint64_t us = (uint64_t)random() % ((uint64_t)KILL_MS * slow * 1000);
    struct timespec at = {.tv_sec = (time_t)(us / 1000000),
                          .tv_nsec = (long)(us % 1000000) * 1000};

    if (random() % 4 != 0)
        harness_until(!harness_running(w) || notes_size() > before, DRAIN_MS);
    nanosleep(&at, NULL);
}

/* Let one more worker settle all messages. */
static void drain(const char *queue)
{
    struct harness_process *w = worker_start(queue);

    atomic_store(&producers->stop, true);
    harness_until(producers_gone(), DRAIN_MS);
    harness_until(all_settled(queue), DRAIN_MS);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert(all_settled(queue));
}

Test(kill, no_message_is_lost_invented_changed_or_silently_repeated)
{
    unsigned kills = from_environment("KILLS", sweep_share("kills", KILLS));
    unsigned seed = from_environment("SEED", arc4random());
    unsigned slow = from_environment("MQW_TEST_SLOW", 1);
    const char *queue = harness_queue(10, KILL_MAX);

    fprintf(stderr, "SEED=%u\n", seed);
    srandom(seed);
    /* A program that is killed during its leak check would complain. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    producers_start(queue);
    for (unsigned i = 0; i < kills; i++) {
        off_t before = notes_size();
        struct harness_process *w = worker_start(queue);

        live_until(w, before, slow < 3 ? slow : 3);
        cr_assert(harness_running(w), "the worker ended: %s",
                  harness_stderr(w, NULL));
        harness_kill(w);
    }
    drain(queue);
    audit(queue, kills);
}
