/* test_coprocess.c - a child that is given messages and answers them */
#include "tests/unit/handlers/stream_fixture.h"
#include "worker/source/mq/lent.h"

#include <sys/stat.h>

TestSuite(coprocess, .init = stream_setup, .fini = stream_teardown);

/* ---- answers ---- */

Test(coprocess, each_answer_becomes_its_verdict)
{
    stream_open_script(STREAM_EACH);
    one("echo OK $id", MQW_DONE, "");
    one("echo DISCARD $id", MQW_DISCARD, "");
    one("echo DEAD $id no such account", MQW_DEAD, "no such account");
    one("echo RETRY $id", MQW_RETRY, "answered RETRY");
    cr_assert_not(out.delayed);
    one("echo RETRY $id delay=90s busy", MQW_RETRY, "busy");
    cr_assert(out.delayed);
    cr_assert_eq(out.delay_ns, 90 * NS_PER_S);
    one("echo OK $id", MQW_DONE, "");
    cr_assert_not(out.delayed);
    cr_assert(out.ran);
    cr_assert_eq(logged("event=stream_child_started"), 1);
}

Test(coprocess, a_child_has_what_every_handler_has)
{
    char want[128];

    stream_open_script(STREAM_EACH);
    snprintf(want, sizeof want, "%s %" PRIu64 " unset", stream_queue,
             set.max_attempts);
    one("echo DEAD $id $MQW_QUEUE $MQW_MAX_ATTEMPTS ${MQW_ID:-unset}", MQW_DEAD,
        want);
    /* The group is the child's own, the input a pipe that can be opened. */
    one("[ $(cut -d' ' -f5 /proc/$$/stat) = $$ ] && [ -p /dev/stdin ] && : "
        "</dev/stdin && "
        "echo OK $id",
        MQW_DONE, "");
    one("kill -s PIPE $$; echo OK $id", MQW_RETRY, "signal 13");
}

Test(coprocess, answers_come_in_any_order)
{
    set.window = 4;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "first=$id");
    give(1, "second=$id");
    give(2, "echo OK $id; echo DEAD $second");
    give(3, "echo OK $first; echo DISCARD $id");
    cr_assert_eq(COPROCESSES->room(coprocess), 0);
    next_is(2, MQW_DONE, "");
    cr_assert_eq(COPROCESSES->room(coprocess), 1);
    next_is(1, MQW_DEAD, "answered DEAD");
    next_is(0, MQW_DONE, "");
    next_is(3, MQW_DISCARD, "");
    cr_assert_eq(COPROCESSES->room(coprocess), 4);
}

Test(coprocess, two_messages_with_one_id_are_answered_one_after_the_other)
{
    set.window = 2;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "a=$id");
    stream_make(1, "echo OK $id; echo DISCARD $a", 28);
    messages[1].slot->id = messages[0].slot->id;
    delivery_read(&messages[1].d, &messages[1].lent.m, 0);
    COPROCESSES->send(coprocess, &messages[1].d);
    next_is(0, MQW_DONE, "");
    next_is(1, MQW_DISCARD, "");
}

/* Make message i, whose body has so many bytes and does nothing. */
static struct delivery *fill(unsigned i, size_t size)
{
    static char text[STREAM_BODY];

    memset(text, 'x', size);
    return stream_make(i, text, size);
}

Test(coprocess, who_answers_before_reading_on_is_no_deadlock)
{
    /* Each answer fills a good part of a pipe, and so does each message. */
    set.window = 32;
    stream_open_script(
        "pad=$(printf %8000s x); while read -r msg id size rest; "
        "do read -r body; echo \"DEAD $id $pad\"; done");
    ready();
    for (unsigned i = 0; i < 32; i++)
        COPROCESSES->send(coprocess, fill(i, 20000));
    for (unsigned i = 0; i < 32; i++) {
        cr_assert_eq(COPROCESSES->next(coprocess, &out), &messages[i].d);
        cr_assert_eq(out.verdict, MQW_DEAD);
    }
    cr_assert_eq(logged("event=stream_child_ended"), 0, "%s", logged_text);
}

