/* test_mqdlq_edit.c - mqdlq edit: send a letter with another body */
#include "tests/e2e/mqdlq/mqdlq_fixture.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(mqdlq_edit, .init = harness_init, .fini = harness_fini);

#define LIMIT 10000

/* Check that a text has a part. */
#define has(text, part) \
    cr_assert(strstr((text), (part)), "no \"%s\" in: %s", (part), (text))

/* Start mqdlq edit with this script as the editor; its files are in "tmp". */
static struct harness_process *edit_start(const char *q, const char *id,
                                          const char *script)
{
    const char *tmp = harness_path("tmp");
    char dir[4096], editor[4096];

    (void)mkdir(tmp, 0700);
    snprintf(dir, sizeof dir, "TMPDIR=%s", tmp);
    snprintf(editor, sizeof editor, "VISUAL=%s", harness_script("ed", script));
    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "edit", "--state-dir",
                             harness_state_dir(), q, id),
        .env = HARNESS_LIST(dir, editor, "EDITOR=false")});
}

/* Run mqdlq edit to its end and check that the editor's files are removed. */
static struct harness_process *edit(const char *q, const char *id,
                                    const char *script, int status)
{
    struct harness_process *p = edit_start(q, id, script);
    int is = harness_wait(p, LIMIT);

    cr_assert_eq(is, status, "%d: %s", is, harness_stderr(p, NULL));
    cr_assert_eq(rmdir(harness_path("tmp")), 0, "a file was left there");
    return p;
}

/* Check the state and the body of a letter. */
static void body_is(const char *q, const char *id, const char *state,
                    const char *body)
{
    char line[64];

    cr_assert_str_eq(dlq_out("show", "--body", q, id), body);
    snprintf(line, sizeof line, "state           %s", state);
    has(dlq_out("show", q, id), line);
}

/* Check that nothing was sent and no letter has changed. */
static void untouched(const char *q)
{
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(count(q), 3);
    body_is(q, "1", "dead", "first");
    body_is(q, "2", "dead", "second");
    has(dlq_out("show", q, "1"), "message id      " ID_A "\n");
}

Test(mqdlq_edit, sends_the_new_body_under_a_new_id_that_names_the_old_one)
{
    const char *q = three_letters(), *out, *text;
    struct harness_process *p = edit(q, "2", "printf 2nd >\"$1\"", 0);
    char id[32];

    out = harness_stdout(p, NULL);
    has(out, "1 of 1 letter sent to ");
    has(out, ", with the id ");
    snprintf(id, sizeof id, "id: %.26s\n", strstr(out, "the id ") + 7);
    cr_assert(!strstr(id, ID_B));
    text = take(q, NULL);
    has(text, id);
    has(text, "\nsent: 5\nsize: 3\ngroup: g2\ntimeout: 77\nletter: 2\n");
    has(text, "\nedited-from: " ID_B "\nx-trace: abc\n\n2nd");
    cr_assert_eq(harness_queue_length(q), 0);
    body_is(q, "2", "replayed, on its way", "2nd");
    cr_assert_eq(count(q), 2);
}

Test(mqdlq_edit, what_dies_again_is_the_edited_letter_with_its_history)
{
    const char *q = three_letters(), *text;
    struct store *s;

    edit(q, "1", "printf other >\"$1\"", 0);
    take(q, NULL);
    s = store(q);
    die_again(s, 1);
    store_close(&s);
    body_is(q, "1", "dead", "other");
    has(dlq_out("show", q, "1"), "\n  2  ");
    has(dlq_out("show", q, "1"), "edited-from: " ID_A "\n");
    good(dlq("replay", q, "1"));
    text = take(q, NULL);
    has(text, "\nedited-from: " ID_A "\n");
    has(text, "\n\nother");
}

Test(mqdlq_edit, a_worker_runs_the_edited_message_and_settles_the_letter)
{
    const char *q = harness_queue(0, 0);
    const char *script = harness_script(
        "handler", "cat >>ran; echo >>ran; grep -q good ran || exit 65");
    struct harness_process *w = harness_worker(q, "--", script);

    harness_send_text(q, "bad");
    harness_until(count(q) == 1, LIMIT);
    edit(q, "1", "printf good >\"$1\"", 0);
    harness_until_lines("ran", 2, LIMIT);
    harness_until(dlq("show", q, "1").status == 66, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("ran", NULL), "bad\ngood\n");
    cr_assert_eq(harness_log_count(w, "event=letter_unknown"), 0);
}

