/* test_counters.c - what the worker writes is what others read, also at a
 * kill */
#include <criterion/criterion.h>
#include <byteswap.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/state/counters.h"
#include "common/state/counters_file.h"
#include "common/state/worker_lock.h"
#include "tests/fixtures/stepper.h"

#define BLOCKS 4
#define WALL   UINT64_C(1763666579000000000)

static char dir[64], path[96];
static struct counters *w, *r; /* writer, reader */
static const struct ulid id_a = {{1, 2, 3}}, id_b = {{9}};

static void setup(void)
{
    strcpy(dir, "/tmp/mqw-counters-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/counters", dir);
}

static void teardown(void)
{
    counters_close(&w);
    counters_close(&r);
    unlink(path);
    rmdir(dir);
}

TestSuite(counters, .init = setup, .fini = teardown);

/* Open a writer and a reader. */
static void both(void)
{
    struct problem p;

    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_null(counters_private(w));
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
}

/* Return where a writer has mapped its file. */
static unsigned char *map(struct counters *c)
{
    return (unsigned char *)counters_commits(c) -
           offsetof(struct counters_head, gauges[COUNTERS_COMMITS]);
}

/* Attach the reader again, so that it sees what was claimed since. */
static void again(void)
{
    struct problem p;

    counters_close(&r);
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
}

static struct counters_sum sum(void)
{
    struct counters_sum s;

    counters_sum(r, false, &s);
    return s;
}

/* Claim a block that the reader knows of. */
static struct counters_block *claim(void)
{
    struct counters_block *b = counters_claim(w);

    again();
    return b;
}

static struct counters_header header(void)
{
    struct counters_header h;

    counters_header(r, &h);
    return h;
}

Test(counters, a_reader_sees_the_sum_of_all_blocks)
{
    struct counters_block *a, *b;

    both();
    a = claim();
    b = claim();
    cr_assert(a != b && a != counters_rest(w) && b != counters_at(map(w), 0));
    counters_rest_done(w);
    counters_started(a, 100);
    counters_ended(a, 30);
    counters_started(b, 200);
    counters_add(&a->done, 3);
    counters_add(&b->done, 4);
    counters_add(&counters_rest(w)->dead, 1);
    counters_rest_done(w);
    cr_assert_eq(sum().blocks, 3);
    cr_assert_eq(sum().deliveries, 2);
    cr_assert_eq(sum().ended, 1);
    cr_assert_eq(sum().running, 1);
    cr_assert_eq(sum().items, 2);
    cr_assert_eq(sum().took_ns, 30);
    cr_assert_eq(sum().done, 7);
    cr_assert_eq(sum().dead, 1);
}

Test(counters, since_says_away_busy_or_since_when_handlers_run)
{
    struct counters_block *b;

    both();
    b = claim();
    cr_assert_eq(counters_get(&b->since_ns), COUNTERS_AWAY);
    counters_started(b, 100);
    counters_started(b, 200); /* a second one, of a window */
    cr_assert_eq(counters_get(&b->since_ns), 100);
    counters_ended(b, 10);
    cr_assert_eq(counters_get(&b->since_ns), 100);
    counters_ended(b, 40);
    cr_assert_eq(counters_get(&b->since_ns), COUNTERS_BUSY);
    cr_assert_eq(counters_get(&b->longest_ns), 40);
}

Test(counters, what_could_not_be_started_is_no_delivery)
{
    struct counters_block *b;

    both();
    b = claim();
    counters_started(b, 100);
    counters_unstarted(b);
    cr_assert_eq(sum().deliveries, 0);
    cr_assert_eq(sum().running, 0);
    cr_assert_eq(counters_get(&b->since_ns), COUNTERS_BUSY);
}

Test(counters, deliveries_one_after_the_other_are_counted_in_the_same_way)
{
    static struct histogram_sum handler;
    static const uint64_t took[] = {10, 50, 30, 10};
    struct counters_block *b;

    both();
    b = claim();
    for (unsigned i = 0; i < 4; i++) {
        counters_one_started(b, 100);
        counters_one_ended(b, took[i]);
    }
    cr_assert_eq(sum().ended, 4);
    cr_assert_eq(sum().running, 0);
    cr_assert_eq(sum().took_ns, 100);
    cr_assert_eq(sum().longest_ns, 50);
    counters_histograms(r, false, &handler, NULL);
    cr_assert_eq(handler.total, 4);
    cr_assert_eq(handler.count[histogram_bucket(10)], 2);
}

