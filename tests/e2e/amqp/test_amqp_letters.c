/* test_amqp_letters.c - mqdlq on the letters of a broker */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include "tests/e2e/amqp/amqp_fixture.h"

#include <signal.h>
#include <sys/stat.h>

TestSuite(amqp_letters, .init = amqp_init, .fini = amqp_fini);

#define OP       amqp_operand(amqp_queue, 1)
#define DLQ(...) harness_run("mqdlq", __VA_ARGS__)

/* Make `count` letters "<0>", "<1>", ... with a history of two attempts. */
static void make(int count)
{
    struct harness_process *w =
        amqp_worker("-c", "4", "--max-attempts", "2", "--backoff", "1ms", "--",
                    harness_script("h", "b=$(cat)\n"
                                        "echo \"why $b\" >&2\nexit 7\n"));
    char text[32];

    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "<%d>", i);
        amqp_send(text);
    }
    harness_until(amqp_ready(amqp_of("dead")) == count, 40000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Run a worker until the queue is empty. Each body becomes a line of "runs". */
static void drain(size_t lines)
{
    struct harness_process *w =
        amqp_worker("--", "sh", "-c", "echo \"$MQW_ATTEMPT $(cat)\" >>runs");

    harness_until_lines("runs", lines, 60000);
    harness_until(amqp_ready(amqp_queue) == 0, 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

/* Return the id of the letter with that body. */
static const char *id_of(const char *body)
{
    static char id[64];
    struct harness_result r = DLQ("list", OP, "--json", "--match", body);
    const char *at = strstr(r.out, "\"message_id\":");

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(at, "%s", r.out);
    at = strchr(at + 13, '"') + 1;
    snprintf(id, sizeof id, "%.26s", at);
    return id;
}

Test(amqp_letters, list_and_show_say_why_it_died_where_and_how_often)
{
    struct harness_result r;

    make(2);
    r = DLQ("list", OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "exhausted"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "exit 7: why <1>"), "%s", r.out);
    r = DLQ("list", OP, "--by", "reason");
    cr_assert_not_null(strstr(r.out, "2"), "%s", r.out);
    r = DLQ("show", OP, id_of("<1>"));
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\n  2  "), "two attempts: %s", r.out);
    cr_assert_not_null(strstr(r.out, " on "), "the machine: %s", r.out);
    cr_assert_not_null(strstr(r.out, "why <1>"), "%s", r.out);
    r = DLQ("show", OP, "--body", "--match", "<0>");
    cr_assert_str_eq(r.out, "<0>");
    r = DLQ("list", OP, "--json");
    cr_assert_not_null(strstr(r.out, "\"machine\":"), "%s", r.out);
    cr_assert_null(strstr(r.out, "\"id\":"), "it has no number: %s", r.out);
    r = DLQ("export", OP);
    cr_assert_not_null(strstr(r.out, "why <0>"), "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 2);
}

Test(amqp_letters, a_hundred_looks_lose_none_even_beside_a_limit)
{
    char policy[80];

    make(3);
    snprintf(policy, sizeof policy, "^%s(\\..*)?$", amqp_queue);
    cr_assert_eq(amqp_ctl("set_policy", "--apply-to", "queues", "limit", policy,
                          "{\"delivery-limit\":20}")
                     .status,
                 0);
    for (int i = 0; i < 100; i++) {
        struct harness_result r = DLQ("list", OP, "--count");

        cr_assert_eq(r.status, 0, "%s", r.err);
        cr_assert_str_eq(r.out, "3\n", "look %d: %s%s", i, r.out, r.err);
    }
    cr_assert_eq(amqp_ready(amqp_of("dead.kept")), 0);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 3);
    cr_assert_not_null(strstr(DLQ("show", OP, id_of("<2>")).out, "why <2>"),
                       "it says all that it said");
    cr_assert_eq(amqp_ctl("clear_policy", "limit").status, 0);
}

Test(amqp_letters, what_a_policy_takes_is_said_and_not_lost)
{
    struct harness_result r;
    char policy[80];

    make(2);
    snprintf(policy, sizeof policy, "^%s.dead$", amqp_queue);
    cr_assert_eq(amqp_ctl("set_policy", "--apply-to", "queues", "limit", policy,
                          "{\"delivery-limit\":1}")
                     .status,
                 0);
    for (int i = 0; i < 3; i++)
        r = DLQ("list", OP, "--count");
    harness_until(amqp_ready(amqp_of("dead.kept")) == 2, 10000);
    r = DLQ("list", OP, "--count");
    cr_assert_not_null(strstr(r.err, "2 letters are in"), "%s", r.err);
    cr_assert_eq(amqp_ctl("clear_policy", "limit").status, 0);
}

Test(amqp_letters, discard_takes_those_that_are_named_and_no_other)
{
    struct harness_result r;

    make(4);
    r = DLQ("discard", OP, "--dry-run", "--all", "--json");
    cr_assert_null(strstr(r.out, "\"id\":"), "it has no number: %s", r.out);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 4, "%s", r.out);
    r = DLQ("discard", OP, id_of("<2>"));
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "1 of 1 letter removed\n");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 3);
    cr_assert_eq(DLQ("show", OP, "--match", "<2>").status, 66);
    r = DLQ("discard", OP, "01JD3Z6Q9V0X8N5T2K7B4M1C3F");
    cr_assert_eq(r.status, 66, "%s", r.err);
    r = DLQ("purge", OP, "--older-than", "1h", "--json");
    cr_assert_not_null(strstr(r.out, "\"removed\":0"), "%s", r.out);
    r = DLQ("purge", OP, "--all");
    cr_assert_str_eq(r.out, "3 of 3 letters removed\n");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
}