/* The worker takes the edited message as the letter, and the message of an
 * earlier replay as a second copy. */
Test(mqdlq_edit, a_copy_of_an_earlier_replay_is_dropped)
{
    const char *q = harness_queue(0, 0);
    char copy[ROOM];
    ssize_t size;
    struct harness_process *w = harness_worker(
        q, "--", harness_script("handler", "cat >>ran; echo >>ran; exit 65"));

    harness_send_text(q, "bad");
    harness_until(count(q) == 1, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    good(dlq("replay", q, "1"));
    size = harness_receive(q, copy, sizeof copy, NULL);
    harness_send(q, copy, (size_t)size, 0);
    w = harness_worker(q, "--", harness_path("handler"));
    harness_until_lines("ran", 2, LIMIT);
    harness_until(count(q) == 1, LIMIT);
    edit(q, "1", "printf good >\"$1\"", 0);
    harness_send(q, copy, (size_t)size, 0);
    harness_wait_log(w, "event=duplicate_letter", LIMIT);
    harness_until(count(q) == 1, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("ran", NULL), "bad\nbad\ngood\n");
}

/* The store has the letter as dead, as after a recall, while its old message
 * runs. The end of that message must not remove the edited letter. */
Test(mqdlq_edit, the_end_of_the_old_message_keeps_the_edited_one)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "--", harness_script("handler", "cat >>ran; echo >>ran; exit 65"));

    harness_send_text(q, "bad");
    harness_until(count(q) == 1, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    good(dlq("replay", q, "1"));
    w = harness_worker(q, "-c", "1", "--",
                       harness_script("wait", "cat >>ran; echo >>ran; "
                                              "until [ -e go ]; do "
                                              "sleep 0.02; done"));
    harness_until_lines("ran", 2, LIMIT);
    harness_sql(q, "UPDATE messages SET state = 3, boot = NULL");
    edit(q, "1", "printf good >\"$1\"", 0);
    harness_write("go", "", 0);
    harness_until_lines("ran", 3, LIMIT);
    harness_until(count(q) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("ran", NULL), "bad\nbad\ngood\n");
}

Test(mqdlq_edit, nobody_else_can_read_what_the_editor_has)
{
    const char *q = three_letters();

    edit(q, "1",
         "stat -c %a \"$1\" \"$(dirname \"$1\")\" >modes\n"
         "umask 0; cp \"$1\" \"$1~\"; printf x >>\"$1\"",
         0);
    cr_assert_str_eq(harness_read("modes", NULL), "600\n700\n");
    has(take(q, NULL), "\n\nfirstx");
}

Test(mqdlq_edit, an_editor_may_replace_the_file)
{
    const char *q = three_letters();

    edit(q, "1", "echo new >\"$1.new\"; mv \"$1.new\" \"$1\"", 0);
    has(take(q, NULL), "\nsize: 3\n");
    body_is(q, "1", "replayed, on its way", "new"); /* without the newline */
}

Test(mqdlq_edit, an_unchanged_body_is_65_and_sends_nothing)
{
    const char *q = three_letters();
    struct harness_process *p = edit(q, "1", "cat \"$1\" >seen", 65);

    has(harness_stderr(p, NULL), "letter 1 is not sent: its body is unchanged; "
                                 "to send it as it is: mqdlq replay "
                                 "--state-dir /");
    has(harness_stdout(p, NULL), "0 of 1 letter sent to ");
    cr_assert_str_eq(harness_read("seen", NULL), "first");
    edit(q, "1", "echo >>\"$1\"", 65); /* vi ends the last line with a
                                        * newline */
    cr_assert_eq(dlq_input("first", "edit", "--body", "-", q, "1").status, 65);
    untouched(q);
}

Test(mqdlq_edit, a_failed_editor_changes_nothing)
{
    const char *q = three_letters();
    struct harness_process *p = edit(q, "1", "echo x >\"$1\"; exit 3", 69);

    has(harness_stderr(p, NULL), "failed (exit 3); the letter is unchanged");
    p = edit(q, "1", "echo x >\"$1\"; kill -9 $$", 69);
    has(harness_stderr(p, NULL), "failed (signal 9)");
    p = edit(q, "1", "rm \"$1\"", 66);
    has(harness_stderr(p, NULL), "cannot open ");
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "edit", "--state-dir",
                             harness_state_dir(), q, "1"),
        .env = HARNESS_LIST("VISUAL=", "EDITOR=false --really")});
    cr_assert_eq(r.status, 69, "%d: %s", r.status, r.err);
    has(r.err, "the editor \"false --really\" failed (exit 1)");
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "edit", "--state-dir",
                             harness_state_dir(), q, "1"),
        .env = HARNESS_LIST("TMPDIR=/no/such")});
    cr_assert_eq(r.status, 73, "%d: %s", r.status, r.err);
    has(r.err, "cannot create a folder in /no/such: ");
    untouched(q);
}

