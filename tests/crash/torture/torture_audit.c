/* torture_audit.c - compare the sent messages with what became of them (see
 * torture.h)
 *
 * During an audit no message is under way. Each message must have been settled
 * at least once, and each letter must be in the store exactly once unless it
 * was moved or removed on purpose.
 */
#include <dirent.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/crash/torture/torture.h"

#define REPORT_MOST 10 /* messages that are printed with their history */
#define REJECTED    2  /* reasons of letters (docs/formats/store.md) */
#define CRASHED     4
#define INFERRED    2 /* flag of a row */

/* One audit. */
struct audit {
    struct torture *t;
    unsigned told;
    uint8_t *letters; /* letters in the store, by record; 0x80: crashed */
    uint64_t letter_count;
};

/* ---- printing ---- */

/* Print the events of a message, as far as they are still recorded. */
static void history_print(struct torture_world *w, uint64_t number)
{
    static const char *const words[] = {[TORTURE_BEGIN] = "began",
                                        [TORTURE_END] = "ended",
                                        [TORTURE_FAIL] = "failed"};
    uint64_t n = atomic_load(&w->event_count);
    uint64_t from = n > TORTURE_EVENTS ? n - TORTURE_EVENTS : 0;

    for (uint64_t i = from; i < n; i++) {
        const struct torture_event *e = &w->events[i % TORTURE_EVENTS];

        if (e->number == number && e->generation)
            fprintf(stderr, "    %s in worker %u, attempt %u%s%s\n",
                    words[e->what % 3], e->generation, e->attempt,
                    e->marked ? ", redelivered" : "",
                    e->inferred ? ", length inferred" : "");
    }
}

/* Print the plan of a message and what became of it. */
static void message_print(struct torture_world *w, uint64_t number,
                          uint64_t word)
{
    static const char *const fates[] = {"done", "retry, then done", "dead",
                                        "discard", "later"};
    struct torture_record r = torture_record(word);
    struct torture_plan p;

    if (number < TORTURE_SMALL_BASE) {
        torture_plan(number, &p);
        fprintf(stderr,
                "    to be: %s; priority %u, group %s, header %zu, body %zu\n",
                fates[p.fate], p.priority,
                p.group < 0 ? "none" : torture_group(p.group), p.head, p.body);
    }
    fprintf(stderr,
            "    record: begun %u, ended %u, failed %u; last: attempt %u of "
            "worker %u, flags %x\n",
            r.starts, r.ends, r.failures, r.attempt, r.generation, r.flags);
    history_print(w, number);
}

/* Report a faulty message in one line; add its history for the first ten. */
static void fault_report(struct audit *a, uint64_t number, const char *what)
{
    _Atomic uint64_t *record =
        number >= TORTURE_SMALL_BASE
            ? &a->t->world->small[number - TORTURE_SMALL_BASE].record
            : torture_record_of(a->t->world, number);

    a->t->failed = true;
    if (a->told++ >= REPORT_MOST)
        return;
    fprintf(stderr, "torture: message %" PRIu64 ": %s\n", number, what);
    message_print(a->t->world, number, record ? atomic_load(record) : 0);
}

/* Print the faults that handlers recorded. */
static void faults_print(struct torture *t)
{
    unsigned n = atomic_load(&t->world->fault_count);

    if (n == 0)
        return;
    t->failed = true;
    fprintf(stderr, "torture: %u faults recorded by handlers\n", n);
    for (unsigned i = 0; i < n && i < TORTURE_FAULTS; i++) {
        const struct torture_fault *f = &t->world->faults[i];

        fprintf(stderr,
                "torture: message %" PRIu64 ": %s (worker %u, attempt %u%s; "
                "%" PRIu64 ")\n",
                f->number, torture_faults[f->kind], f->generation, f->attempt,
                f->marked ? ", redelivered" : "", f->other);
        message_print(t->world, f->number, f->record);
    }
}

/* ---- letters ---- */

const unsigned char *audit_body(const unsigned char *data, size_t *size)
{
    const unsigned char *end;

    if (*size < 6 || memcmp(data, "MQW/1\n", 6) != 0)
        return data;
    end = memmem(data, *size, "\n\n", 2);
    if (!end)
        return data;
    *size -= (size_t)(end + 2 - data);
    return end + 2;
}