Test(coprocess, a_body_arrives_byte_for_byte)
{
    static char body[STREAM_BODY];
    char want[64], path[64], command[256];

    snprintf(path, sizeof path, "/dev/shm/mqw-coprocess-%d", (int)getpid());

    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 7 + i / 256);
    stream_open_script("read -r msg id size rest; head -c $size >/dev/shm/$$; "
                       "sum=$(cksum </dev/shm/$$); rm /dev/shm/$$; "
                       "echo DEAD $id $sum; read -r x");
    ready();
    COPROCESSES->send(coprocess, stream_make(0, body, sizeof body));
    cr_assert_eq(COPROCESSES->next(coprocess, &out), &messages[0].d);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fwrite(body, 1, sizeof body, f);
    fclose(f);
    snprintf(command, sizeof command, "cksum <%s; rm %s", path, path);
    f = popen(command, "r");
    cr_assert(fgets(want, sizeof want, f));
    pclose(f);
    want[strcspn(want, "\n")] = '\0';
    cr_assert_str_eq(out.error, want);
}

Test(coprocess, a_slot_names_its_child_before_the_child_has_a_byte_of_it)
{
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "echo DEAD $id $$ $MQW_DELIVERY");
    const struct slot *slot = messages[0].slot;
    int32_t group = atomic_load(&slot->handler_pgid);
    char mark[64];
    cr_assert_gt(group, 1);
    cr_assert_geq(slot->handler_mark, STREAM_MARKS);
    cr_assert_neq(slot->handler_start, 0);
    cr_assert_eq(COPROCESSES->next(coprocess, &out), &messages[0].d);
    cr_assert_eq(atoi(out.error), group);
    snprintf(mark, sizeof mark, "-%" PRIu64, slot->handler_mark);
    cr_assert(strstr(out.error, mark), "%s has no %s", out.error, mark);
}

Test(coprocess, what_it_wrote_to_stderr_is_kept_with_the_message)
{
    stream_open_script(STREAM_EACH);
    one("echo of the first >&2; echo OK $id", MQW_DONE, "");
    one("echo of the second >&2; echo RETRY $id", MQW_RETRY, "answered RETRY");
    cr_assert_eq(out.tail_size, strlen("of the second\n"));
    cr_assert_eq(memcmp(out.tail, "of the second\n", out.tail_size), 0);
    cr_assert_eq(logged("line=\"of the second\""), 1);
    one("echo last words >&2; exit 9", MQW_RETRY, "exit 9");
    cr_assert_eq(memcmp(out.tail, "last words\n", out.tail_size), 0);
    cr_assert_eq(logged("line=\"last words\""), 1);
}

Test(coprocess, a_line_of_stderr_names_a_message_only_if_one_alone_is_meant)
{
    char want[128];

    set.window = 2;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "echo alone >&2; echo OK $id");
    next_is(0, MQW_DONE, "");
    snprintf(want, sizeof want, "msg=%s pid=", stream_id(0));
    cr_assert_eq(logged("line=alone"), 1);
    cr_assert_eq(logged(want), 1, "%s", logged_text);
    give(0, "a=$id");
    give(1, "echo both >&2; echo OK $id; echo OK $a");
    next_is(1, MQW_DONE, "");
    next_is(0, MQW_DONE, "");
    while (logged("line=both") == 0) {
        something();
        coprocess_look(coprocess);
    }
    cr_assert(!strstr(strstr(logged_text, "line=alone") + 1, "msg="), "%s",
              logged_text);
}

/* ---- a child that ends ---- */

Test(coprocess, what_was_open_failed_once_and_the_next_child_gets_the_next)
{
    set.window = 3;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "a=$id");
    give(1, "echo OK $a; read -r head; exit 3");
    next_is(0, MQW_DONE, "");
    give(2, ":");
    next_is(1, MQW_RETRY, "exit 3");
    cr_assert(out.ran);
    next_is(2, MQW_RETRY, "exit 3");
    cr_assert_eq(logged("event=stream_child_ended"), 1);
    cr_assert_eq(logged("how=\"exit 3\" answered=1 open=2"), 1, "%s",
                 logged_text);
    one("echo OK $id", MQW_DONE, "");
}

Test(coprocess, a_signal_is_told_too)
{
    stream_open_script(STREAM_EACH);
    one("kill -9 $$", MQW_RETRY, "signal 9");
    cr_assert_eq(logged("how=\"signal 9\""), 1);
}