Test(amqp_letters, replay_gives_a_new_life_with_its_history)
{
    struct harness_result r;

    make(3);
    r = DLQ("replay", OP, "--match", "<1>", "--json");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"sent\":1"), "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 2);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
    cr_assert_eq(DLQ("replay", OP, "--all", "--rate", "100").status, 0);
    drain(3);
    cr_assert_eq(harness_lines_with("runs", "1 <"), 3, "%s",
                 harness_read("runs", NULL));
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
}

/* ---- the canary ---- */

/* Replay all letters, one of them before the others. */
static struct harness_result canary(const char *time)
{
    return DLQ("replay", OP, "--all", "--canary", "--canary-time", time,
               "--wait", "60s");
}

Test(amqp_letters, a_canary_that_dies_again_keeps_the_others)
{
    struct harness_result r;
    struct harness_process *w;

    make(3);
    w = amqp_worker("-c", "4", "--max-attempts", "2", "--backoff", "30s", "--",
                    harness_script("g", "echo \"$MQW_ATTEMPT $(cat)\" >>runs\n"
                                        "echo still >&2\nexit 7\n"));
    r = canary("50s");
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "died again: exhausted: exit 7"), "%s",
                       r.err);
    cr_assert_not_null(strstr(r.out, "1 of 3 letters sent"), "%s", r.out);
    cr_assert_eq(strncmp(harness_read("runs", NULL), "3 <", 3), 0, "%s",
                 harness_read("runs", NULL));
    cr_assert_eq(harness_lines("runs"), 1, "one try, no retry");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 3);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
    r = DLQ("list", OP, "--json");
    cr_assert_not_null(strstr(r.out, "\"attempts\":3,"), "%s", r.out);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_letters, a_canary_that_is_no_letter_again_lets_the_others_follow)
{
    struct harness_result r;
    struct harness_process *w;

    make(3);
    w = amqp_worker("-c", "4", "--", "sh", "-c",
                    "echo \"$MQW_ATTEMPT $(cat)\" >>runs");
    r = canary("1s");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "has not died 1s after"), "%s", r.err);
    cr_assert_not_null(strstr(r.out, "3 of 3 letters sent"), "%s", r.out);
    harness_until_lines("runs", 3, 20000);
    cr_assert_eq(strncmp(harness_read("runs", NULL), "3 <", 3), 0, "first");
    cr_assert_eq(harness_lines_with("runs", "1 <"), 2, "the others begin anew");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_letters, a_canary_that_nobody_takes_is_not_settled)
{
    struct harness_result r;

    make(2);
    r = DLQ("replay", OP, "--all", "--canary", "--canary-time", "1ms", "--wait",
            "3s");
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "(1 message there, nobody consumes)"),
                       "%s", r.err);
    cr_assert_not_null(strstr(r.err, "not settled in time"), "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_queue), 1, "it waits for a worker");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
}

