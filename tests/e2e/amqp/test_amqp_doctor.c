/* test_amqp_doctor.c - mqctl doctor of a queue on a broker */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include <sys/stat.h>

#include "tests/e2e/amqp/amqp_fixture.h"

static void doctor_init(void);
TestSuite(amqp_doctor, .init = doctor_init, .fini = amqp_fini);

#define OP amqp_operand(amqp_queue, 1)
#define DOCTOR(...)                                                    \
    harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(), \
                __VA_ARGS__)

/* Let mqctl find this script as rabbitmqctl. */
static void ctl_is(const char *script)
{
    (void)harness_script("bin/rabbitmqctl", script);
}

/* A rabbitmqctl that is installed here needs a second to find no node. */
static void doctor_init(void)
{
    char path[PATH_MAX];

    amqp_init();
    cr_assert_eq(mkdir(harness_path("bin"), 0700), 0);
    ctl_is("exit 69\n");
    snprintf(path, sizeof path, "%s:%s", harness_path("bin"), getenv("PATH"));
    cr_assert_eq(setenv("PATH", path, 1), 0);
}

/* Return true if a line of that level has these words. */
static bool found(const char *out, const char *level, const char *words)
{
    size_t n = strlen(level);

    for (const char *at = out; at; at = strchr(at, '\n')) {
        const char *hit, *end;

        at += *at == '\n';
        end = at + strcspn(at, "\n");
        hit = strstr(at, words);
        if (strncmp(at, level, n) == 0 && hit && hit < end)
            return true;
        if (!*end)
            return false;
        at = end;
    }
    return false;
}

#define cr_found(out, level, words) \
    cr_assert(found(out, level, words), "%s: %s: %s", level, words, out)

Test(amqp_doctor, a_worker_that_works_has_nothing_bad_and_loses_nothing)
{
    struct harness_process *w =
        amqp_worker("--timeout", "1m", "--max-timeout", "2m", "--",
                    harness_handler("record"));
    struct harness_result r;

    cr_assert_eq(
        harness_run("mqctl", "pause", "--state-dir", harness_state_dir(), OP)
            .status,
        0);
    for (int i = 0; i < 5; i++)
        amqp_send("x");
    amqp_confirmed();
    for (int i = 0; i < 3; i++)
        r = DOCTOR(OP);
    cr_assert_neq(strncmp(r.out, "bad ", 4), 0, "%s", r.out);
    cr_found(r.out, "warn", "paused");
    cr_found(r.out, "ok", "may declare, read and send");
    cr_found(r.out, "ok", "the broker accepts messages");
    cr_found(r.out, "ok", "--timeout is 1m");
    cr_found(r.out, "ok", "dead letters: none");
    cr_found(r.out, "note", "AMQP does not show nodes");
    cr_assert_not_null(strstr(r.out, "-> on a node: rabbitmqctl"), "%s", r.out);
    cr_assert_eq(harness_run("mqctl", "set", "--state-dir", harness_state_dir(),
                             OP, "max-timeout=none")
                     .status,
                 0);
    r = DOCTOR(OP);
    cr_found(r.out, "note", "a message may ask for more");
    cr_assert_eq(
        harness_run("mqctl", "resume", "--state-dir", harness_state_dir(), OP)
            .status,
        0);
    harness_until_lines("runs", 5, 20000);
    cr_assert_eq(harness_lines_with("runs", "redelivered"), 0);
    cr_assert_eq(harness_stop(w, 20000), 0);
}

Test(amqp_doctor, letters_and_a_queue_that_nobody_takes_from_are_found)
{
    struct harness_process *w =
        amqp_worker("--max-attempts", "1", "--timeout", "none", "--", "false");
    struct harness_result r;

    amqp_send("bad");
    harness_until(amqp_ready(amqp_of("dead")) == 1, 20000);
    r = DOCTOR(OP);
    cr_assert_eq(r.status, 1);
    cr_found(r.out, "warn", "dead letters: 1 dead letter");
    cr_found(r.out, "    ", "mqdlq list --by error amqp://guest@");
    cr_found(r.out, "warn", "--timeout is none");
    cr_assert_eq(harness_stop(w, 20000), 0);
    amqp_send("later");
    amqp_confirmed();
    harness_until(amqp_ready(amqp_queue) == 1, 10000);
    r = DOCTOR(OP);
    cr_found(r.out, "warn", "1 message is waiting in");
    cr_found(r.out, "    ", "-> mqworker amqp://guest@");
    cr_found(r.out, "note", "no worker is running on this machine");
}

Test(amqp_doctor, no_queue_is_no_harm_and_is_not_made)
{
    struct harness_result r = DOCTOR(OP);

    cr_found(r.out, "note", "there is no queue");
    cr_assert_neq(strncmp(r.out, "bad ", 4), 0, "%s", r.out);
    cr_assert_eq(amqp_ready(amqp_queue), -1);
    cr_assert_eq(amqp_ready(amqp_of("dead")), -1);
}