Test(coprocess, exit_codes_with_a_meaning_decide_nothing)
{
    set.on_exit[3] = MQW_DISCARD;
    stream_open_script(STREAM_EACH);
    one("exit 3", MQW_RETRY, "exit 3");
    one("exit 65", MQW_RETRY, "exit 65");
    one("exit 0", MQW_RETRY, "exit 0");
}

Test(coprocess, an_answer_right_before_the_end_counts)
{
    set.window = 2;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "a=$id");
    give(1, "echo OK $a; echo DEAD $id; exit 1");
    next_is(0, MQW_DONE, "");
    next_is(1, MQW_DEAD, "answered DEAD");
    idle_end();
    cr_assert_eq(logged("how=\"exit 1\" answered=2 open=0 again_in=100ms"), 1,
                 "%s", logged_text);
    one("echo OK $id", MQW_DONE, "");
}

Test(coprocess, what_never_reached_it_comes_back_unsent_newest_first)
{
    /* The child reads nothing of the second message, which is larger than a
     * pipe. So no byte of the third and fourth is in the pipe. */
    set.window = 4;
    stream_open_script("read -r msg id rest; read -r body; echo OK $id; "
                       "read -r msg id rest; exec sleep 1000");
    ready();
    give(0, "");
    COPROCESSES->send(coprocess, fill(1, STREAM_BODY));
    COPROCESSES->send(coprocess, fill(2, STREAM_BODY));
    COPROCESSES->send(coprocess, fill(3, 10));
    next_is(0, MQW_DONE, "");
    kill(atomic_load(&messages[0].slot->handler_pgid), SIGKILL);
    next_kind(3, OUTCOME_UNSENT);
    cr_assert_not(out.ran);
    next_kind(2, OUTCOME_UNSENT);
    next_is(1, MQW_RETRY, "signal 9");
}

Test(coprocess, a_child_that_is_gone_gets_nothing)
{
    stream_open_script(STREAM_EACH);
    one("echo OK $id", MQW_DONE, "");
    pid_t pid = atomic_load(&messages[0].slot->handler_pgid);
    kill(pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT),
                 0);
    ready();
    give(1, "echo OK $id");
    next_kind(1, OUTCOME_UNSENT);
    one("echo OK $id", MQW_DONE, "");
}

Test(coprocess, a_command_that_cannot_be_started_is_not_the_messages_fault)
{
    static char no[] = "/nowhere/handler", *argv[] = {no, NULL};

    stream_open_with(argv);
    cr_assert_eq(COPROCESSES->ready(coprocess, &out), -ENOENT);
    cr_assert_eq(out.kind, OUTCOME_NOT_STARTED);
    cr_assert_str_eq(
        out.error, "cannot start /nowhere/handler: No such file or directory");
    cr_assert_eq(COPROCESSES->ready(coprocess, &out), -ENOENT,
                 "the second try does not fail at once");
}

Test(coprocess, exit_127_without_an_answer_is_not_the_messages_fault_either)
{
    stream_open_script("read -r msg id rest; read -r body; exit 127");
    ready();
    give(0, "");
    next_kind(0, OUTCOME_NOT_STARTED);
    cr_assert_str_eq(out.error, "exit 127: the command was not found");
}

Test(coprocess, exit_127_after_an_answer_is_a_failure)
{
    stream_open_script(STREAM_EACH);
    one("echo OK $id", MQW_DONE, "");
    one("exit 127", MQW_RETRY, "exit 127");
}

/* ---- a child that breaks the rules ---- */

/* Let the child say this instead of an answer. It must be ended, and the
 * coprocess must go on with another child. */
static void breaks(const char *body, const char *error)
{
    unsigned before = logged("event=stream_protocol");

    one(body, MQW_RETRY, error);
    cr_assert_eq(logged("event=stream_protocol"), before + 1, "%s",
                 logged_text);
    cr_assert_geq(logged(error), 1);
    one("echo OK $id", MQW_DONE, "");
}