Test(counters, both_histograms_are_summed_over_the_blocks)
{
    static struct histogram_sum handler, latency;
    struct counters_block *a, *b;

    both();
    a = claim();
    b = claim();
    counters_started(a, 1);
    counters_ended(a, 1000);
    counters_started(b, 1);
    counters_ended(b, 2000);
    counters_waited(b, WALL, WALL + 70);
    counters_waited(b, WALL + 1, WALL); /* the clock was set back */
    counters_histograms(r, false, &handler, &latency);
    cr_assert_eq(handler.total, 2);
    cr_assert_eq(handler.count[histogram_bucket(2000)], 1);
    cr_assert_eq(latency.count[histogram_bucket(70)], 1);
    cr_assert_eq(latency.count[0], 1);
}

Test(counters, the_header_tells_who_runs_and_what_was_said)
{
    struct counters_header h;

    both();
    counters_gauge(w, COUNTERS_CAP, 8);
    counters_say(w, COUNTERS_LAST_ERROR, "exit 1", WALL);
    h = header();
    cr_assert_eq(h.pid, getpid());
    cr_assert_eq(h.gauges[COUNTERS_CAP], 8);
    cr_assert_str_eq(h.texts[COUNTERS_LAST_ERROR], "exit 1");
    cr_assert_eq(h.text_ns[COUNTERS_LAST_ERROR], WALL);
    cr_assert_str_eq(h.texts[COUNTERS_WHY_BREAKER], "");
    cr_assert_leq(h.started_ns, clock_wall_ns());
}

Test(counters, a_text_that_is_too_long_is_cut_not_spilt)
{
    char text[2 * COUNTERS_TEXT];

    both();
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    counters_say(w, COUNTERS_WHY_BREAKER, text, WALL);
    cr_assert_eq(strlen(header().texts[COUNTERS_WHY_BREAKER]),
                 COUNTERS_TEXT - 1);
    cr_assert_str_eq(header().texts[COUNTERS_LAST_ERROR], "");
}

Test(counters, the_journal_finds_the_newest_end_of_a_message)
{
    enum counters_end end;
    uint64_t when;

    both();
    cr_assert_not(counters_find(r, &id_a, &end, &when));
    counters_settled(w, COUNTERS_DEAD, &id_a, WALL);
    counters_settled(w, COUNTERS_DONE, &id_a, WALL + 1000);
    counters_settled(w, COUNTERS_DISCARDED, &id_b, WALL + 2000);
    cr_assert(counters_find(r, &id_a, &end, &when));
    cr_assert_eq(end, COUNTERS_DONE);
    cr_assert_eq(when, (WALL + 1000) & ~UINT64_C(3));
    cr_assert(counters_find(r, &id_b, &end, &when));
    cr_assert_eq(end, COUNTERS_DISCARDED);
    counters_settled(w, COUNTERS_DUPLICATE, &id_b, WALL + 3000);
    cr_assert(counters_find(r, &id_b, &end, &when));
    cr_assert_eq(end, COUNTERS_DUPLICATE);
    cr_assert_eq(when, (WALL + 3000) & ~UINT64_C(7));
    counters_settled(w, COUNTERS_CANCELLED, &id_b, WALL + 4000);
    cr_assert(counters_find(r, &id_b, &end, &when));
    cr_assert_eq(end, COUNTERS_CANCELLED);
    cr_assert_eq(when, (WALL + 4000) & ~UINT64_C(7));
}

Test(counters, the_journal_forgets_the_oldest_and_nothing_else)
{
    enum counters_end end;
    struct ulid id = {{0}};
    uint64_t when;

    both();
    for (unsigned i = 0; i <= COUNTERS_JOURNAL; i++) {
        memcpy(id.bytes, &i, sizeof i);
        counters_settled(w, COUNTERS_DONE, &id, WALL + i * 4);
    }
    for (unsigned i = 0; i <= COUNTERS_JOURNAL; i++) {
        memcpy(id.bytes, &i, sizeof i);
        cr_assert_eq(counters_find(r, &id, &end, &when), i > 0, "%u", i);
    }
}

/* Settle messages that no other thread settles. */
static void *settle_some(void *arg)
{
    struct ulid id = {{(unsigned char)(uintptr_t)arg}};

    for (unsigned i = 0; i < COUNTERS_JOURNAL / 4; i++) {
        memcpy(id.bytes + 4, &i, sizeof i);
        counters_settled(w, COUNTERS_DONE, &id, WALL + i * 4);
    }
    return NULL;
}

