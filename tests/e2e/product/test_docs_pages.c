/* test_docs_pages.c - docs: commands, programs and files on the pages for users
 * work */
#include "tests/e2e/product/docs_fixture.h"

TestSuite(docs_pages, .init = harness_init, .fini = harness_fini);

static long letters(const char *state, const char *queue)
{
    struct harness_result r =
        harness_run("mqdlq", "list", "--count", "--state-dir", state, queue);

    return r.status == 0 ? atol(r.out) : -1;
}

/* `mqsend --delay 1h` names flags of that tool; in a table, so do the cells
 * after the tool's name. */
Test(docs_pages, flags_that_pages_name_are_flags_of_their_program)
{
    const char *seen =
        sh("cd \"$1\"; grep -ohE '`mq(worker|send|ctl|dlq)( [^`]*)?`' *.md"
           "  ../README.md | tr -d '`' | sort -u | while read -r tool rest; do"
           "  set -f; verb=;"
           "  case $tool in (mqctl|mqdlq) verb=${rest%% *};"
           "    case $verb in ('' | -* | [A-Z]*) continue ;; esac ;; esac;"
           "  help=$($tool $verb --help 2>&1) ||"
           "    { echo \"wrong: $tool $verb\"; continue; };"
           "  for word in ${rest%% -- *}; do case $word in (--[a-z]*)"
           "    flag=${word%%[=[]*}; flag=${flag%,};"
           "    echo \"$help\" | grep -qE -e \"(^|[ ,])$flag([ =[]|\\$)\" ||"
           "    echo \"wrong: $tool $rest: $flag\"; echo seen ;; esac; done;"
           "done >\"$OLDPWD/flags\"; cd \"$OLDPWD\"; sort flags | uniq -c",
           page(""));

    cr_assert_null(strstr(seen, "wrong"), "%s", seen);
    cr_assert_geq(atol(seen), 30, "%s", seen);
}

/* ---- migrating.md ---- */

Test(docs_pages, loop_and_handler_and_plugin_of_migrating_do_the_same)
{
    const char *queue = harness_queue(10, 256);

    block("migrating.md", "c before", "before.c");
    block("migrating.md", "c after", "after.c");
    block("migrating.md", "c plugin", "plugin.c");
    sh("${CC:-cc} -Wall -Wextra -Werror -o before before.c -lrt;"
       "${CC:-cc} -Wall -Wextra -Werror -o after after.c;"
       "${CC:-cc} -Wall -Wextra -Werror -I\"$1\"/../worker -shared -fPIC"
       "  -o plugin.so plugin.c",
       page(""));
    harness_send_text(queue, "an order");
    struct harness_process *loop =
        harness_program(harness_path("before"), queue);
    harness_until(strstr(harness_stdout(loop, NULL), "an order\n"), 5000);
    harness_kill(loop);

    harness_send_text(queue, "second order");
    struct harness_process *w =
        harness_worker(queue, "--", harness_path("after"));
    harness_until(strstr(harness_stdout(w, NULL), "second order\n"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);

    harness_send_text(queue, "third order");
    w = harness_worker(queue, "--plugin", harness_path("plugin.so"));
    harness_until(strstr(harness_stdout(w, NULL), "third order\n"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* ---- backup.md ---- */

Test(docs_pages, store_is_saved_in_use_and_put_back)
{
    const char *queue = harness_queue(10, 256);

    if (!harness_has("sqlite3"))
        cr_skip_test("no sqlite3 here");
    block("backup.md", "sh save", "save");
    block("backup.md", "sh restore", "restore");
    harness_send_text(queue, "of the backup");
    struct harness_process *w =
        harness_worker(queue, "--max-attempts", "1", "--", "false");
    harness_until(letters(harness_state_dir(), queue) == 1, 5000);
    cr_assert_str_eq(sh("sh -eu ./save state\"$1\" \"$PWD/copy\"", queue),
                     "ok\n");
    harness_send_text(queue, "later than the backup");
    harness_until(letters(harness_state_dir(), queue) == 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);

    sh("sh -eu ./restore copy state\"$1\"", queue);
    cr_assert_eq(letters(harness_state_dir(), queue), 1);
    w = harness_worker(queue, "--", "cat");
    harness_wait_log(w, "event=store_behind", 5000);
    harness_wait_log(w, "event=started", 5000);
    sh("mqdlq replay --all --state-dir state \"$1\"", queue);
    harness_until(strstr(harness_stdout(w, NULL), "of the backup"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(docs_pages, state_that_was_packed_runs_elsewhere)
{
    const char *queue = harness_queue(10, 256);

    harness_send_text(queue, "moved");
    struct harness_process *w =
        harness_worker(queue, "--max-attempts", "1", "--", "false");
    harness_until(letters(harness_state_dir(), queue) == 1, 5000);
    sh("mqctl drain --state-dir state \"$1\"", queue);
    cr_assert_eq(harness_wait(w, 5000), 0);
    sh("tar -C state -cpf orders.tar \"${1#/}\"; mkdir -m 700 elsewhere;"
       "tar -C elsewhere -xpf orders.tar",
       queue);
    cr_assert_eq(letters(harness_path("elsewhere"), queue), 1);
    w = harness_worker(queue, "--state-dir", harness_path("elsewhere"), "--",
                       "cat");
    harness_wait_log(w, "event=started", 5000);
    sh("mqdlq replay --all --state-dir elsewhere \"$1\"", queue);
    harness_until(strstr(harness_stdout(w, NULL), "moved"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* ---- containers ---- */

/* Build the image and let it send to itself. That takes a network and minutes,
 * so it is done only if MQW_TEST_IMAGE names a program that builds images. */
Test(docs_pages, image_of_the_example_runs, .timeout = 1200)
{
    const char *builder = getenv("MQW_TEST_IMAGE");

    if (!builder || !harness_has(builder))
        cr_skip_test("MQW_TEST_IMAGE=podman (or docker) builds the image");
    const char *said =
        sh("b=$MQW_TEST_IMAGE; \"$b\" build -q -t mqworker-test"
           "  -f \"$1\"/examples/Dockerfile \"$1\"/.. >/dev/null;"
           "\"$b\" run --rm mqworker-test sh -c 'mqsend --create /o morning;"
           "  mqworker -q --exit-when-idle=0s /o -- cat'",
           page(""));
    cr_assert(strstr(said, "morning"), "%s", said);
}