Test(coprocess, who_breaks_the_rules_is_ended_and_started_again)
{
    stream_open_script(STREAM_EACH);
    breaks("echo hello there", "wrote garbage");
    cr_assert_eq(logged("line=\"hello there\""), 1);
    breaks("printf 'OK \\033[31m\\n'; exec sleep 1000",
           "answered an unknown id");
    breaks("echo OK $id $id", "wrote garbage");
    breaks("printf %9000s x; exec sleep 1000", "wrote an over-long line");
    breaks("printf '%9000s\\n' x; exec sleep 1000", "wrote an over-long line");
    stream_passes |= 1u << COPROCESS_CLOSED;
    breaks("exec >&-; exec sleep 1000", "closed its output");
    cr_assert_eq(logged("event=stream_child_started"), 7);
}

Test(coprocess, an_answer_twice_is_one_to_an_unknown_id)
{
    set.window = 2;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "echo OK $id; echo OK $id; exec sleep 1000");
    give(1, ":");
    next_is(0, MQW_DONE, "");
    next_is(1, MQW_RETRY, "answered an unknown id");
}

Test(coprocess, an_answer_to_what_was_not_sent_yet_is_one_to_an_unknown_id)
{
    char body[128];

    set.window = 3;
    stream_open_script(STREAM_EACH);
    ready();
    stream_make(2, "x", 1);
    snprintf(body, sizeof body, "echo OK %s; exec sleep 1000", stream_id(2));
    give(0, body);
    COPROCESSES->send(coprocess, fill(1, STREAM_BODY));
    COPROCESSES->send(coprocess, &messages[2].d);
    next_kind(2, OUTCOME_UNSENT);
    next_is(0, MQW_RETRY, "answered an unknown id");
    next_is(1, MQW_RETRY, "answered an unknown id");
}

Test(coprocess, who_closes_its_input_has_no_more_but_may_answer)
{
    set.window = 2;
    stream_open_script(STREAM_EACH);
    ready();
    /* The second is larger than the pipe, so that the end is noticed. */
    give(0, "exec <&-; echo OK $id; exec sleep 1000");
    COPROCESSES->send(coprocess, fill(1, STREAM_BODY));
    next_is(0, MQW_DONE, "");
    stream_passes |= 1u << COPROCESS_CLOSED;
    next_is(1, MQW_RETRY, "closed its input");
}

Test(coprocess, who_closes_its_input_and_stays_has_failed)
{
    stream_open_script(STREAM_EACH);
    stream_passes |= 1u << COPROCESS_CLOSED;
    /* The child has read everything, so that no write can fail. */
    breaks("exec <&-; exec sleep 1000", "closed its input");
    cr_assert_eq(logged("event=stream_child_started"), 2);
}

Test(coprocess, who_closes_its_input_may_answer_before_it_ends)
{
    char body[256], path[64];

    snprintf(path, sizeof path, "/dev/shm/mqw-coprocess-go-%d", (int)getpid());
    snprintf(body, sizeof body,
             "exec <&-; echo shut >&2; while [ ! -e %s ]; do sleep 0.01; done; "
             "echo OK $id; exit 0",
             path);
    stream_open_script(STREAM_EACH);
    ready();
    give(0, body);
    heard("line=shut");
    fclose(fopen(path, "w"));
    next_is(0, MQW_DONE, "");
    idle_end();
    unlink(path);
    cr_assert_eq(logged("how=\"exit 0\" answered=1 open=0 again_in=0s"), 1,
                 "%s", logged_text);
    cr_assert_eq(logged("event=stream_protocol"), 0, "%s", logged_text);
    one("echo OK $id", MQW_DONE, "");
}

Test(coprocess, who_closes_its_input_while_it_has_nothing_gets_nothing)
{
    stream_open_script(STREAM_EACH);
    one("echo OK $id; exec <&-; exec sleep 1000", MQW_DONE, "");
    while (COPROCESSES->room(coprocess)) {
        something();
        cr_assert(coprocess_look(coprocess),
                  "it was ended, but may be about to exit");
    }
    stream_passes |= 1u << COPROCESS_CLOSED;
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("what=\"closed its input\" open=0"), 1, "%s",
                 logged_text);
}

Test(coprocess, a_child_that_ignores_sigterm_is_killed_with_all_it_started)
{
    stream_passes |= 1u << COPROCESS_TERMINATING;
    stream_open_script("trap '' TERM; " STREAM_EACH);
    one("x=$(setsid sh -c 'exec sleep 1000 >&-' &); sleep 1000 & echo what; "
        "sleep 1000",
        MQW_RETRY, "wrote garbage");
    cr_assert_eq(logged("how=\"signal 9\""), 1, "%s", logged_text);
    cr_assert_eq(logged("event=remains_killed"), 1, "%s", logged_text);
}

