/* test_mqdlq.c - mqdlq: list and show letters, export and import JSON */
#include "tests/e2e/mqdlq/mqdlq_fixture.h"

#include <jansson.h>

TestSuite(mqdlq, .init = harness_init, .fini = harness_fini);

/* ---- list and show ---- */

Test(mqdlq, without_a_store_there_are_no_letters_and_stderr_says_where)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = dlq("list", q);
    cr_assert_eq(r.status, 0);
    cr_assert_str_eq(r.out, "");
    cr_assert(strstr(r.err, harness_state_dir()), "%s", r.err);
    cr_assert_str_eq(dlq_out("list", "--count", q), "0\n");
    cr_assert_str_eq(dlq_out("export", q), "");
    cr_assert_eq(dlq("show", q, "1").status, 66);
    cr_assert_eq(dlq("replay", q, "1").status, 66);
    cr_assert_eq(dlq("discard", q, "1").status, 66);
    cr_assert_eq(dlq("discard", q, "--all").status, 0);
    cr_assert_not(harness_exists(harness_state_dir()), "a look made it");
}

Test(mqdlq, an_empty_list_says_so)
{
    const char *q = three_letters();
    struct harness_result r = dlq("list", "--error", "none", q);

    cr_assert_eq(r.status, 0);
    cr_assert_str_eq(r.out, "");
    cr_assert(strstr(r.err, "has no matching letter"), "%s", r.err);
    dlq_out("discard", "--all", q);
    r = dlq("list", q);
    cr_assert_str_eq(r.out, "");
    cr_assert(strstr(r.err, "has no dead letters"), "%s", r.err);
    r = dlq("list", "--by", "reason", q);
    cr_assert_str_eq(r.out, "");
    cr_assert(strstr(r.err, "has no dead letters"), "%s", r.err);
}

Test(mqdlq, list_is_a_table_newest_first)
{
    const char *out = dlq_out("list", three_letters());
    cr_assert_str_eq(out, "ID  DIED                      TRIES  REASON     "
                          "ERROR           "
                          " GROUP  "
                          "SIZE  BODY\n"
                          " 3  2026-01-03T00:00:00.000Z      0  exhausted  "
                          "signal 11                "
                          "  7  \\x00\\x01\\x02\\x1b[\\x7f\\n\n"
                          " 2  2026-01-02T00:00:00.000Z      0  rejected   "
                          "exit 65          g2      "
                          "  6  second\n"
                          " 1  2026-01-01T00:00:00.000Z      5  exhausted  "
                          "exit 1: account  g1      "
                          "  5  first\n");
}

Test(mqdlq, each_filter_narrows)
{
    const char *q = three_letters();
    cr_assert_eq(count(q), 3);
    cr_assert_eq(count(q, "--reason", "exhausted"), 2);
    cr_assert_eq(count(q, "--reason", "expired"), 0);
    cr_assert_eq(count(q, "--error", "exit *"), 2);
    cr_assert_eq(count(q, "--group", "g1"), 1);
    cr_assert_eq(count(q, "--match", "irs"), 1);
    cr_assert_eq(count(q, "--match", "trace"), 0, "the header matches, too");
    cr_assert_eq(count(q, "--since", "2026-01-02T00:00Z"), 2);
    cr_assert_eq(count(q, "--until", "2026-01-02T00:00Z"), 1);
    cr_assert_eq(count(q, "--since", "2026-01-02T00:00Z", "--until",
                       "2026-01-03T00:00Z"),
                 1);
    cr_assert_eq(count(q, "--limit", "2"), 2);
    cr_assert_eq(count(q, "--reason", "exhausted", "--error", "exit*"), 1);
    cr_assert_eq(count(q, "--replayed"), 0);
    cr_assert_eq(dlq("list", q, "--reason", "sad").status, 64);
    cr_assert_eq(dlq("list", q, "--since", "noon").status, 64);
}

Test(mqdlq, a_time_without_a_zone_is_local)
{
    const char *q = three_letters();
    struct harness_spec spec = {
        .argv =
            HARNESS_LIST("mqdlq", "list", "--state-dir", harness_state_dir(),
                         "--count", q, "--since", "2026-01-02T02:00"),
        .env = (const char *const[]){"TZ=XXX-2", NULL}};
    cr_assert_str_eq(good(harness_run_spec(&spec)), "2\n", "east of Greenwich");
    spec.env = (const char *const[]){"TZ=XXX2", NULL};
    cr_assert_str_eq(good(harness_run_spec(&spec)), "1\n", "west of it");
}