/* The editor has saved the file and exits after the letter has changed. */
Test(mqdlq_edit, text_for_a_letter_that_changed_meanwhile_is_kept)
{
    const char *q = three_letters(), *at;
    char folder[4096];
    struct harness_process *p = edit_start(
        q, "1", "printf new >\"$1\"; mkfifo go; echo >ready; cat go");

    harness_until_lines("ready", 1, LIMIT);
    good(dlq("discard", q, "1"));
    harness_write("go", "\n", 1);
    cr_assert_eq(harness_wait(p, LIMIT), 65);
    at = strstr(harness_stderr(p, NULL), "your text is kept in ");
    cr_assert(at, "%s", harness_stderr(p, NULL));
    cr_assert_eq(sscanf(at + 21, "%4095[^;]", folder), 1);
    cr_assert_str_eq(
        harness_read(harness_path("tmp/%s/letter-1", strrchr(folder, '/') + 1),
                     NULL),
        "new");
}

Test(mqdlq_edit, vi_is_not_started_without_a_terminal)
{
    const char *q = three_letters();
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "edit", "--state-dir",
                             harness_state_dir(), q, "1"),
        .env = HARNESS_LIST("VISUAL=", "EDITOR=")});

    cr_assert_eq(r.status, 69, "%d: %s", r.status, r.err);
    has(r.err, "vi needs a terminal; give the body with --body FILE");
    r = dlq("edit", "--body", ".", q, "1");
    cr_assert_eq(r.status, 74);
    has(r.err, "cannot read .: Is a directory; the letter is unchanged");
    untouched(q);
}

Test(mqdlq_edit, a_letter_that_waits_for_its_retry_is_named)
{
    const char *q = three_letters();
    struct store *s = store(q);
    struct store_row m;
    struct harness_result r;

    good(dlq("replay", q, "1"));
    cr_assert_eq(store_get(s, 1, &m, NULL, 0, NULL), 0);
    m.state = STORE_WAITING;
    m.attempts = 1;
    cr_assert_eq(store_put(s, &m, NULL, &m.row), 0);
    store_close(&s);
    r = dlq_input("x", "edit", "--body", "-", q, "1");
    cr_assert_eq(r.status, 66, "%d: %s", r.status, r.err);
    has(r.err, "1 is not a dead letter: the message waits in the store for its "
               "next attempt; see mqctl explain --state-dir /");
    r = dlq("show", q, ID_A);
    cr_assert_eq(r.status, 66, "%d: %s", r.status, r.err);
    has(r.err, ID_A " is not a dead letter: ");
}

Test(mqdlq_edit, a_signal_ends_the_editor_and_changes_nothing)
{
    const char *q = three_letters();
    struct harness_process *p =
        edit_start(q, "1", "echo x >\"$1\"; echo $$ >editor; exec sleep 600");
    pid_t pid;

    harness_until_lines("editor", 1, LIMIT);
    pid = (pid_t)atoi(harness_read("editor", NULL));
    harness_signal(p, SIGTERM);
    cr_assert_eq(harness_wait(p, LIMIT), -SIGTERM);
    cr_assert(!harness_alive(pid));
    cr_assert_eq(rmdir(harness_path("tmp")), 0);
    untouched(q);
}

Test(mqdlq_edit, the_body_of_a_file_is_taken_byte_for_byte)
{
    const char *q = three_letters();

    harness_write("body", "a\0b\n", 4);
    good(dlq("edit", "--body", harness_path("body"), q, "3"));
    cr_assert_eq(dlq("show", "--body", q, "3").out_size, 4);
    has(take(q, NULL), "\nsize: 4\n");
    const char *out = good(
        dlq_input("from stdin\n", "edit", "--json", "--body", "-", q, ID_A));
    has(out, "\"sent\":1,");
    has(out, "\"id\":1,\"message_id\":\"");
    has(out, "\"edited_from\":\"" ID_A "\"}\n");
    body_is(q, "1", "replayed, on its way", "from stdin\n");
    struct harness_result r = dlq("edit", "--body", "/no/such", q, "2");
    cr_assert_eq(r.status, 66, "%d: %s", r.status, r.err);
    has(r.err, "cannot open /no/such: ");
    body_is(q, "2", "dead", "second");
}