/* ---- backoff ---- */

Test(coprocess, starting_again_is_delayed_more_and_more_until_one_answers)
{
    stream_open_script(STREAM_EACH);
    one("exit 1", MQW_RETRY, "exit 1");
    one("exit 1", MQW_RETRY, "exit 1");
    one("exit 1", MQW_RETRY, "exit 1");
    cr_assert_eq(logged("again_in=100ms"), 1, "%s", logged_text);
    cr_assert_eq(logged("again_in=200ms"), 1, "%s", logged_text);
    cr_assert_eq(logged("again_in=400ms"), 1, "%s", logged_text);
    one("echo OK $id", MQW_DONE, "");
    one("exit 1", MQW_RETRY, "exit 1");
    cr_assert_eq(logged("again_in=100ms"), 2, "%s", logged_text);
    uint64_t start = clock_mono_ns();
    ready();
    cr_assert_geq(clock_mono_ns() - start, 90 * NS_PER_MS);
}

Test(coprocess, a_child_that_leaves_in_order_is_replaced_at_once)
{
    stream_open_script(STREAM_EACH);
    one("echo OK $id; exit 0", MQW_DONE, "");
    idle_end();
    cr_assert_eq(logged("how=\"exit 0\" answered=1 open=0 again_in=0s"), 1,
                 "%s", logged_text);
}

Test(coprocess, a_wake_cuts_the_backoff_short)
{
    stream_open_script(STREAM_EACH);
    for (int i = 0; i < 3; i++)
        one("exit 1", MQW_RETRY, "exit 1");
    COPROCESSES->wake(coprocess);
    cr_assert_eq(COPROCESSES->ready(coprocess, &out), -EINTR);
    one("echo OK $id", MQW_DONE, "");
}

Test(coprocess, a_wake_ends_the_wait_for_an_answer)
{
    stream_open_script(STREAM_EACH);
    ready();
    give(0, "read -r x; echo OK $id");
    COPROCESSES->wake(coprocess);
    cr_assert_null(COPROCESSES->next(coprocess, &out));
    cr_assert_eq(COPROCESSES->room(coprocess), 0);
    kill(atomic_load(&messages[0].slot->handler_pgid), SIGKILL);
    next_is(0, MQW_RETRY, "signal 9");
}

/* ---- time limits ---- */

Test(coprocess, a_time_limit_ends_the_child_and_fails_its_message)
{
    set.timeout_ns = NS_PER_S * 3600;
    stream_open_script(STREAM_EACH);
    stream_passes |= 1u << COPROCESS_RUNS;
    one("exec sleep 1000", MQW_RETRY, "timeout 1h");
    stream_passes &= ~(1u << COPROCESS_RUNS);
    cr_assert_eq(logged("event=handler_timeout"), 1);
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("event=handler_timeout"), 1);
}

#define LIMITED "MQW/1\ntimeout: 3600000\n\n"

Test(coprocess, a_message_brings_a_limit_of_its_own)
{
    set.window = 2;
    stream_open_script(STREAM_EACH);
    ready();
    give(0, LIMITED "exec sleep 1000");
    give(1, ":");
    stream_passes |= 1u << COPROCESS_RUNS;
    next_is(0, MQW_RETRY, "timeout 1h");
    next_is(1, MQW_RETRY, "ended for another message's timeout");
}

Test(coprocess, others_may_be_answered_while_the_child_ends)
{
    char want[128];

    set.window = 2;
    stream_open_script("trap 'echo OK $second; echo OK $first; exit 0' TERM; "
                       "read -r msg first rest; read -r body; "
                       "read -r msg second rest; read -r body; "
                       "echo both >&2; while :; do sleep 0.01; done");
    ready();
    give(0, LIMITED);
    give(1, "x");
    heard("line=both");
    stream_passes |= 1u << COPROCESS_RUNS;
    next_is(1, MQW_DONE, "");
    next_is(0, MQW_RETRY, "timeout 1h");
    snprintf(want, sizeof want, "answer=\"OK %s\"", stream_id(0));
    cr_assert_eq(logged("event=handler_late"), 1);
    cr_assert_eq(logged(want), 1, "%s", logged_text);
    cr_assert_eq(COPROCESSES->room(coprocess), 0);
}