Test(mqdlq, list_by_counts_the_most_frequent_first)
{
    const char *q = three_letters();
    cr_assert_str_eq(dlq_out("list", "--by", "reason", q),
                     "COUNT  REASON     NEWEST\n"
                     "    2  exhausted  2026-01-03T00:00:00.000Z\n"
                     "    1  rejected   2026-01-02T00:00:00.000Z\n");
    const char *out = dlq_out("list", "--by", "group", q);
    cr_assert(strstr(out, "    1  -  "), "%s", out);
    out = dlq_out("list", "--by", "error", "--json", q);
    cr_assert(strstr(out, "{\"error\":\"exit 1\",\"count\":1,"), "%s", out);
}

Test(mqdlq, show_has_fields_history_and_body_without_control_bytes)
{
    const char *out = dlq_out("show", three_letters(), "1");
    cr_assert(strstr(out, "Letter 1 of "), "%s", out);
    cr_assert(strstr(out, ID_A) && strstr(out, "exhausted"));
    cr_assert(strstr(out, "took 12ms  exit 1\n"), "%s", out);
    cr_assert(strstr(out, " no such\n"), "%s", out);
    cr_assert(strstr(out, " account\\x1b[2J\n"), "%s", out);
    cr_assert(strstr(out, "Body\n  first\n"), "%s", out);
    cr_assert_null(strchr(out, '\033'));
}

/* Return the attempts of letter 1, as JSON. */
static json_t *history_of(const char *q)
{
    json_t *o = json_loads(dlq_out("show", "--json", q, "1"), 0, NULL);
    json_t *history = json_incref(json_object_get(o, "history"));

    json_decref(o);
    cr_assert_eq(json_array_size(history), 2);
    return history;
}

/* tail keeps 64 MiB and the handler waits for it, so the attempt used that
 * much. */