/* Check one letter of the store and count it. */
static void letter_take(struct audit *a, const unsigned char *data, size_t size,
                        int reason, bool inferred)
{
    const unsigned char *body = audit_body(data, &size);
    struct torture_plan p = {.number = 0};
    enum torture_what what = torture_check(body, size, &p);
    _Atomic uint64_t *record;
    uint8_t *letter;

    a->letter_count++;
    if (what == TORTURE_WRONG || (what == TORTURE_CUT && !inferred)) {
        fault_report(a, p.number, "its letter is corrupt");
        return;
    }
    if (size < TORTURE_TINY) /* torn body without a number */
        return;
    record = torture_record_of(a->t->world, p.number);
    if (!record) {
        fault_report(
            a, p.number,
            "its letter is of a message audited before, or never sent");
        return;
    }
    letter = &a->letters[record - a->t->world->records];
    /* When one copy of a unique message crashes, its key is free again, so that
     * the other copy may run and crash as well. */
    if (*letter && !(p.unique && reason == CRASHED))
        fault_report(a, p.number, "it died twice");
    *letter = reason == CRASHED ? 0x81 : 1;
    a->t->sum.crashed += reason == CRASHED;
    if (reason != CRASHED && (reason != REJECTED || p.fate != TORTURE_DEAD))
        fault_report(a, p.number, "it died for the wrong reason");
}