Test(amqp_doctor, a_queue_of_another_kind_is_named_with_both_values)
{
    amqp_table_entry_t quorum = {.key = amqp_word("x-queue-type"),
                                 .value = {.kind = AMQP_FIELD_KIND_UTF8,
                                           .value.bytes = amqp_word("quorum")}};
    struct harness_result r;

    amqp_queue_declare(amqp_client, 1, amqp_word(amqp_queue), 0, 1, 0, 0,
                       (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    amqp_queue_declare(amqp_client, 1, amqp_word(amqp_of("dead")), 0, 1, 0, 0,
                       (amqp_table_t){1, &quorum});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    r = DOCTOR(OP);
    cr_assert_eq(r.status, 1);
    cr_found(r.out, "bad ", "is not replicated");
    cr_found(r.out, "bad ", "is not as a worker would create it");
    cr_found(r.out, "warn", ".dead.kept is missing");
    cr_found(r.out, "    ", "rabbitmqctl delete_queue -p / ");
    cr_found(r.out, "ok", "the broker accepts messages");
}

/* Add a user with these rights, who may log in. */
static const char *user(const char *configure, const char *write,
                        const char *read)
{
    static char name[80];

    snprintf(name, sizeof name, "u%s", amqp_queue);
    harness_write("secret", "secret\n", 7);
    cr_assert_eq(chmod(harness_path("secret"), 0600), 0);
    (void)amqp_ctl("add_user", name, "secret");
    cr_assert_eq(
        amqp_ctl("set_permissions", name, configure, write, read).status, 0);
    return name;
}

static struct harness_result doctor_as(const char *name)
{
    char op[200];

    snprintf(op, sizeof op, "amqp://%s@127.0.0.1:%u/%%2F/%s", name,
             amqp_port(1), amqp_queue);
    return DOCTOR("--password-file", harness_path("secret"), op);
}

Test(amqp_doctor, rights_that_are_missing_are_named_with_the_command)
{
    struct harness_process *w = amqp_worker("--", "true");
    struct harness_result r;

    cr_assert_eq(harness_stop(w, 20000), 0);
    r = doctor_as(user("", ".*", ".*"));
    cr_found(r.out, "note", "may not declare queues");
    cr_found(r.out, "    ", "rabbitmqctl set_permissions -p / ");
    cr_assert_neq(strncmp(r.out, "bad ", 4), 0, "%s", r.out);
    r = doctor_as(user(".*", "", ".*"));
    cr_found(r.out, "bad ", "may not send");
    r = doctor_as(user(".*", ".*", ""));
    cr_found(r.out, "bad ", "may not read");
    cr_assert_eq(r.status, 1);
    r = doctor_as("nobody");
    cr_found(r.out, "bad ", "unknown user or wrong password");
}

Test(amqp_doctor, a_host_that_does_not_answer_is_named_beside_one_that_does)
{
    struct harness_result r;
    char op[200];

    snprintf(op, sizeof op, "amqp://127.0.0.1:%u,127.0.0.1:1/%%2F/%s",
             amqp_port(1), amqp_queue);
    r = DOCTOR("--json", op);
    cr_assert_eq(r.status, 1);
    cr_assert_not_null(strstr(r.out, "cannot connect to 127.0.0.1:1: "), "%s",
                       r.out);
    cr_assert_not_null(strstr(r.out, "there is no queue"), "%s", r.out);
    snprintf(op, sizeof op, "amqp://127.0.0.1:%u/nowhere/%s", amqp_port(1),
             amqp_queue);
    r = DOCTOR(op);
    cr_found(r.out, "bad ", "rabbitmqctl add_vhost nowhere");
    cr_assert_eq(DOCTOR("--password-file", "x", "/orders").status, 64);
}

Test(amqp_doctor, partitions_without_a_worker_and_another_number_are_named)
{
    const char *op = amqp_operand(amqp_queue, 1);
    struct harness_result r;

    cr_assert_eq(harness_run("mqsend", "--create", "--partitions", "3",
                             "--group", "g", op, "x")
                     .status,
                 0);
    r = DOCTOR("--partitions", "3", op);
    cr_assert_eq(r.status, 1);
    cr_found(r.out, "warn", "has no consumer: its groups would wait");
    cr_found(r.out, "    ", "mqworker --partitions 3 ");
    cr_assert_null(strstr(r.out, "mqworker amqp:"), "%s", r.out);
    cr_found(r.out, "ok", "may declare, read and send");
    r = DOCTOR("--partitions", "2", op);
    cr_found(r.out, "bad ", "another number of partitions");
    cr_assert_null(
        strstr(strstr(r.out, "another number of") + 1, "another number of"),
        "once: %s", r.out);
    cr_assert_null(strstr(r.out, "mqworker --partitions 2"), "%s", r.out);
    r = DOCTOR(op);
    cr_found(r.out, "bad ", "has partitions");
    cr_found(r.out, "    ", "mqctl doctor --partitions N --state-dir /");
}

#define NODE_CTL "exec \"$" AMQP_TOOL "\" ctl \"$" AMQP_DIR "\" 1 \"$@\"\n"

/* Put a policy on all queues of this test, and wait until it is in force; NULL:
 * remove it. */
static void policy_is(const char *definition)
{
    char pattern[100];
    struct harness_result r;

    snprintf(pattern, sizeof pattern, "^%s(\\..*)?$", amqp_queue);
    r = definition ? amqp_ctl("set_policy", amqp_queue, pattern, definition)
                   : amqp_ctl("clear_policy", amqp_queue);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(amqp_doctor, policies_that_take_messages_are_named)
{
    struct harness_result r;

    cr_assert_eq(harness_stop(amqp_worker("--", "true"), 20000), 0);
    ctl_is(NODE_CTL);
    policy_is("{\"delivery-limit\":7,\"message-ttl\":5000,"
              "\"expires\":3600000}");
    r = DOCTOR(OP);
    cr_assert_eq(r.status, 1);
    cr_found(r.out, "ok", "nodes: 1 of 1 running");
    cr_found(r.out, "note", "three are needed");
    cr_assert_null(strstr(r.out, "AMQP does not show nodes"), "%s", r.out);
    cr_found(r.out, "warn", "has delivery-limit 7: it moves");
    cr_found(r.out, "warn", "has message-ttl 5000: it moves");
    cr_found(r.out, "bad ", "has expires 3600000: it deletes the queue");
    cr_found(r.out, "    ", "-> rabbitmqctl list_policies -p /; remove ");
    policy_is(NULL);
}

/* Let rabbitmqctl show this cluster: the members of two JSON objects. */
static void cluster_is(const char *status, const char *queue)
{
    char text[2000];

    snprintf(text, sizeof text,
             "case \"$*\" in\n"
             "*cluster_status*) echo '{\"cluster_name\":\"%s\",%s}' ;;\n"
             "*list_policies*) echo '[{\"name\":\"p\",\"definition\":"
             "\"{\\\"delivery-limit\\\":3}\"}]' ;;\n"
             "*) echo '[{\"name\":\"%s\",\"policy\":\"p\",%s},"
             "{\"name\":\"other\",\"policy\":\"p\"}]' ;;\n"
             "esac\n",
             amqp_property("cluster_name"), status, amqp_queue, queue);
    ctl_is(text);
}

Test(amqp_doctor, a_cluster_that_is_not_whole_is_described)
{
    struct harness_result r;

    cr_assert_eq(harness_stop(amqp_worker("--", "true"), 20000), 0);
    cluster_is("\"disk_nodes\":[\"a@x\",\"b@x\",\"c@x\"],"
               "\"running_nodes\":[\"a@x\"],"
               "\"partitions\":{\"a@x\":[\"b@x\"]},"
               "\"versions\":{\"a@x\":{\"rabbitmq_version\":\"3.13.7\"},"
               "\"b@x\":{\"rabbitmq_version\":\"4.0.5\"}},"
               "\"feature_flags\":[{\"name\":\"khepri_db\",\"state\":"
               "\"disabled\",\"stability\":\"experimental\"},{\"name\":"
               "\"message_containers\",\"state\":\"disabled\","
               "\"stability\":\"stable\"}]",
               "\"members\":[\"a@x\",\"b@x\"],\"online\":[\"a@x\"]");
    r = DOCTOR(OP);
    cr_assert_eq(r.status, 1);
    cr_found(r.out, "bad ", "node b@x is down; 1 of 3 nodes are running");
    cr_found(r.out, "bad ", "node c@x is down");
    cr_found(r.out, "bad ", "a network failure has divided the cluster");
    cr_found(r.out, "warn", "different versions, 3.13.7 and 4.0.5");
    cr_found(r.out, "note", "message_containers is disabled");
    cr_found(r.out, "bad ", "has no majority: 1 of 2 replicas are online");
    cr_found(r.out, "warn", "has 2 replicas; three are needed");
    cr_found(r.out, "    ", "rabbitmq-queues grow NODE all --vhost-pattern");
    cr_found(r.out, "warn", "has delivery-limit 3: it moves");
    cr_assert_null(strstr(r.out, "of other"), "%s", r.out);
    cluster_is("\"disk_nodes\":[\"a@x\"],\"running_nodes\":[\"a@x\"]",
               "\"members\":[\"a@x\",\"b@x\",\"c@x\"],"
               "\"online\":[\"a@x\",\"b@x\"]");
    r = DOCTOR(OP);
    cr_found(r.out, "ok", "replicas: each queue has at least 3");
    ctl_is("echo '{\"cluster_name\":\"another\"}'\n");
    r = DOCTOR(OP);
    cr_found(r.out, "note", "AMQP does not show nodes");
}