Test(mqdlq, show_has_what_each_attempt_used_and_import_keeps_it)
{
    const char *q = harness_queue(0, 0), *copy = harness_queue(0, 0);
    const char *out;
    struct harness_process *w = harness_worker(
        q, "--max-attempts", "2", "--backoff", "1ms", "--", "sh", "-c",
        "head -c 67108864 /dev/zero | tail -c 67108864 >/dev/null; exit 9");
    json_t *history, *one;
    size_t i;

    harness_send_text(q, "large");
    harness_until(count(q) == 1, 20000);
    out = dlq_out("show", q, "1");
    cr_assert(strstr(out, ", cpu 0.") || strstr(out, ", cpu 1."), "%s", out);
    cr_assert(strstr(out, " MiB  exit 9\n"), "%s", out);
    history = history_of(q);
    json_array_foreach(history, i, one)
    {
        double s = json_real_value(json_object_get(one, "cpu_seconds"));
        json_int_t peak =
            json_integer_value(json_object_get(one, "peak_memory_bytes"));

        cr_assert(s > 0 && s < 20, "%g", s);
        cr_assert(peak >= 64 << 20 && peak < 256 << 20, "%lld", peak);
    }
    good(dlq_input(strdup(dlq_out("export", q)), "import", copy));
    cr_assert(json_equal(history, history_of(copy)), "%s",
              dlq_out("show", "--json", copy, "1"));
    out = good(harness_run("mqctl", "explain", "--state-dir",
                           harness_state_dir(), "--json", q, "1"));
    one = json_loads(out, 0, NULL);
    cr_assert(json_is_real(json_object_get(one, "cpu_seconds")), "%s", out);
    cr_assert(strstr(out, "; the last attempt used cpu "), "%s", out);
    json_decref(one);
    json_decref(history);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Long-lived children are not measured by message, nor are handlers that did
 * not start. A handler that needs less memory than the worker has no peak. */
Test(mqdlq, what_an_attempt_used_is_null_if_it_is_not_known)
{
    static const char *const handlers[][2] = {
        {"--stream", "while read -r msg id rest; do read -r body; "
                     "echo RETRY $id; done"},
        {"--max-attempts=2", "exit 9"}};

    for (size_t k = 0; k < 2; k++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w =
            harness_worker(q, handlers[k][0], "--max-attempts=2", "--backoff",
                           "1ms", "--", "sh", "-c", handlers[k][1]);
        json_t *history, *one;
        size_t i;

        harness_send_text(q, "x");
        harness_until(count(q) == 1, 20000);
        history = history_of(q);
        json_array_foreach(history, i, one)
        {
            json_t *cpu = json_object_get(one, "cpu_seconds");

            cr_assert(k == 0 ? json_is_null(cpu) : json_is_real(cpu));
            cr_assert(json_is_null(json_object_get(one, "peak_memory_bytes")));
        }
        json_decref(history);
        cr_assert_eq(harness_stop(w, 10000), 0);
    }
}

Test(mqdlq, show_shows_the_header)
{
    const char *out = dlq_out("show", three_letters(), "2");
    cr_assert(strstr(out, "\n  x-trace: abc\n"), "%s", out);
}

Test(mqdlq, show_body_is_byte_for_byte)
{
    const char *q = three_letters();
    struct harness_result r = dlq("show", "--body", q, "3");
    cr_assert_eq(r.status, 0);
    cr_assert_eq(r.out_size, 7);
    cr_assert_arr_eq(r.out, "\0\1\2\033[\x7f\n", 7);
    r = dlq("show", "--body", q, "2");
    cr_assert_str_eq(r.out, "second", "not only the body");
    cr_assert_eq(dlq("show", "--body", q, "1", "2").status, 64);
}

Test(mqdlq, ids_are_numbers_or_message_ids)
{
    const char *q = three_letters();
    cr_assert_str_eq(dlq_out("show", "--body", q, ID_A), "first");
    struct harness_result r = dlq("show", q, "4");
    cr_assert_eq(r.status, 66);
    cr_assert(strstr(r.err, "4"));
    cr_assert_eq(dlq("show", q, "01JD3Z6Q9V0X8N5T2K7B4M1C3H").status, 66);
    cr_assert_eq(dlq("show", q, "abc").status, 64);
    cr_assert_eq(dlq("show", q, "-1").status, 64);
    cr_assert_eq(dlq("show", q, "99999999999999999999").status, 64);
    good(dlq_input(three, "import", "--again", q));
    r = dlq("show", q, ID_A);
    cr_assert_eq(r.status, 64, "two letters have the id");
    cr_assert(strstr(r.err, "2 letters have"), "%s", r.err);
}

/* ---- JSON ---- */

Test(mqdlq, json_has_the_fields_of_the_contract)
{
    const char *q = three_letters();
    const char *out = dlq_out("list", "--json", "--match", "first", q);
    json_t *o = json_loads(out, 0, NULL);
    cr_assert_not_null(o);
    json_int_t id, size, attempts, crashes, priority;
    const char *mid, *queue, *died, *reason, *error, *group, *body, *err;
    json_t *first, *history;
    cr_assert_eq(
        json_unpack(o,
                    "{s:I s:s s:s s:s s:s s:s s:I s:I s:I s:s s:o s:I s:s s:s "
                    "s:o}",
                    "id", &id, "message_id", &mid, "queue", &queue, "died_at",
                    &died, "reason", &reason, "error", &error, "attempts",
                    &attempts, "crashes", &crashes, "priority", &priority,
                    "group", &group, "first_received_at", &first, "size", &size,
                    "body", &body, "stderr", &err, "history", &history),
        0);
    cr_assert_eq(id, 1);
    cr_assert_str_eq(mid, ID_A);
    cr_assert_str_eq(queue, q);
    cr_assert_str_eq(died, "2026-01-01T00:00:00.000Z");
    cr_assert_eq(attempts, 5);
    cr_assert_eq(priority, 3);
    cr_assert_eq(size, 5);
    cr_assert_str_eq(err, "no such\naccount\033[2J");
    cr_assert_eq(json_array_size(history), 1);
    json_decref(o);
}

/* Write a line with random bytes in a letter. */
static void random_letter(FILE *out, unsigned n)
{
    static const char hex[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstu"
                              "vwxyz0123456789+/";
    fprintf(out,
            "{\"reason\":\"crashed\",\"died_at_ns\":%d%09d,\"attempts\":%d,"
            "\"error_base64\":\"/%c%c%c\",\"body_base64\":\"",
            1700000000 + (int)n, rand() % 1000000000, rand(), hex[rand() % 32],
            hex[rand() % 64], hex[rand() % 64]);
    for (int i = rand() % 60; i > 0; i--)
        for (int k = 0; k < 4; k++)
            fputc(hex[rand() % 64], out);
    fprintf(out,
            "\",\"redelivered\":true,\"released\":%s,\"history\":[{\"started_"
            "at_ns\":%d,"
            "\"stderr_base64\":\"gA==\"},{\"error\":\"\\u007f\\u20ac\"}]}\n",
            n % 2 ? "true" : "false", rand());
}

/* Return a JSON line without its row number and queue, which may differ. */
static const char *without_id(const char *line)
{
    return strstr(line, "\"message_id\"");
}

Test(mqdlq, export_and_import_give_the_same_letters_byte_for_byte)
{
    unsigned seed = (unsigned)harness_now_ms();
    fprintf(stderr, "seed %u\n", seed);
    srand(seed);
    const char *q = three_letters();
    char *lines;
    size_t bytes;
    FILE *out = open_memstream(&lines, &bytes);
    for (unsigned i = 0; i < 300; i++)
        random_letter(out, i);
    fclose(out);
    good(dlq_input(lines, "import", q));
    free(lines);
    char *before = strdup(dlq_out("export", q));
    good(dlq("discard", q, "--all"));
    cr_assert_eq(count(q), 0);
    cr_assert(strstr(before, "\"released\":true") &&
              strstr(before, "\"released\":false"));
    harness_write("letters", before, strlen(before));
    good(dlq("import", q, harness_path("letters")));
    char *after = strdup(dlq_out("export", q)), *a, *b;
    char *x = strtok_r(before, "\n", &a), *y = strtok_r(after, "\n", &b);
    int n = 0;
    for (; x && y; n++) {
        cr_assert_str_eq(without_id(x), without_id(y), "seed %u", seed);
        cr_assert_str_neq(x, y, "an id is never used twice");
        x = strtok_r(NULL, "\n", &a);
        y = strtok_r(NULL, "\n", &b);
    }
    cr_assert(!x && !y && n == 303, "%d lines", n);
    free(before);
    free(after);
}

Test(mqdlq, a_file_that_is_imported_twice_makes_no_letter_twice)
{
    const char *q = three_letters();
    char *file = strdup(dlq_out("export", q));
    cr_assert_str_eq(good(dlq_input(file, "import", q)),
                     "0 letters imported, 3 were there already\n");
    cr_assert_str_eq(good(dlq_input(three, "import", q)),
                     "0 letters imported, 3 were there already\n");
    good(dlq("replay", q, "1"));
    cr_assert(strstr(good(dlq_input(file, "import", "--json", q)),
                     "\"imported\":0,\"present\":3"),
              "one of them is on its way");
    cr_assert_eq(count(q), 2);
    good(dlq_input(file, "import", "--again", q));
    cr_assert_eq(count(q), 5);
    free(file);
}

Test(mqdlq, an_import_keeps_equal_messages_that_died_apart)
{
    static const char two[] =
        "{\"message_id\":\"" ID_A "\",\"reason\":\"rejected\",\"body\":\"x\","
        "\"died_at\":\"2026-01-01T00:00:00Z\"}\n"
        "{\"message_id\":\"" ID_A "\",\"reason\":\"rejected\",\"body\":\"x\","
        "\"died_at\":\"2026-01-02T00:00:00Z\"}\n";
    const char *q = harness_queue(0, 0);
    cr_assert_str_eq(good(dlq_input(two, "import", q)), "2 letters imported\n");
    good(dlq_input(two, "import", q));
    cr_assert_eq(count(q), 2);
}

Test(mqdlq, list_without_a_queue_counts_those_of_each)
{
    char *a = strdup(three_letters()), *b = strdup(harness_queue(0, 0));
    char row[300];
    good(dlq_input(three, "import", b));
    good(dlq("discard", b, "1"));
    const char *out = good(harness_run("mqdlq", "list", "--state-dir",
                                       harness_state_dir(), "--json"));
    snprintf(row, sizeof row, "{\"queue\":\"%s\",\"count\":3,", a);
    cr_assert(strstr(out, row), "%s", out);
    snprintf(row, sizeof row, "{\"queue\":\"%s\",\"count\":2,", b);
    cr_assert(strstr(out, row), "%s", out);
    cr_assert_str_eq(good(harness_run("mqdlq", "list", "--state-dir",
                                      harness_state_dir(), "--count")),
                     "5\n");
    free(a);
    free(b);
}

Test(mqdlq, words_of_other_programs_are_answered_with_ours)
{
    static const char *const cases[][2] = {{"delete", "discard?"},
                                           {"retry", "replay?"}};
    const char *q = three_letters();
    struct harness_result r;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r = dlq(cases[i][0], q, "1");
        cr_assert_eq(r.status, 64);
        cr_assert(strstr(r.err, cases[i][1]), "%s", r.err);
    }
    r = dlq("replay", q, "all");
    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "did you mean --all?"), "%s", r.err);
    cr_assert_eq(dlq("ls", q, "--count").status, 0);
    cr_assert_eq(atoi(dlq("list", q, "--count").out), 3);
}