Test(counters, threads_that_settle_at_once_forget_none)
{
    pthread_t threads[4];
    enum counters_end end;
    uint64_t when;

    both();
    for (uintptr_t t = 0; t < 4; t++)
        cr_assert_eq(
            pthread_create(&threads[t], NULL, settle_some, (void *)(t + 1)), 0);
    for (unsigned t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    for (unsigned n = 0; n < COUNTERS_JOURNAL; n++) {
        struct ulid id = {{(unsigned char)(n % 4 + 1)}};
        unsigned i = n / 4;

        memcpy(id.bytes + 4, &i, sizeof i);
        cr_assert(counters_find(r, &id, &end, &when), "%u", n);
        cr_assert_eq(when, (WALL + i * 4) & ~UINT64_C(3));
    }
}

Test(counters, a_new_worker_starts_at_0_and_keeps_the_journal)
{
    struct counters_block *b;
    enum counters_end end;
    uint64_t when;

    both();
    b = claim();
    counters_started(b, 1);
    counters_ended(b, 10);
    counters_settled(w, COUNTERS_DONE, &id_a, WALL);
    counters_say(w, COUNTERS_LAST_ERROR, "exit 1", WALL);
    counters_gauge(w, COUNTERS_ENDED_NS, WALL);
    counters_close(&w);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_eq(sum().deliveries, 0);
    cr_assert_eq(sum().took_ns, 0);
    cr_assert_eq(header().gauges[COUNTERS_ENDED_NS], 0);
    cr_assert_str_eq(header().texts[COUNTERS_LAST_ERROR], "");
    cr_assert(counters_find(r, &id_a, &end, &when),
              "not found through the old mapping");
    counters_settled(w, COUNTERS_DONE, &id_b, WALL);
    cr_assert(counters_find(r, &id_a, &end, &when), "it was written over");
}

Test(counters, the_journal_of_another_run_of_the_machine_is_dropped)
{
    enum counters_end end;
    uint64_t when;

    both();
    counters_settled(w, COUNTERS_DONE, &id_a, WALL);
    counters_head(map(w))->boot_id[0] ^= 1;
    counters_close(&w);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_not(counters_find(r, &id_a, &end, &when));
}

Test(counters, the_journal_of_an_orderly_stop_outlives_the_machine)
{
    char copy[128];
    enum counters_end end;
    uint64_t when;

    both();
    counters_settled(w, COUNTERS_DONE, &id_a, WALL);
    counters_gauge(w, COUNTERS_ENDED_NS, WALL);
    snprintf(copy, sizeof copy, "%s.copy", path);
    cr_assert_eq(counters_copy(copy, path), 0);
    counters_close(&w);
    counters_close(&r);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(counters_copy(path, copy), 0);
    cr_assert_eq(unlink(copy), 0);
    both();
    cr_assert(counters_find(r, &id_a, &end, &when),
              "the copy was taken for torn");
    counters_gauge(w, COUNTERS_ENDED_NS, WALL);
    counters_head(map(w))->boot_id[0] ^= 1;
    counters_close(&w);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert(counters_find(r, &id_a, &end, &when),
              "the reboot dropped the journal");
}

Test(counters, a_copy_that_cannot_be_made_leaves_what_was_there)
{
    char none[128];

    both();
    snprintf(none, sizeof none, "%s/none", dir);
    cr_assert_eq(counters_copy(path, none), -ENOENT);
    cr_assert_eq(access(path, F_OK), 0);
    snprintf(none, sizeof none, "%s/none/copy", dir);
    cr_assert_eq(counters_copy(none, path), -ENOENT);
}

Test(counters, a_file_of_another_version_is_refused_and_replaced_unchanged)
{
    struct problem p;
    struct stat before, after;

    both();
    counters_head(map(w))->version++;
    counters_close(&r);
    cr_assert_lt(counters_attach(&r, path, &p), 0);
    cr_assert_eq(p.status, EX_CONFIG);
    cr_assert(strstr(p.text, "version 2") && strstr(p.text, "version 1"), "%s",
              p.text);
    cr_assert_eq(stat(path, &before), 0);
    struct counters *old = w;
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_neq(before.st_ino, after.st_ino);
    cr_assert_eq(counters_head(map(old))->version,
                 (COUNTERS_VERSION + 1) | FILE_MACHINE);
    counters_close(&old);
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
}

/* Check that the file is refused for its machine, and replaced by a start. */
static void refused_as(const char *machine)
{
    struct problem p;

    counters_close(&r);
    cr_assert_lt(counters_attach(&r, path, &p), 0);
    cr_assert_eq(p.status, EX_CONFIG);
    cr_assert(strstr(p.text, machine), "no \"%s\" in: %s", machine, p.text);
    counters_close(&w);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
}

Test(counters, a_file_of_another_byte_order_or_word_size_is_refused_as_such)
{
    struct counters_head *h;

    both();
    h = counters_head(map(w));
    h->version = bswap_32(h->version);
    h->head_bytes = bswap_32(h->head_bytes);
    h->stride = bswap_64(h->stride);
    refused_as("the other byte order");
    h = counters_head(map(w));
    h->version ^= 32u << 16;
    refused_as(FILE_MACHINE ? "64-bit words" : "32-bit words");
}

Test(counters, a_file_of_another_user_is_replaced)
{
    struct stat before, after;

    if (geteuid() != 0) {
        teardown(); /* a skip does not */
        cr_skip_test("needs root to give a file away");
    }
    both();
    cr_assert_eq(chown(path, 65534, 0), 0);
    cr_assert_eq(stat(path, &before), 0);
    counters_close(&w);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert(after.st_ino != before.st_ino && after.st_uid == 0);
}

Test(counters, what_is_no_counters_file_is_refused_with_its_path)
{
    struct problem p;
    char junk[COUNTERS_HEAD] = "hello";
    int fd;

    cr_assert_eq(counters_attach(&r, path, &p), -ENOENT);
    cr_assert(strstr(p.text, path));
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert_eq(write(fd, junk, 10), 10);
    cr_assert_lt(counters_attach(&r, path, &p), 0);
    cr_assert_eq(write(fd, junk, sizeof junk), (ssize_t)sizeof junk);
    cr_assert_lt(counters_attach(&r, path, &p), 0);
    cr_assert(strstr(p.text, path));
    close(fd);
}

Test(counters, a_file_cut_short_is_not_read_past_its_end)
{
    struct problem p;

    both();
    counters_add(&counters_claim(w)->done, 7);
    counters_close(&r);
    counters_close(&w);
    cr_assert_eq(truncate(path, (off_t)counters_bytes(1) + 100), 0);
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
    cr_assert_eq(sum().blocks, 1);
    cr_assert_eq(sum().done, 0);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0,
                 "the file is not replaced");
    counters_close(&r);
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
    counters_add(&counters_claim(w)->done, 5);
}