Test(mqdlq_edit, too_large_for_the_queue_is_refused_before_anything_changes)
{
    const char *q = three_letters();
    char body[ROOM + 2];
    struct harness_result r;

    memset(body, 'x', sizeof body);
    body[ROOM + 1] = '\0';
    r = dlq_input(body, "edit", "--body", "-", q, "1");
    cr_assert_eq(r.status, 65);
    has(r.err, "stdin is too large: the queue takes messages of at most 256 ");
    body[ROOM] = '\0';
    r = dlq_input(body, "edit", "--json", "--body", "-", q, "1");
    cr_assert_eq(r.status, 65);
    has(r.err, "letter 1 is not sent: it is too large: 256 bytes, and a header "
               "of ");
    has(r.out, "\"sent\":0,\"refused\":1,");
    cr_assert(!strstr(r.out, "message_id"));
    untouched(q);
}

Test(mqdlq_edit, what_replay_refuses_never_reaches_the_editor)
{
    static const char expired[] =
        "{\"reason\":\"expired\",\"died_at\":\"2026-01-04T00:00:00Z\","
        "\"header\":\"MQW/1\\nexpires: 9\\n\\n\",\"body\":\"late\"}\n";
    const char *q = three_letters();
    struct harness_process *p;

    good(dlq_input(expired, "import", q));
    p = edit(q, "4", "echo x >ran", 65);
    has(harness_stderr(p, NULL), "letter 4 is not sent: it expired ");
    good(dlq("replay", q, "1"));
    p = edit(q, "1", "echo x >ran", 65);
    has(harness_stderr(p, NULL), "letter 1 has been on its way since ");
    has(harness_stderr(p, NULL), "; `mqdlq replay --again --state-dir /");
    edit(q, "9", "echo x >ran", 66);
    cr_assert(!harness_exists("ran"));
    take(q, NULL);
    good(dlq_input("x", "edit", "--reset-expiry", "--body", "-", q, "4"));
    cr_assert(!strstr(take(q, NULL), "expires"));
}

Test(mqdlq_edit, a_full_queue_leaves_the_edited_letter_dead)
{
    const char *q = three_letters();
    struct harness_result r;

    for (int i = 0; i < 10; i++)
        harness_send_text(q, "");
    r = dlq_input("new", "edit", "--json", "--wait", "10ms", "--body", "-", q,
                  "1");
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    has(strstr(r.err, "stayed full\n"),
        "letter 1 is dead, with the edited body; `mqdlq replay "
        "--state-dir /");
    has(r.out, "\"sent\":0,");
    has(r.out, "\"message_id\":\"");
    body_is(q, "1", "dead", "new");
    cr_assert_eq(count(q), 3);
    while (harness_queue_length(q) > 0)
        take(q, NULL);
    good(dlq("replay", q, "1"));
    has(take(q, NULL), "\n\nnew");
}

/* Start to replay letter 1 with that flag; mqdlq has read the letter and waits
 * for room in `full`, which holds one message. */
static struct harness_process *replay_wait(const char *q, const char *flag,
                                           const char *full)
{
    struct harness_process *p = harness_program(
        "mqdlq", "replay", "--state-dir", harness_state_dir(), flag, q, "1");

    harness_until(waits_for_room(harness_pid(p)), LIMIT);
    cr_assert_eq(harness_queue_length(full), 1);
    return p;
}

/* Check that the replay sent the old body and left the edited letter. */
static void sent_before(struct harness_process *p, const char *to)
{
    take(to, NULL);
    cr_assert_eq(harness_wait(p, LIMIT), 65);
    has(harness_stderr(p, NULL),
        "letter 1 was sent as it had been before somebody edited or replayed "
        "it, and stays in the store: mqdlq show --state-dir /");
    has(take(to, NULL), "first");
}

Test(mqdlq_edit, a_raw_replay_that_waits_for_room_leaves_the_edited_letter)
{
    const char *q = harness_queue(1, 0);
    struct harness_process *p;

    good(dlq_input(three, "import", q));
    harness_send_text(q, "");
    p = replay_wait(q, "--raw", q);
    cr_assert_eq(
        dlq_input("new", "edit", "--wait", "10ms", "--body", "-", q, "1")
            .status,
        75);
    sent_before(p, q);
    body_is(q, "1", "dead", "new");
    good(dlq("replay", q, "1"));
    has(take(q, NULL), "\n\nnew");
}