Test(mqdlq, a_mistyped_queue_is_an_error_that_names_the_nearest)
{
    char *q = strdup(three_letters()), typo[300], hint[320];
    snprintf(typo, sizeof typo, "%s-", q);
    snprintf(hint, sizeof hint, "did you mean %s?", q);
    static const char *const verbs[] = {"list",    "show",  "replay",
                                        "discard", "purge", "export"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        bool all = i >= 2 && i <= 4;
        struct harness_result r =
            all ? dlq(verbs[i], typo, "--all")
                : dlq(verbs[i], typo, i == 1 ? "1" : "--state-dir",
                      i == 1 ? NULL : harness_state_dir());
        cr_expect_eq(r.status, 66, "%s: %d %s", verbs[i], r.status, r.err);
        cr_expect(strstr(r.err, hint), "%s: %s", verbs[i], r.err);
    }
    free(q);
}

Test(mqdlq, equal_standard_errors_are_printed_once)
{
    static const char letter[] =
        "{\"reason\":\"exhausted\",\"body\":\"x\",\"history\":["
        "{\"started_at\":\"2026-01-01T00:00:00Z\",\"error\":\"exit 1\","
        "\"stderr\":\"at line 1\\nat line 2\\n\"},"
        "{\"started_at\":\"2026-01-01T00:00:01Z\",\"error\":\"exit 1\","
        "\"stderr\":\"at line 1\\nat line 2\\n\"},"
        "{\"started_at\":\"2026-01-01T00:00:02Z\",\"error\":\"exit 1\","
        "\"stderr\":\"other\\n\"}]}\n";
    const char *q = harness_queue(0, 0);
    good(dlq_input(letter, "import", q));
    const char *out = dlq_out("show", q, "1"), *at = strstr(out, "at line 2");
    cr_assert(at && !strstr(at + 1, "at line 2"), "%s", out);
    cr_assert(strstr(out, "(standard error as in attempt 1)"), "%s", out);
    cr_assert(strstr(out, "other"), "%s", out);
}