/* ---- the life of a child ---- */

Test(coprocess, a_child_is_replaced_after_as_many_messages)
{
    set.window = 2;
    set.max_requests = 3;
    stream_open_script(STREAM_EACH);
    one("echo OK $id", MQW_DONE, "");
    ready();
    give(0, "a=$id");
    cr_assert_eq(COPROCESSES->room(coprocess), 1);
    give(1, "echo OK $id; echo OK $a");
    cr_assert_eq(COPROCESSES->room(coprocess), 0);
    next_is(1, MQW_DONE, "");
    cr_assert_eq(COPROCESSES->room(coprocess), 0);
    next_is(0, MQW_DONE, "");
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("event=stream_child_started"), 2);
    cr_assert_eq(logged("how=\"exit 0\" why=max-requests answered=3 open=0 "
                        "again_in=0s"),
                 1, "%s", logged_text);
}

Test(coprocess, a_child_that_has_grown_is_replaced)
{
    set.max_rss = 8 << 20;
    stream_open_script(STREAM_EACH);
    one("echo OK $id", MQW_DONE, "");
    one("big=$(head -c 12000000 /dev/zero | tr '\\0' x); echo OK $id", MQW_DONE,
        "");
    clock_pass(NS_PER_S); /* as long as it is between two looks */
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("event=stream_child_grown"), 1);
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("why=max-rss"), 1, "%s", logged_text);
    cr_assert_eq(logged("event=stream_child_started"), 2);
}

Test(coprocess, a_fresh_child_above_the_limit_is_no_recycling_loop)
{
    set.max_rss = 1;
    stream_open_script(STREAM_EACH);
    for (int i = 0; i < 5; i++)
        one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("event=stream_rss_off"), 1);
    cr_assert_eq(logged("event=stream_child_started"), 1);
}

/* ---- a child that no work item has ---- */

Test(coprocess, an_idle_child_is_heard_and_its_end_is_noticed)
{
    stream_open_script(STREAM_EACH);
    one("echo OK $id; echo later >&2; kill -9 $$", MQW_DONE, "");
    COPROCESSES->put(handler, coprocess);
    idle_end();
    cr_assert_eq(logged("line=later"), 1);
    cr_assert_eq(logged("how=\"signal 9\""), 1);
    cr_assert_eq(waitid(P_PID,
                        (id_t)atomic_load(&messages[0].slot->handler_pgid),
                        &(siginfo_t){0}, WEXITED | WNOHANG),
                 -1, "it was not reaped");
    cr_assert_eq(COPROCESSES->get(handler), coprocess);
    one("echo OK $id", MQW_DONE, "");
}

/* Let an idle child say more than its answer, for which it must be ended. */
static void talks(const char *body)
{
    unsigned before = logged("event=stream_protocol");

    one(body, MQW_DONE, "");
    COPROCESSES->put(handler, coprocess);
    idle_end();
    cr_assert_eq(logged("event=stream_protocol"), before + 1);
    cr_assert_eq(COPROCESSES->get(handler), coprocess);
}

Test(coprocess, an_idle_child_that_talks_is_ended)
{
    stream_open_script(STREAM_EACH);
    talks("printf 'OK %s\\nhello\\n' $id");
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("event=stream_child_started"), 2);
}

Test(coprocess, an_idle_child_that_talks_later_is_ended)
{
    char body[256], path[64];

    snprintf(path, sizeof path, "/dev/shm/mqw-coprocess-talk-%d",
             (int)getpid());
    cr_assert_eq(mkfifo(path, 0600), 0);
    snprintf(body, sizeof body, "echo OK $id; read -r go <%s; echo hello",
             path);
    stream_open_script(STREAM_EACH);
    one(body, MQW_DONE, "");
    COPROCESSES->put(handler, coprocess);
    fclose(fopen(path, "w")); /* waits until it reads */
    idle_end();
    unlink(path);
    cr_assert_eq(logged("event=stream_protocol"), 1);
    cr_assert_eq(COPROCESSES->get(handler), coprocess);
    one("echo OK $id", MQW_DONE, "");
    cr_assert_eq(logged("event=stream_child_started"), 2);
}