Test(mqdlq_edit, a_replay_elsewhere_leaves_the_edited_letter_on_its_way)
{
    const char *q = three_letters(), *other = harness_queue(1, 0);
    char flag[128];
    struct harness_process *p;

    harness_send_text(other, "");
    snprintf(flag, sizeof flag, "--to=%s", other);
    p = replay_wait(q, flag, other);
    good(dlq_input("new", "edit", "--body", "-", q, "1"));
    sent_before(p, other);
    body_is(q, "1", "replayed, on its way", "new");
    has(take(q, NULL), "\n\nnew");
}

Test(mqdlq_edit, a_raw_replay_names_a_letter_that_somebody_discarded)
{
    const char *q = harness_queue(1, 0);
    struct harness_process *p;

    good(dlq_input(three, "import", q));
    harness_send_text(q, "");
    p = replay_wait(q, "--raw", q);
    good(dlq("discard", q, "1"));
    take(q, NULL);
    cr_assert_eq(harness_wait(p, LIMIT), 65);
    has(harness_stderr(p, NULL), "letter 1 was sent, but in the meantime "
                                 "another program had sent or discarded it");
    cr_assert_str_eq(take(q, NULL), "first");
}

Test(mqdlq_edit, an_empty_body_is_65_and_sends_nothing)
{
    const char *q = three_letters();
    struct harness_result r = dlq_input("", "edit", "--body", "-", q, "1");

    cr_assert_eq(r.status, 65, "%d: %s", r.status, r.err);
    has(r.err, "letter 1 is not sent: its new body is empty; to send an empty "
               "message: mqsend /");
    cr_assert_eq(dlq("edit", "--body", "/dev/null", q, "1").status, 65);
    edit(q, "1", ": >\"$1\"", 65);
    untouched(q);
}

/* Run mqdlq edit, killed at that step. */
static void edit_kill(const char *q, const char *id, const char *point)
{
    const char *program = harness_handler("../../points/bin/mqdlq");
    char at[64];

    if (access(program, X_OK) != 0)
        cr_skip_test("%s: make points", program);
    snprintf(at, sizeof at, "MQW_KILL_AT=%s", point);
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(program, "edit", "--state-dir",
                             harness_state_dir(), "--body", "-", q, id),
        .env = HARNESS_LIST(at),
        .input = "new",
        .input_size = 3});
    cr_assert_eq(harness_wait(p, LIMIT), -SIGKILL, "%s",
                 harness_stderr(p, NULL));
}

Test(mqdlq_edit, a_kill_leaves_the_old_letter_or_the_new_one)
{
    static const char *const steps[] = {
        "letters_mark_after", "replay_before_send", "replay_after_send"};
    const char *q = three_letters(), *text;

    edit_kill(q, "1", "letters_mark_before");
    untouched(q);
    for (size_t i = 0; i < 3; i++) {
        char id[] = {(char)('1' + i), '\0'};

        edit_kill(q, id, steps[i]);
        cr_assert_eq(count(q), 2 - (int)i, "%s", steps[i]);
        cr_assert_eq(count("--replayed", q), (int)i + 1, "%s", steps[i]);
        body_is(q, id, "replayed, maybe not sent", "new");
        struct harness_result r = harness_run("mqctl", "explain", "--state-dir",
                                              harness_state_dir(), q, id);
        cr_assert_eq(r.status, 0, "%d: %s", r.status, r.err);
        has(r.out, "marked replayed, but maybe not sent");
        has(r.out, "mqdlq replay --again --state-dir /");
        cr_assert_eq(harness_queue_length(q), i == 2, "%s", steps[i]);
        if (i < 2)
            good(dlq("replay", "--again", q, id));
        text = take(q, NULL);
        has(text, "\nedited-from: ");
        has(text, "\n\nnew");
    }
}

Test(mqdlq_edit, wants_one_letter_of_this_machine)
{
    const char *q = three_letters();
    struct harness_result r = dlq("edit", q);

    cr_assert_eq(r.status, 64);
    cr_assert_eq(dlq("edit", q, "1", "2").status, 64);
    r = dlq("edit", q, "-");
    cr_assert_eq(r.status, 64);
    has(r.err, "edit takes one id");
    r = harness_run("mqdlq", "edit", "amqp://u@localhost/v/q", ID_A);
    cr_assert_eq(r.status, 64, "%d: %s", r.status, r.err);
    has(r.err, "cannot be edited");
}