Test(mqdlq, import_names_the_bad_line_and_keeps_those_before)
{
    static const char *const bad[] = {
        "{",
        "[]",
        "{\"body\":\"x\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"grop\":\"g\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"history\":[{\"er\":1}]}",
        "{\"reason\":\"rejected\"}",
        "{\"reason\":\"rejected\",\"body_base64\":\"A\"}",
        "{\"reason\":\"rejected\",\"body_base64\":\"AB==\"}",
        "{\"reason\":\"rejected\",\"body_base64\":\"=AAA\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"body_base64\":\"AA==\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"priority\":40000}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"priority\":-1}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"message_id\":\"y\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"group\":\"\\n\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"history\":[1]}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"header\":\"MQW/1\\n\"}",
        "{\"reason\":\"rejected\",\"body\":\"x\",\"header\":\"y\"}",
        /* beyond 2^63 ns */
        "{\"reason\":\"rejected\",\"body\":\"x\",\"died_at\":\"2320-01-01\"}",
    };
    const char *q = harness_queue_name();
    for (int i = 0; i < (int)(sizeof bad / sizeof *bad); i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "{\"reason\":\"rejected\",\"body\":\"\"}\n"
                 "\n%s\n{\"reason\":\"rejected\","
                 "\"body\":\"not reached\"}\n",
                 bad[i]);
        struct harness_result r = dlq_input(text, "import", q);
        cr_assert_eq(r.status, 65, "%s", bad[i]);
        cr_assert(strstr(r.err, "line 3: ") &&
                      strstr(r.err, "1 letter imported, none from line 3"),
                  "%s: %s", bad[i], r.err);
        cr_assert_eq(count(q), i + 1);
    }
}

Test(mqdlq, import_takes_no_line_with_a_nul_for_an_empty_one)
{
    static const char text[] = " \0{\"reason\":\"rejected\",\"body\":\"x\"}\n";
    const char *q = harness_queue_name();
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "import", "--state-dir",
                             harness_state_dir(), q),
        .input = text,
        .input_size = sizeof text - 1});
    cr_assert_eq(r.status, 65, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "line 1: "), "%s", r.err);
}

Test(mqdlq, an_edited_body_gets_its_size_into_the_header)
{
    const char *q = three_letters();
    char *line = strdup(dlq_out("export", q, "2"));
    char *body = strstr(line, "\"body\":\"second\"");
    memcpy(body, "\"body\":\"2nd\"   ", 15);
    good(dlq_input(line, "import", q));
    free(line);
    cr_assert_str_eq(dlq_out("show", "--body", q, "4"), "2nd");
    good(dlq("replay", "--raw", q, "4"));
    const char *text = take(q, NULL);
    cr_assert(strstr(text, "\nsize: 3\n"), "%s", text);
    cr_assert(strstr(text, "\nx-trace: abc\n\n2nd"), "%s", text);
}