Test(counters, the_file_grows_with_the_blocks_in_use)
{
    struct problem p;
    struct stat st;

    both();
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_size, (off_t)counters_bytes(1));
    counters_add(&counters_claim(w)->done, 7);
    cr_assert_eq(sum().done, 0, "seen in the old mapping");
    counters_close(&r);
    cr_assert_eq(counters_attach(&r, path, &p), 0, "%s", p.text);
    cr_assert_eq(sum().done, 7);
}

Test(counters, without_room_for_the_file_the_numbers_are_kept_in_memory)
{
    struct rlimit none = {0, 0};
    struct counters_block *b;
    struct counters_sum s;

    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    cr_assert_not_null(counters_private(w));
    b = counters_claim(w);
    counters_started(b, 1);
    counters_ended(b, 10);
    counters_settled(w, COUNTERS_DONE, &id_a, WALL);
    counters_sum(w, false, &s);
    cr_assert_eq(s.deliveries, 1);
}

/* Return the writer's descriptor of the file; a reader keeps none. */
static int descriptor(void)
{
    char name[64], to[128];

    for (int fd = 3; fd < 256; fd++) {
        ssize_t n;

        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        n = readlink(name, to, sizeof to - 1);
        to[n > 0 ? n : 0] = '\0';
        if (strcmp(to, path) == 0)
            return fd;
    }
    cr_assert(false, "no descriptor of %s", path);
    return -1;
}

Test(counters, without_room_for_a_block_it_counts_in_memory)
{
    struct counters_block *b;
    struct counters_sum s;
    int fd, of;

    both();
    of = descriptor();
    fd = open(path, O_RDONLY | O_CLOEXEC); /* read-only: nothing is allocated */
    cr_assert_eq(dup2(fd, of), of);
    close(fd);
    b = claim();
    cr_assert_not_null(counters_private(w));
    counters_started(b, 1);
    cr_assert_eq(sum().deliveries, 0);
    counters_sum(w, false, &s);
    cr_assert_eq(s.deliveries, 1);
    counters_add(&counters_rest(w)->dead, 1);
    counters_rest_done(w);
    cr_assert_eq(sum().dead, 1, "a block with room is not shared");
}

/* ---- a file that is removed under its worker ---- */

Test(counters, a_removed_file_is_saved_elsewhere_with_all_it_counted)
{
    struct counters_block *b;
    char other[sizeof path + 8];

    both();
    b = claim();
    counters_add(&b->done, 3);
    cr_assert_eq(unlink(path), 0);
    snprintf(other, sizeof other, "%s.saved", path);
    cr_assert_eq(counters_save(w, other), 0);
    cr_assert_eq(rename(other, path), 0);
    again();
    cr_assert_eq(sum().done, 3);
}