/* A new letter is not the canary's, and the look at it must not lose it. */
Test(amqp_letters, a_canary_is_not_taken_for_another_letter)
{
    struct harness_result r;
    struct harness_process *w, *p;

    make(2);
    w = amqp_worker("-c", "4", "--max-attempts", "1", "--",
                    harness_script("g", "b=$(cat)\necho \"$b\" >>runs\n"
                                        "case $b in *new*) exit 65; esac\n"));
    p = harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("mqdlq", "replay", "--all", "--canary",
                         "--canary-time", "4s", amqp_operand(amqp_queue, 1))});
    harness_until_lines("runs", 1, 20000);
    amqp_send("new");
    cr_assert_eq(harness_wait(p, 60000), 0);
    harness_until_lines("runs", 3, 20000);
    r = DLQ("list", OP, "--json");
    cr_assert_not_null(strstr(r.out, "\"body\":\"new\""), "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_letters, replay_to_another_queue_that_is_missing_loses_nothing)
{
    struct harness_result r;

    make(1);
    r = DLQ("replay", OP, "--all", "--to", "missing");
    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no queue missing"), "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 1);
}

Test(amqp_letters,
     a_kill_in_the_middle_of_replay_loses_none_repeats_at_most_one)
{
    enum { COUNT = 60, KILLS = 6 };
    char text[32];
    size_t runs;
    int starts = 0, killed = 0;

    make(COUNT);
    for (; starts < KILLS && amqp_ready(amqp_of("dead")) > 3; starts++) {
        long before = amqp_ready(amqp_queue);
        struct harness_process *p = harness_start(&(struct harness_spec){
            .argv = HARNESS_LIST("mqdlq", "replay", "--all", "--rate", "5",
                                 amqp_operand(amqp_queue, 1))});

        /* A slow look at the broker may find that all were replayed. */
        harness_until(
            amqp_ready(amqp_queue) > before + 3 || !harness_running(p), 60000);
        killed += harness_running(p);
        harness_kill(p);
    }
    cr_assert_gt(killed, 0, "a kill hit a replay at work");
    cr_assert_eq(DLQ("replay", OP, "--all").status, 0);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
    cr_assert_leq(amqp_ready(amqp_queue), COUNT + KILLS);
    drain(COUNT);
    runs = harness_lines("runs");
    for (int i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, " <%d>", i);
        cr_assert_eq(harness_lines_with("runs", text), 1,
                     "%s of %zu: a repeat is known here", text, runs);
    }
}

/* ---- import ---- */

/* Return what export prints. */
static const char *exported(void)
{
    struct harness_result r = DLQ("export", OP);

    cr_assert_eq(r.status, 0, "%s", r.err);
    return r.out;
}

static struct harness_result import(const char *file)
{
    return DLQ("import", OP, harness_path("%s", file));
}