/* Check all letters of the store. */
static void letters_take(struct audit *a)
{
    char name[128];
    sqlite3 *db;
    sqlite3_stmt *st;

    snprintf(name, sizeof name, "state%s/store.db", a->t->queue);
    if (sqlite3_open_v2(place_path(a->t, name), &db, SQLITE_OPEN_READONLY,
                        NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT data, reason, flags FROM messages", -1,
                           &st, NULL) != SQLITE_OK)
        torture_die("the store: %s", sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW)
        letter_take(a, sqlite3_column_blob(st, 0),
                    (size_t)sqlite3_column_bytes(st, 0),
                    sqlite3_column_int(st, 1),
                    (sqlite3_column_int(st, 2) & INFERRED) != 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

/* ---- records ---- */

/* Add a record to the summary. An attempt after the first is not a repeat. */
static void record_sum(struct torture_sum *s, const struct torture_record *r)
{
    s->deliveries += r->starts;
    s->retries += r->attempt > 1 ? r->attempt - 1 : 0;
    s->repeats += r->starts > r->attempt ? r->starts - r->attempt : 0;
    s->unseen += r->starts == 1 && r->flags & TORTURE_MARKED;
    s->inferred += (r->flags & TORTURE_INFERRED) != 0;
    s->cut += (r->flags & TORTURE_WAS_CUT) != 0;
}

/* Check that a rejected message has its letter. A letter that was replayed and
 * did not die again was done, which is its second end. */
static void letter_check(struct audit *a, const struct torture_plan *p,
                         const struct torture_record *r, uint8_t letters)
{
    if (p->fate != TORTURE_DEAD)
        return;
    a->t->sum.dead++;
    if (!letters && r->ends < 2 &&
        !(r->flags & (TORTURE_REMOVED | TORTURE_TORN)))
        fault_report(a, p->number, "it was rejected and has no letter");
}

/* Check one message that was sent. */
static void record_check(struct audit *a, uint64_t number, uint8_t letters)
{
    struct torture_world *w = a->t->world;
    struct torture_record r =
        torture_record(atomic_load(torture_record_of(w, number)));
    struct torture_plan p;

    torture_plan(number, &p);
    a->t->sum.messages++;
    a->t->sum.discarded += p.fate == TORTURE_DISCARD;
    record_sum(&a->t->sum, &r);
    /* A message that has or had a letter need not have run to an end. */
    a->t->sum.cancelled += (r.flags & TORTURE_CANCELLED) != 0;
    if (r.flags & TORTURE_CANCELLED) {
        if (letters)
            fault_report(a, number, "it was cancelled and has a letter");
        return;
    }
    /* Only the worker knows whether this message was cancelled. */
    if (r.flags & TORTURE_UNANSWERED && r.starts == 0)
        a->t->sum.unanswered++;
    else if (!letters && !(r.flags & TORTURE_REMOVED) && r.ends == 0)
        fault_report(a, number,
                     r.starts ? "it was never settled" : "it was lost");
    else if (!letters && !(r.flags & TORTURE_REMOVED) && r.flags & TORTURE_OPEN)
        fault_report(a, number, "its last delivery has no end");
    letter_check(a, &p, &r, letters);
}

/* Check all messages of one producer. */
static void numbers_check(struct audit *a, unsigned producer)
{
    struct torture_world *w = a->t->world;
    uint64_t sent = atomic_load(&w->producers[producer].sent);
    uint64_t n = w->base[producer];
    size_t at = (size_t)producer * TORTURE_EACH;

    for (; n < sent; n++, at++)
        record_check(a, torture_number(producer, n), a->letters[at]);
    for (; n < w->base[producer] + TORTURE_EACH; n++, at++)
        if (atomic_load(&w->records[at]) || a->letters[at])
            fault_report(a, torture_number(producer, n), "it was never sent");
}

/* Count the messages without a number by size, and compare with what was
 * sent. */
static void tiny_check(struct audit *a)
{
    struct torture_world *w = a->t->world;
    uint64_t came[256] = {0};

    for (uint64_t i = 0; i < TORTURE_SMALL; i++) {
        uint64_t key = atomic_load(&w->small[i].key);
        struct torture_record r = torture_record(w->small[i].record);

        if (!key)
            continue;
        a->t->sum.tiny++;
        a->t->sum.messages++;
        came[key & 0xff]++;
        record_sum(&a->t->sum, &r);
        if (r.ends == 0)
            fault_report(a, TORTURE_SMALL_BASE + i, "it was never settled");
    }
    for (unsigned size = 0; size < 256; size++) {
        uint64_t sent = size < TORTURE_TINY ? w->tiny_sent[size] : 0;

        if (came[size] == sent)
            continue;
        a->t->failed = true;
        fprintf(stderr,
                "torture: of %" PRIu64 " messages of %u bytes %" PRIu64
                " came\n",
                sent, size, came[size]);
    }
}

/* Forget the audited messages; the next ones continue their numbers. */
static void audit_forget(struct torture *t, const struct audit *a)
{
    struct torture_world *w = t->world;
    const char *discard[] = {"mqdlq",  "discard", "--state-dir", NULL,
                             t->queue, "--all",   NULL};
    char state[PATH_MAX];

    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    discard[3] = state;
    if (a->letter_count && program_run(t, NULL, discard) != 0)
        torture_die("mqdlq discard --all failed");
    for (unsigned p = 0; p < TORTURE_PRODUCERS; p++) {
        uint64_t sent = atomic_load(&w->producers[p].sent);

        memset((void *)&w->records[p * TORTURE_EACH], 0,
               (sent - w->base[p]) * sizeof w->records[0]);
        w->base[p] = sent;
    }
    memset(w->small, 0, sizeof w->small);
    memset((void *)w->tiny_sent, 0, sizeof w->tiny_sent);
}

void audit(struct torture *t)
{
    struct audit a = {.t = t};

    a.letters = calloc(TORTURE_RECORDS, 1);
    if (!a.letters)
        torture_die("out of memory");
    faults_print(t);
    letters_take(&a);
    for (unsigned p = 0; p < TORTURE_PRODUCERS; p++)
        numbers_check(&a, p);
    tiny_check(&a);
    if (a.told > REPORT_MOST)
        fprintf(stderr, "torture: ... and %u more\n", a.told - REPORT_MOST);
    if (t->failed)
        place_print_log(t);
    else
        audit_forget(t, &a);
    free(a.letters);
}

void audit_stuck(struct torture *t)
{
    struct audit a = {.t = t};

    fprintf(stderr,
            "torture: messages remain: %ld in the queue, %u in slots, "
            "%lld in the store\n",
            place_queued(t), place_slots(t),
            place_store(t, "SELECT count(*) FROM messages WHERE state <> 3"));
    for (unsigned p = 0; p < TORTURE_PRODUCERS; p++)
        for (uint64_t n = t->world->base[p];
             n < atomic_load(&t->world->producers[p].sent); n++) {
            uint64_t number = torture_number(p, n);

            if (torture_record(*torture_record_of(t->world, number)).ends == 0)
                fault_report(&a, number, "it is not settled");
        }
    faults_print(t);
    place_print_log(t);
}

/* Return true if a worker of this run started the process. */
static bool is_ours(const struct torture *t, const char *pid)
{
    static char environment[1 << 16];
    char path[300], wanted[128];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    snprintf(wanted, sizeof wanted, TORTURE_WORLD "=%s", t->file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, environment, sizeof environment);
    close(fd);
    return n > 0 && memmem(environment, (size_t)n, wanted, strlen(wanted) + 1);
}

void audit_leftovers(struct torture *t)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;

    while (proc && (e = readdir(proc)))
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9' &&
            is_ours(t, e->d_name)) {
            fprintf(stderr, "torture: process %s is still alive\n", e->d_name);
            t->failed = true;
        }
    if (proc)
        closedir(proc);
}
