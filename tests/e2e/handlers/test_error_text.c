/* test_error_text.c - the handler's own error text is shown wherever its
 * failure is */
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(error_text_shown, .init = harness_init, .fini = harness_fini);

#define dlq_out(verb, ...)                                                    \
    ctl_good(harness_run("mqdlq", (verb), "--state-dir", harness_state_dir(), \
                         __VA_ARGS__))

static void has(const char *text, const char *what)
{
    cr_assert_not_null(strstr(text, what), "no '%s' in: %s", what, text);
}

/* Check a field of the only letter. */
static void field_is(const char *q, const char *name, const char *text)
{
    json_t *o = ctl_json(dlq_out("show", "--json", q, "1"));
    json_t *value = json_object_get(o, name);

    if (text)
        cr_assert_str_eq(json_string_value(value), text);
    else
        cr_assert(json_is_null(value), "%s is not null", name);
    json_decref(o);
}

/* Check that the only letter died of `error`, and that `both` is shown. */
static void seen_everywhere(const char *q, struct harness_process *w,
                            const char *both)
{
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    has(harness_wait_log(w, "event=dead", SOON_MS), " letter=1 ");
    has(dlq_out("list", q), both);
    has(dlq_out("list", "--by", "error", q), both);
    has(dlq_out("list", "--count", "--error", both, q), "1\n");
    has(ctl_out("status", q), both);
    has(ctl_out("explain", q, "1"), both);
    cr_assert(ctl_is(q, "last_error", both));
}

Test(error_text_shown, the_last_line_of_stderr_stands_beside_the_exit_code)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--max-attempts", "2", "--backoff", "1ms", "--", "sh", "-c",
        "echo first >&2; echo no account $MQW_ATTEMPT >&2; "
        "exit 1");

    harness_send_text(q, "x");
    seen_everywhere(q, w, "exit 1: no account 2");
    field_is(q, "error", "exit 1");
    field_is(q, "error_text", "no account 2");
    has(harness_wait_log(w, "event=retry", SOON_MS),
        "error_text=\"no account 1\"");
    has(harness_wait_log(w, "event=dead", SOON_MS),
        "error_text=\"no account 2\"");
    has(dlq_out("list", "--by", "error", "--json", q),
        "\"error_text\":\"no account 2\"");
    cr_assert_eq(atoi(dlq_out("list", "--count", "--error", "exit 1", q)), 1);
    cr_assert_eq(atoi(dlq_out("list", "--count", "--error", "account", q)), 1);
    cr_assert_eq(atoi(dlq_out("list", "--count", "--error", "*account 2", q)),
                 1);
    cr_assert_eq(atoi(dlq_out("list", "--count", "--error", "account 1", q)),
                 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(error_text_shown, a_mute_handler_has_none)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "false");

    harness_send_text(q, "x");
    seen_everywhere(q, w, "exit 1");
    field_is(q, "error_text", NULL);
    cr_assert_null(
        strstr(harness_wait_log(w, "event=dead", SOON_MS), "error_text"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(error_text_shown, a_reason_that_was_given_goes_before_stderr)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--stream", "--", "sh", "-c",
        "read m id size rest; dd bs=1 count=$((size + 1)) >/dev/null 2>&1;"
        "echo noise >&2; echo DEAD $id card declined; cat >/dev/null");

    harness_send_text(q, "x");
    seen_everywhere(q, w, "card declined");
    field_is(q, "error_text", "card declined");
    field_is(q, "stderr", "noise\n");
    cr_assert_null(strstr(dlq_out("list", q), "noise"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(error_text_shown, a_plugins_reason_is_the_text)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--plugin", harness_plugin("act"));

    harness_send_text(q, "dead");
    seen_everywhere(q, w, "as told");
    field_is(q, "error_text", "as told");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(error_text_shown, an_export_brings_it_along)
{
    const char *q = harness_queue(0, 0), *to = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--plugin", harness_plugin("act"));
    struct harness_result r;

    harness_send_text(q, "dead");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    r = harness_run("mqdlq", "export", "--state-dir", harness_state_dir(), q);
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqdlq", "import", "--state-dir",
                             harness_state_dir(), to),
        .input = r.out,
        .input_size = r.out_size});
    cr_assert_eq(r.status, 0, "%s", r.err);
    field_is(to, "error_text", "as told");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