Test(coprocess, the_lane_that_was_put_back_last_is_handed_out_first)
{
    stream_open_script(STREAM_EACH);
    struct coprocess *other = COPROCESSES->get(handler),
                     *third = COPROCESSES->get(handler);
    cr_assert(other && third && other != third);
    COPROCESSES->put(handler, coprocess);
    COPROCESSES->put(handler, other);
    cr_assert_eq(COPROCESSES->get(handler), other);
    cr_assert_eq(COPROCESSES->get(handler), coprocess);
}

/* ---- the end ---- */

Test(coprocess, close_is_the_end_of_the_input)
{
    stream_open_script(STREAM_EACH "; echo saw the end >&2");
    one("echo OK $id", MQW_DONE, "");
    stream_shut();
    cr_assert_eq(logged("line=\"saw the end\""), 1);
    cr_assert_eq(logged("how=\"exit 0\" why=closing"), 1, "%s", logged_text);
}

/* Skip waits until a process stays: the kernel ends it, in real time. */
static bool until_killed(void)
{
    return logged("event=process_stays") == 0;
}

Test(coprocess, close_ends_who_does_not_go_with_all_it_started)
{
    stream_open_script("trap '' TERM; setsid sleep 1000 & " STREAM_EACH
                       "; while :; do sleep 1; done");
    one("echo OK $id", MQW_DONE, "");
    clock_passes = until_killed; /* it does not go by itself */
    stream_shut();
    cr_assert_eq(logged("how=\"signal 9\""), 1, "%s", logged_text);
}

static void *start_one(void *arg)
{
    coprocess = arg;
    one("echo OK $id", MQW_DONE, "");
    return NULL;
}

Test(coprocess, children_whose_threads_have_ended_are_told_from_what_they_left)
{
    struct coprocess *coprocesses[3];
    pthread_t thread;

    stream_open_script("setsid sleep 1000 & " STREAM_EACH);
    COPROCESSES->put(handler, coprocess);
    for (int i = 0; i < 3; i++)
        coprocesses[i] = COPROCESSES->get(handler);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&thread, NULL, start_one, coprocesses[i]),
                     0);
        pthread_join(thread, NULL);
    }
    stream_shut();
    cr_assert_eq(logged("how=\"exit 0\""), 3, "%s", logged_text);
    cr_assert_geq(logged("event=remains_killed"), 1, "%s", logged_text);
}

Test(coprocess, stop_leaves_what_was_open_uncounted)
{
    set.window = 3;
    stream_open_script("trap 'echo OK $second; exit 1' TERM; "
                       "read -r msg first rest; read -r body; "
                       "read -r msg second rest; read -r body; "
                       "echo ready >&2; while :; do sleep 0.01; done");
    ready();
    give(0, "x");
    give(1, "x");
    heard("line=ready");
    OPS->stop(handler, SIGTERM);
    cr_assert_eq(COPROCESSES->room(coprocess), 0);
    cr_assert_eq(next_woken(), &messages[1].d);
    cr_assert_eq(out.kind, OUTCOME_VERDICT);
    cr_assert_eq(out.verdict, MQW_DONE);
    next_kind(0, OUTCOME_STOPPED);
    cr_assert_eq(COPROCESSES->ready(coprocess, &out), -EINTR);
}

Test(coprocess, a_retry_while_the_worker_stops_is_no_failure)
{
    stream_open_script("trap 'echo RETRY $id interrupted; exit 1' TERM; "
                       "read -r msg id rest; read -r body; echo ready >&2; "
                       "while :; do sleep 0.01; done");
    ready();
    give(0, "x");
    heard("line=ready");
    OPS->stop(handler, SIGTERM);
    cr_assert_eq(next_woken(), &messages[0].d);
    cr_assert_eq(out.kind, OUTCOME_STOPPED);
}

Test(coprocess, stop_by_sigkill_leaves_nothing)
{
    stream_open_script("trap '' TERM; " STREAM_EACH);
    ready();
    give(0, "setsid sleep 1000 & sleep 1000 & echo up >&2; wait; sleep 1000");
    heard("line=up");
    OPS->stop(handler, SIGTERM);
    OPS->stop(handler, SIGKILL);
    cr_assert_eq(next_woken(), &messages[0].d);
    cr_assert_eq(out.kind, OUTCOME_STOPPED);
    cr_assert_eq(waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG), -1);
}