Test(amqp_letters, import_gives_back_what_was_exported_each_letter_once)
{
    struct harness_result r;
    const char *before;

    make(3);
    before = strdup(exported());
    harness_write(harness_path("file"), before, strlen(before));
    r = import("file");
    cr_assert_str_eq(r.out, "0 letters imported, 3 were there already\n");
    cr_assert_eq(DLQ("discard", OP, id_of("<1>")).status, 0);
    r = import("file");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "1 letter imported, 2 were there already\n");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 3);
    cr_assert_eq(DLQ("purge", OP, "--all").status, 0);
    r = import("file");
    cr_assert_str_eq(r.out, "3 letters imported\n");
    cr_assert_str_eq(exported(), before, "all that export says");
    r = DLQ("import", OP, "--json", harness_path("file"));
    cr_assert_not_null(strstr(r.out, "\"imported\":0,\"present\":3}"), "%s",
                       r.out);
    cr_assert_eq(DLQ("replay", OP, "--all").status, 0);
    drain(3);
    cr_assert_eq(harness_lines_with("runs", "1 <"), 3);
    free((void *)(uintptr_t)before);
}

/* Publish a letter once more as a worker does after a kill, or without the
 * broker's confirm. A number of 0 is left out. */
static void copy(const char *body, uint64_t died, uint64_t line, uint64_t sent,
                 uint64_t replay)
{
    const struct {
        const char *key;
        uint64_t n;
    } numbers[] = {{"mqw-died", died},
                   {"mqw-line", line},
                   {"mqw-sent", sent},
                   {"mqw-replay", replay}};
    amqp_table_entry_t all[6] = {
        {.key = amqp_word("mqw-id"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8,
                   .value.bytes = amqp_word("01M82YYBXD39WZZT6MGE1TYY60")}},
        {.key = amqp_word("mqw-reason"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8,
                   .value.bytes = amqp_word("rejected")}}};
    int n = 2;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].n)
            all[n++] = (amqp_table_entry_t){
                .key = amqp_word(numbers[i].key),
                .value = {.kind = AMQP_FIELD_KIND_I64,
                          .value.i64 = (int64_t)numbers[i].n}};
    amqp_publish(amqp_of("dead"), body, strlen(body), (amqp_table_t){n, all});
}

/* Fails where each copy is a letter: one more list, and one more run. */
Test(amqp_letters, a_letter_that_is_there_twice_is_one)
{
    make(0);
    copy("a", 10, 7, 0, 0);
    copy("a", 20, 7, 0, 0); /* of one line */
    copy("b", 10, 0, 5, 0);
    copy("b", 30, 8, 5, 0); /* sent in one ns */
    copy("b", 40, 9, 5, 0);
    amqp_confirmed();
    cr_assert_str_eq(DLQ("list", OP, "--count").out, "2\n");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 5, "a look takes none");
    cr_assert_eq(DLQ("discard", OP, "--match", "a").status, 0);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 3, "all of it is gone");
    cr_assert_eq(DLQ("replay", OP, "--all").status, 0);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
    cr_assert_eq(amqp_ready(amqp_queue), 1);
    drain(1);
    cr_assert_eq(harness_lines("runs"), 1);
}

/* A replay that was killed had sent it before, and it died then, too. Fails
 * where a canary that dies as that letter did is taken for done. */
Test(amqp_letters, a_canary_that_dies_as_it_did_before_is_seen)
{
    struct harness_result r;
    struct harness_process *w;

    make(0);
    copy("a", 10, 7, 5, 0);
    copy("a", 20, 7, 5, 1);
    copy("b", 30, 8, 6, 0);
    amqp_confirmed();
    cr_assert_str_eq(DLQ("list", OP, "--count").out, "3\n");
    w = amqp_worker("--", "sh", "-c", "exit 65");
    r = canary("5s");
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "died again"), "%s", r.err);
    cr_assert_not_null(strstr(r.out, "1 of 3 letters sent"), "%s", r.out);
    cr_assert_eq(harness_stop(w, 20000), 0);
    cr_assert_eq(amqp_ready(amqp_queue), 0);
}

/* Fails where import knows only the copy that came first: each import of a file
 * would make one more. */
Test(amqp_letters, import_knows_each_copy_of_a_letter)
{
    struct harness_result r;

    make(0);
    copy("a", 10, 7, 0, 0);
    amqp_confirmed();
    r = DLQ("export", OP);
    harness_write("file", r.out, strlen(r.out));
    cr_assert_eq(DLQ("purge", OP, "--all").status, 0);
    copy("a", 20, 7, 0, 0);
    copy("a", 10, 7, 0, 0);
    amqp_confirmed();
    r = import("file");
    cr_assert_str_eq(r.out, "0 letters imported, 1 was there already\n");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 2);
}