static struct counters_sum totals(void)
{
    struct counters_sum s;

    counters_sum(r, true, &s);
    return s;
}

Test(counters, runs_add_up_and_each_counts_from_its_start)
{
    static struct histogram_sum h;
    struct counters_block *b;

    both();
    b = claim();
    counters_started(b, 1);
    counters_ended(b, 70);
    counters_started(b, 1); /* this one is killed */
    counters_add(&b->done, 1);
    counters_close(&w);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
        again();
        cr_assert_eq(sum().deliveries, 0);
        cr_assert_eq(totals().deliveries, 2);
        cr_assert_eq(totals().ended, 2);
        cr_assert_eq(totals().running, 0);
        cr_assert_eq(totals().items, 0);
        cr_assert_eq(totals().took_ns, 70);
        counters_close(&w);
    }
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    b = claim();
    counters_started(b, 1);
    counters_ended(b, 30);
    counters_add(&b->done, 1);
    cr_assert_eq(totals().done, 2);
    cr_assert_eq(sum().done, 1);
    counters_histograms(r, true, &h, NULL);
    cr_assert_eq(h.total, 2);
    counters_histograms(r, false, &h, NULL);
    cr_assert_eq(h.total, 1);
}

/* A start was killed after it had made the new sums, before all blocks were
 * clear. */
Test(counters, a_start_that_was_killed_while_it_added_up_counts_nothing_twice)
{
    struct counters_block *b;

    both();
    b = claim();
    counters_add(&b->done, 5);
    counters_add(&counters_earlier(map(w), 0)->done, 2);
    counters_add(&counters_earlier(map(w), 1)->done, 7);
    counters_put(&counters_head(map(w))->folds,
                 counters_head(map(w))->folds + 1);
    cr_assert_eq(totals().done, 7);
    counters_close(&w);
    cr_assert_eq(counters_open(&w, path, BLOCKS), 0);
    again();
    cr_assert_eq(totals().done, 7);
    cr_assert_eq(sum().done, 0);
}

#ifndef __SANITIZE_ADDRESS__ /* has more address space than any limit */
Test(counters, a_refused_start_leaves_no_empty_file)
{
    struct rlimit limit = {64u << 20, 64u << 20};

    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    cr_assert_eq(counters_open(&w, path, 1u << 20), -ENOMEM);
    cr_assert_eq(access(path, F_OK), -1);
}
#endif

/* ---- a kill at each instruction ---- */

static void settle_two(void *arg)
{
    (void)arg;
    counters_settled(w, COUNTERS_DEAD, &id_a, WALL);
    counters_head(map(w))->past_next = 0; /* overwrite the first entry */
    counters_settled(w, COUNTERS_DONE, &id_b, WALL + 4);
}

/* Check that the only entry is empty, or one of the two as it was written. */
static void whole(void *arg)
{
    enum counters_end end;
    uint64_t when;

    (void)arg;
    if (counters_find(r, &id_a, &end, &when)) {
        cr_assert_eq(end, COUNTERS_DEAD);
        cr_assert_eq(when, WALL);
        cr_assert_not(counters_find(r, &id_b, &end, &when));
    } else if (counters_find(r, &id_b, &end, &when)) {
        cr_assert_eq(end, COUNTERS_DONE);
        cr_assert_eq(when, WALL + 4);
    }
}

Test(counters, a_kill_at_any_instruction_leaves_a_whole_entry_or_none)
{
    enum counters_end end;
    uint64_t when;

    both();
    cr_assert_geq(step_through(settle_two, whole, NULL, counters_head(map(w)),
                               COUNTERS_HEAD + 4096),
                  6);
    cr_assert(counters_find(r, &id_b, &end, &when));
}

/* Status paints a state by its text, and a worker answers with it. */
Test(counters, each_state_has_a_text_of_its_own_that_is_read_back)
{
    for (enum worker_state i = 0; i < WORKER_STATES; i++) {
        cr_expect_not_null(worker_state_text(i));
        cr_expect_eq(worker_state_parse(worker_state_text(i)), i, "%s",
                     worker_state_text(i));
    }
    cr_expect_eq(worker_state_parse("runs"), WORKER_STATES);
    cr_expect_eq(worker_state_of_holds(COUNTERS_STORE_GONE | COUNTERS_PAUSED),
                 WORKER_STATE_STORE_GONE);
    cr_expect_eq(worker_state_of_holds(0), WORKER_STATE_RUNNING);
}