/* All have one id; each pair differs in something that tells messages apart. */
Test(amqp_letters, letters_that_only_look_alike_are_two)
{
    make(0);
    copy("a", 10, 0, 0, 0);
    copy("a", 10, 0, 0, 0); /* nothing says that it is the same */
    copy("b", 10, 7, 5, 0);
    copy("b", 10, 8, 6, 0); /* sent at another time */
    copy("b", 10, 7, 5, 1); /* replayed, and dead again */
    copy("c", 10, 7, 5, 0); /* another body */
    amqp_confirmed();
    cr_assert_str_eq(DLQ("list", OP, "--count").out, "6\n");
    cr_assert_eq(DLQ("discard", OP, "--match", "c").status, 0);
    cr_assert_eq(amqp_ready(amqp_of("dead")), 5);
}

/* A message that some program put among the letters. */
Test(amqp_letters, what_is_there_without_a_reason_is_imported_like_a_letter)
{
    struct harness_result r;
    const char *text;

    make(1);
    amqp_publish(amqp_of("dead"), "raw", 3, (amqp_table_t){0, NULL});
    amqp_confirmed();
    text = exported();
    cr_assert_not_null(strstr(text, "\"reason\":\"none\""), "%s", text);
    harness_write(harness_path("file"), text, strlen(text));
    r = import("file");
    cr_assert_str_eq(r.out, "0 letters imported, 2 were there already\n");
    cr_assert_eq(DLQ("purge", OP, "--all").status, 0);
    r = import("file");
    cr_assert_str_eq(r.out, "2 letters imported\n", "%s", r.err);
    cr_assert_str_empty(r.err, "none of a group: %s", r.err);
    r = import("file");
    cr_assert_str_eq(r.out, "0 letters imported, 2 were there already\n");
    cr_assert_not_null(strstr(exported(), "\"reason\":\"none\""));
    r = DLQ("import", "/posix", "--state-dir", harness_path("."),
            harness_path("file"));
    cr_assert_eq(r.status, 65, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "it has no reason"), "%s", r.err);
}

Test(amqp_letters, letters_without_an_id_are_imported_once_too)
{
    static const char lines[] =
        "{\"reason\":\"rejected\",\"body\":\"a\",\"group\":\"g\"}\n"
        "{\"reason\":\"rejected\",\"body\":\"a\",\"group\":\"g\"}\n"
        "{\"reason\":\"nonsense\",\"body\":\"b\"}\n"
        "{\"reason\":\"expired\",\"body\":\"c\"}\n";
    struct harness_result r;

    harness_write(harness_path("file"), lines, sizeof lines - 1);
    r = import("file");
    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "start a worker"), "%s", r.err);
    make(0);
    for (int i = 0; i < 2; i++) {
        r = import("file");
        cr_assert_eq(r.status, 65, "%s", r.err);
        cr_assert_not_null(strstr(r.err, "line 3"), "%s", r.err);
        cr_assert_eq(amqp_ready(amqp_of("dead")), 2, "two of one kind");
    }
    cr_assert_not_null(strstr(r.err, "0 letters imported"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "Replay them with --partitions N"), "%s",
                       r.err);
    r = DLQ("import", OP, "--partitions", "2", harness_path("file"));
    cr_assert_null(strstr(r.err, "Replay them"), "%s", r.err);
    cr_assert_not_null(strstr(exported(), "\"group\":\"g\""));
}

/* Write `count` letters to a file or fifo, which stays open. */
static FILE *lines_write(const char *name, int count)
{
    FILE *f = fopen(harness_path("%s", name), "we");

    cr_assert_not_null(f);
    for (int i = 0; i < count; i++)
        fprintf(f, "{\"reason\":\"rejected\",\"body\":\"<%d>\"}\n", i);
    fflush(f);
    return f;
}

/* The first import has sent a batch of 256 and waits for more input. Fails
 * where it holds no letters because there were none when it began. */
Test(amqp_letters, two_imports_at_once_make_no_letter_twice)
{
    enum { COUNT = 300, BATCH = 256 };
    struct harness_process *p;
    struct harness_result r;
    FILE *f;

    make(0);
    fclose(lines_write("file", COUNT));
    cr_assert_eq(mkfifo(harness_path("fifo"), 0600), 0);
    p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "import", amqp_operand(amqp_queue, 1),
                             harness_path("fifo"))});
    f = lines_write("fifo", COUNT);
    harness_until(amqp_ready(amqp_of("dead")) >= BATCH - 1, 20000);
    r = import("file");
    cr_assert_eq(r.status, 75, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_not_null(strstr(r.err, "another program is consuming"), "%s",
                       r.err);
    fclose(f);
    cr_assert_eq(harness_wait(p, 20000), 0);
    cr_assert_eq(amqp_ready(amqp_of("dead")), COUNT, "all are given back");
    r = import("file");
    cr_assert_str_eq(r.out, "0 letters imported, 300 were there already\n");
}

Test(amqp_letters, a_kill_in_the_middle_of_import_loses_none_and_repeats_none)
{
    enum { COUNT = 3000, KILLS = 5 };
    struct harness_result r;

    make(0);
    fclose(lines_write("file", COUNT));
    for (int i = 0; i < KILLS; i++) {
        long before = amqp_ready(amqp_of("dead"));
        struct harness_process *p = harness_start(&(struct harness_spec){
            .argv = HARNESS_LIST("mqdlq", "import", amqp_operand(amqp_queue, 1),
                                 harness_path("file"))});

        harness_until(amqp_ready(amqp_of("dead")) > before + 10 ||
                          amqp_ready(amqp_of("dead")) == COUNT,
                      20000);
        harness_kill(p);
        harness_until(DLQ("list", OP, "--count").status == 0, 20000);
    }
    r = import("file");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_of("dead")), COUNT, "%s", r.out);
    r = DLQ("list", OP, "--count");
    cr_assert_str_eq(r.out, "3000\n");
}

Test(amqp_letters, one_who_looks_waits_for_another)
{
    struct harness_result r;

    make(1);
    amqp_basic_consume(amqp_client, 1, amqp_word(amqp_of("dead")),
                       amqp_word("me"), 0, 0, 0, (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    r = DLQ("list", OP);
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "another program is consuming"), "%s",
                       r.err);
    amqp_disconnect();
    amqp_connect();
    cr_assert_eq(DLQ("list", OP).status, 0);
}

Test(amqp_letters, what_cannot_be_is_refused_in_words)
{
    struct harness_result r;

    r = DLQ("replay", OP, "--all", "--canary");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "--canary-time DUR"), "%s", r.err);
    r = DLQ("replay", OP, "--all", "--canary-time", "1s");
    cr_assert_eq(r.status, 64, "%s", r.err);
    r = DLQ("replay", "/q", "--all", "--canary", "--canary-time", "1s");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_eq(DLQ("list", OP, "--replayed").status, 64);
    r = DLQ("replay", OP, "--all", "--to", "q", "--partitions", "2");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_eq(DLQ("replay", OP, "--raw", "--all").status, 64);
    r = DLQ("discard", OP, "--all", "--state-dir", "/tmp");
    cr_assert_eq(r.status, 64, "%s", r.err);
    r = DLQ("list", "--tls-ca", "f", OP);
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_eq(harness_run("mqdlq", "list", "--tls-ca", "f", "/q").status,
                 64);
    r = DLQ("list", OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "no dead letters"), "%s", r.err);
    r = harness_run("mqdlq", "list", "amqp://127.0.0.1:1/%2F/q");
    cr_assert_eq(r.status, 69, "%s", r.err);
}
