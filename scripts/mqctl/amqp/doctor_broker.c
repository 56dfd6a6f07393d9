/* doctor_broker.c - mqctl doctor for a queue on a broker: the broker's hosts,
 * the queues, the user's rights, and the worker on this machine (see mqctl.h)
 *
 * These checks use AMQP, as the worker does. They consume no message and create
 * no queue; one message is published to a queue that does not exist. For what
 * AMQP does not show, see doctor_node.h; where rabbitmqctl cannot be used, a
 * finding names its commands. mqctl doctor calls doctor_broker_run through
 * broker_engine_amqp, in its only thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/amqp/topology.h"
#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/base/ulid.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "scripts/mqctl/amqp/doctor_node.h"
#include "scripts/mqctl/look/doctor.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"

#define SAFE_SERVER    0x030c05          /* 3.12.5 */
#define ACK_TIMEOUT_NS (1800 * NS_PER_S) /* consumer_timeout by default */

#define ANSWER_S 5 /* time limit for the answer to a message */

/* The queue, and what the checks have found so far. */
struct visit {
    struct findings *f;
    const struct options *o;
    struct broker_operand operand;
    char password[BROKER_PASSWORD];
    struct snapshot v;       /* its worker on this machine */
    struct link *link;       /* to the first host that answers */
    char cluster[64];        /* its name */
    uint64_t waits;          /* messages in wait queues */
    char any[TOPOLOGY_NAME]; /* NAME, or a partition that exists */
    bool there;              /* `any` is set */
    bool unseen;             /* the kind of a queue could not be checked */
    bool misnumbered;        /* the queue has another number of partitions */
    unsigned server;         /* version of the first host, as in link.h */
};

/* Return the command that starts a worker, with `rest` behind it. */
static const char *worker_fix(struct visit *t, const char *rest)
{
    char flag[40] = "";

    if (t->o->access.partitions)
        snprintf(flag, sizeof flag, "--partitions %" PRIu64 " ",
                 t->o->access.partitions);
    return fix(t->f, "mqworker %s%s -- COMMAND%s", flag,
               SHELL_QUEUE(t->o->line.operands[0]), rest);
}

/* ---- the worker of this machine ---- */

/* Read a time limit of the running worker. Returns false if it is not known. */
static bool live_limit(const struct visit *t, const char *name,
                       const char **text, uint64_t *ns)
{
    *text = json_string_value(snapshot_setting(&t->v, name));
    *ns = UINT64_MAX;
    return *text &&
           (strcmp(*text, "none") == 0 || duration_parse(*text, ns) == 0);
}

/* Check the worker of this machine, and its time limits. */
static void own_worker_check(struct visit *t)
{
    const struct snapshot *v = &t->v;
    const char *text, *longest;
    uint64_t ns, most;

    if (v->worker == SNAPSHOT_RUNS)
        worker_state_check(t->f, v);
    else if (v->shut)
        FOUND(t->f, BAD, "worker", NULL, "%s", v->no_live.text);
    else if (v->worker == SNAPSHOT_KILLED)
        FOUND(t->f, BAD, "worker", worker_fix(t, ""),
              "the last worker on this machine, pid %d, was killed. The broker "
              "gives its messages to other workers; handlers that it left may "
              "be running until the next worker starts here",
              (int)v->pid);
    else if (v->worker == SNAPSHOT_UNSEEN)
        FOUND(t->f, WARN, "worker", NULL,
              "cannot tell whether one is running: the lock %s/%s cannot be "
              "checked from here",
              v->dir.folder, STATEDIR_PIDFILE);
    else
        FOUND(t->f, NOTE, "worker", NULL,
              "no worker is running on this machine");
    /* Check that no handler can run for longer than the broker waits for an
     * acknowledgement. With partitions, a worker cuts a message's limit. */
    if (!live_limit(t, "timeout", &text, &ns) ||
        !live_limit(t, "max-timeout", &longest, &most))
        return;
    if (ns >= ACK_TIMEOUT_NS)
        FOUND(t->f, WARN, "consumer_timeout",
              fix(t->f,
                  "mqctl set %s timeout=25m; or raise consumer_timeout (ms) in "
                  "rabbitmq.conf of each node",
                  STATEDIR_OPERAND(v->dir.root, v->queue)),
              "--timeout is %s, but the broker gives a message to another "
              "worker if a handler takes longer than consumer_timeout (30m "
              "unless set)",
              text);
    else if (most >= ACK_TIMEOUT_NS && !t->o->access.partitions)
        FOUND(t->f, NOTE, "consumer_timeout",
              fix(t->f, "mqctl set %s max-timeout=25m",
                  STATEDIR_OPERAND(v->dir.root, v->queue)),
              "--timeout is %s, but --max-timeout is %s: a message may ask for "
              "more than the broker's consumer_timeout (30m unless set)",
              text, longest);
    else
        FOUND(t->f, FINE, "consumer_timeout", NULL,
              "--timeout is %s, below the broker's consumer_timeout (30m "
              "unless set)",
              text);
}

/* ---- hosts ---- */

/* Connect to one of the hosts that the operand names. Check for a server
 * version with known faults, and that all hosts are of one cluster: another
 * cluster has another queue of that name. */
static void host_check(struct visit *t, unsigned i)
{
    struct broker_operand one = t->operand;
    const struct link_setup setup = {.operand = &one,
                                     .password = t->password,
                                     .tls = t->o->access.tls,
                                     .name = "mqctl doctor"};
    struct problem p = {0};
    struct link *l;
    char host[BROKER_HOST + 16], cluster[sizeof t->cluster];

    one.hosts[0] = t->operand.hosts[i];
    one.host_count = 1;
    snprintf(host, sizeof host, "%s:%u", one.hosts[0].name, one.hosts[0].port);
    if (link_open(&l, &setup, 0, &p) < 0) {
        FOUND(t->f, BAD, "host", NULL, "%s", p.text);
        return;
    }
    if (l->server < SAFE_SERVER)
        FOUND(t->f, WARN, "server",
              "upgrade each node to RabbitMQ 3.12.5 or later",
              "%s has RabbitMQ %s. After the election of a leader, this "
              "version may refuse all messages of a connection (a worker then "
              "opens another), and while a node is down, retries may stay in "
              "their wait queues",
              host, l->version);
    else if (l->server < SERVER_4)
        FOUND(t->f, NOTE, "server",
              "upgrade to 3.13, enable all feature flags, then upgrade to 4",
              "%s has RabbitMQ %s, which is no longer maintained", host,
              l->version);
    else
        FOUND(t->f, FINE, "server", NULL, "%s has RabbitMQ %s", host,
              l->version);
    link_property(l, "cluster_name", cluster, sizeof cluster);
    if (!t->cluster[0])
        memcpy(t->cluster, cluster, sizeof cluster);
    else if (strcmp(t->cluster, cluster) != 0)
        FOUND(t->f, BAD, "cluster",
              "leave this host out of the operand, or join it to the cluster: "
              "rabbitmqctl join_cluster",
              "%s is in cluster %s, but other hosts are in %s: each cluster "
              "has its own queue of this name",
              host, cluster, t->cluster);
    if (t->link) {
        link_close(&l);
        return;
    }
    t->link = l;
    t->link->host = 0; /* the only host of `one` */
}

/* ---- queues ---- */

/* Report a queue that is not as the worker would create it. */
static void unlike_found(struct visit *t, const struct topology_seen *seen)
{
    const struct broker_operand *o = &t->operand;

    if (strstr(seen->why, ".partitions.")) {
        t->misnumbered = true;
        FOUND(t->f, BAD, "partitions",
              "give the same --partitions as its workers and senders; the "
              "number cannot be changed",
              "%s has another number of partitions: %s", o->queue, seen->why);
    } else if (strstr(seen->why, "x-queue-type"))
        FOUND(t->f, BAD, "queue",
              fix(t->f,
                  "let workers empty it; then rabbitmqctl delete_queue -p %s "
                  "%s, and start the workers again",
                  o->vhost, SHELL_QUEUE(seen->name)),
              "%s is not replicated: if its node dies, its messages are lost "
              "(%s)",
              seen->name, seen->why);
    else
        FOUND(t->f, BAD, "queue",
              fix(t->f,
                  "mqworker --no-create takes it as it is; or let workers "
                  "empty it, then rabbitmqctl delete_queue -p %s %s, and start "
                  "the workers again",
                  o->vhost, SHELL_QUEUE(seen->name)),
              "%s is not as a worker would create it: %s", seen->name,
              seen->why);
}

/* Report one of the queues that a worker of NAME has; a visit of topology_each.
 */
static void queue_found(const struct topology_seen *seen, void *arg)
{
    struct visit *t = arg;
    size_t own = strlen(t->operand.queue);
    bool itself = seen->name[own] == '\0' || seen->part;

    if (t->misnumbered && itself) /* reported once */
        return;
    if (seen->is == TOPOLOGY_ABSENT && seen->wait_ms)
        return; /* a wait queue is not reported */
    if (seen->is == TOPOLOGY_ABSENT && t->there) {
        FOUND(t->f, WARN, "queue", worker_fix(t, ", without --no-create"),
              "%s is missing, so no message can go there", seen->name);
        return;
    }
    if (seen->is == TOPOLOGY_ABSENT) {
        if (seen->part || strcmp(seen->name, t->operand.queue) == 0)
            FOUND(t->f, t->v.worker == SNAPSHOT_RUNS ? BAD : NOTE, "queue",
                  worker_fix(
                      t, t->o->access.partitions ? "" : ", or mqsend --create"),
                  "there is no queue %s in virtual host %s", seen->name,
                  t->operand.vhost);
        return;
    }
    if (seen->is == TOPOLOGY_OTHER)
        unlike_found(t, seen);
    t->unseen = t->unseen || seen->is == TOPOLOGY_UNKNOWN;
    t->waits += seen->wait_ms ? seen->messages : 0;
    if (itself) {
        t->there = true;
        snprintf(t->any, sizeof t->any, "%s", seen->name);
    } else if (!seen->wait_ms && strcmp(seen->name + own, ".dead.kept") == 0) {
        if (seen->messages > 0)
            FOUND(t->f, WARN, "policies",
                  fix(t->f,
                      "rabbitmqctl list_policies -p %s; remove delivery-limit, "
                      "max-length and message-ttl from the policy of %s.dead",
                      t->operand.vhost, t->operand.queue),
                  "%" PRIu32 " dead letter%s in %s: the broker took %s out of "
                  "the dead letters, because a policy has a delivery-limit, a "
                  "max-length or a message-ttl",
                  seen->messages, seen->messages == 1 ? " is" : "s are",
                  seen->name, seen->messages == 1 ? "it" : "them");
    } else if (!seen->wait_ms && seen->messages > 0) {
        FOUND(t->f, WARN, "dead letters",
              fix(t->f, "mqdlq list --by error %s",
                  SHELL_QUEUE(t->o->line.operands[0])),
              "%" PRIu32 " dead letter%s", seen->messages,
              term_plural(seen->messages));
    } else if (!seen->wait_ms) {
        FOUND(t->f, FINE, "dead letters", NULL, "none");
    }
    if (!itself || t->misnumbered)
        return;
    if (seen->consumers == 0 && seen->messages > 0)
        FOUND(t->f, WARN, "queue", worker_fix(t, ""),
              "%" PRIu32 " message%s waiting in %s, which has no consumer",
              seen->messages, seen->messages == 1 ? " is" : "s are",
              seen->name);
    else if (seen->consumers == 0 && seen->part)
        FOUND(t->f, WARN, "queue", worker_fix(t, ""),
              "the partition %s has no consumer: its groups would wait",
              seen->name);
    else
        FOUND(t->f, FINE, "queue", NULL,
              "%s: %" PRIu32 " waiting, %" PRIu32 " consumer%s", seen->name,
              seen->messages, seen->consumers, seen->consumers == 1 ? "" : "s");
}

/* Check the queues of NAME, and whether --partitions is right. */
static void broker_queues_check(struct visit *t)
{
    const struct broker_operand *o = &t->operand;
    const struct topology topology = {.operand = o,
                                      .partitions =
                                          (unsigned)t->o->access.partitions},
                          parted = {.operand = o, .partitions = 1};
    char name[TOPOLOGY_NAME];
    int err;

    if (topology_each(t->link, &topology, queue_found, t) < 0) {
        FOUND(t->f, BAD, "host", "try again", "lost the connection: %s",
              t->link->why);
        link_close(&t->link);
        return;
    }
    /* Check whether a queue that does not exist has partitions. */
    if (!t->there && !topology.partitions) {
        err = topology_count(t->link, topology_queue(&parted, 0, name), NULL,
                             NULL);
        if (!err)
            FOUND(t->f, BAD, "partitions",
                  fix(t->f, "mqctl doctor --partitions N %s",
                      STATEDIR_OPERAND(t->v.dir.root, t->o->line.operands[0])),
                  "%s has partitions (there is a queue %s); give --partitions "
                  "as its workers do",
                  o->queue, name);
        else if (err != -EPROTO || link_channel(t->link) < 0)
            link_close(&t->link);
    }
    if (t->waits && t->link)
        FOUND(t->f, FINE, "retries", NULL,
              "%" PRIu64 " message%s waiting for %s backoff or delay", t->waits,
              t->waits == 1 ? " is" : "s are", t->waits == 1 ? "its" : "their");
}

/* ---- rights, alarms ---- */

/* Publish to a queue that does not exist, so that the message comes back. Wait
 * for the answer, or an alarm. no_write: why the user may not; "": allowed, or
 * not known. */
static int write_try(struct link *l, char no_write[LINK_WHY], bool *answered)
{
    const amqp_basic_properties_t none = {0};
    uint64_t end = clock_mono_ns() + ANSWER_S * NS_PER_S;
    char name[ULID_TEXT];
    amqp_frame_t f;
    const amqp_method_t *m = &f.payload.method;
    int n, err;

    ulid_print(ulid_make(clock_wall_ns()), name);
    (void)amqp_confirm_select(l->c, LINK_CHANNEL);
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    if (!err)
        err = link_status(l, amqp_basic_publish(l->c, LINK_CHANNEL,
                                                amqp_cstring_bytes(""),
                                                amqp_cstring_bytes(name), 1, 0,
                                                &none, amqp_cstring_bytes("")));
    while (!err && !*answered && !l->blocked && clock_mono_ns() < end) {
        struct pollfd fd = {.fd = l->fd, .events = POLLIN};

        while (!*answered && (n = link_frame(l, &f)) != NO) {
            if (n < 0)
                return n;
            if (f.frame_type != AMQP_FRAME_METHOD || f.channel != LINK_CHANNEL)
                continue;
            if (link_closed_by(l, m)) {
                memcpy(no_write, l->why, LINK_WHY);
                return 0;
            }
            *answered = m->id == AMQP_BASIC_ACK_METHOD ||
                        m->id == AMQP_BASIC_NACK_METHOD;
        }
        amqp_maybe_release_buffers(l->c);
        if (!*answered && !l->blocked)
            (void)poll(&fd, 1, 100);
    }
    return err;
}

/* Check what the user may do, and whether the broker takes messages. no_read,
 * no_write: why the user may not; "": allowed, or not known. */
static void rights_check(struct visit *t)
{
    const struct broker_operand *o = &t->operand;
    char no_read[LINK_WHY] = "", no_write[LINK_WHY] = "";
    amqp_table_entry_t wrong = entry_text("x-priority", "none");
    struct link *l = t->link;
    bool answered = false;
    const char *give;

    /* Ask to consume with a priority that is not a number. RabbitMQ checks the
     * right to read first: it answers 403 without the right, otherwise 406. So
     * there is never a consumer, unless the server is not RabbitMQ. */
    if (t->there) {
        (void)amqp_basic_consume(l->c, LINK_CHANNEL, amqp_cstring_bytes(t->any),
                                 amqp_cstring_bytes(""), 0, 0, 0,
                                 (amqp_table_t){1, &wrong});
        if (link_reply(l, amqp_get_rpc_reply(l->c)) != -EPROTO)
            return;
        if (l->code == AMQP_ACCESS_REFUSED)
            memcpy(no_read, l->why, LINK_WHY);
        if (link_channel(l) < 0)
            return;
    }
    if (write_try(l, no_write, &answered) < 0)
        return;
    give = fix(t->f,
               "rabbitmqctl set_permissions -p %s %s '^%s(\\..*)?$' "
               "'^(%s(\\..*)?|amq\\.default)$' '^%s(\\..*)?$'",
               o->vhost, o->user, o->queue, o->queue, o->queue);
    if (no_read[0])
        FOUND(t->f, BAD, "rights", give, "user %s may not read: %s", o->user,
              no_read);
    if (no_write[0])
        FOUND(t->f, BAD, "rights", give,
              "user %s may not send, so workers can neither retry messages nor "
              "save dead letters: %s",
              o->user, no_write);
    if (t->unseen)
        FOUND(t->f, NOTE, "rights", give,
              "user %s may not declare queues: its workers need --no-create, "
              "and the kind of the queues cannot be checked",
              o->user);
    else if (!no_read[0] && !no_write[0])
        FOUND(t->f, FINE, "rights", NULL, "user %s may declare, read and send",
              o->user);
    if (l->blocked)
        FOUND(t->f, BAD, "alarms",
              "rabbitmq-diagnostics alarms, on a node; then free disk space "
              "(disk_free_limit) or memory (vm_memory_high_watermark) there",
              "the broker is accepting no messages, because a node is low on "
              "memory or disk; retries and dead letters wait in their workers");
    else if (!no_write[0] && !answered)
        FOUND(t->f, BAD, "alarms", "rabbitmqctl cluster_status, on a node",
              "the broker has not answered a message within %d s", ANSWER_S);
    else if (answered)
        FOUND(t->f, FINE, "alarms", NULL, "the broker accepts messages");
}

/* Check what AMQP does not show. limited: a queue has a delivery limit unless a
 * policy lifts it. */
static void beyond_amqp_check(struct visit *t, bool limited)
{
    const struct broker_operand *o = &t->operand;
    const struct node_visit node = {.f = t->f,
                                    .operand = o,
                                    .cluster = t->cluster,
                                    .limits = t->server >= SERVER_4};
    bool lifted = false;

    if (!node_check(&node, &lifted))
        FOUND(t->f, NOTE, "cluster",
              fix(t->f,
                  "on a node, as root: mqctl doctor; or rabbitmqctl "
                  "cluster_status; rabbitmqctl list_queues -p %s name type "
                  "members online policy; rabbitmqctl list_policies -p %s",
                  o->vhost, o->vhost),
              "AMQP does not show nodes, replicas (at least 3 are needed) and "
              "policies (a delivery-limit or message-ttl moves messages away)");
    FOUND(t->f, NOTE, "cluster",
          "on a node: rabbitmqctl environment | grep -E "
          "'consumer_timeout|net_ticktime|publisher_confirm_timeout'",
          "AMQP does not show consumer_timeout, which must be above --timeout, "
          "and net_ticktime, which should be 10 to 15");
    if (limited && !lifted)
        FOUND(t->f, NOTE, "delivery-limit",
              fix(t->f,
                  "unless a policy of %s and its other queues has a "
                  "delivery-limit of -1: rabbitmqctl set_policy -p %s "
                  "--apply-to queues %s-limit '^%s(\\..*)?$' "
                  "'{\"delivery-limit\":-1}'",
                  o->queue, o->vhost, o->queue, o->queue),
              "its queues were created before the upgrade to RabbitMQ 4, which "
              "removes a message from such a queue after 20 deliveries unless "
              "a policy lifts that limit");
    else if (limited)
        FOUND(t->f, FINE, "delivery-limit", NULL, "a policy lifts the limit");
}

static int doctor_broker_run(const struct options *o)
{
    struct findings f = {.json = o->json, .quiet = o->quiet};
    struct visit t = {.f = &f, .o = o};
    const struct broker_operand *b = &t.operand;
    struct problem p = {0};
    bool has_snapshot, limited = false;

    if (broker_operand_parse(&t.operand, o->line.operands[0], &p) < 0 ||
        broker_password_find(t.password, &t.operand, o->access.password_file,
                             &p) < 0)
        return complain_of(&p);
    f.queue = t.operand.shown;
    findings_begin(&f);
    has_snapshot =
        snapshot_open(&t.v, o->state_dir, o->line.operands[0], true, &p) == 0;
    if (has_snapshot)
        own_worker_check(&t);
    else
        FOUND(&f, BAD, "folder", NULL, "%s", p.text);
    for (unsigned i = 0; i < b->host_count; i++)
        host_check(&t, i);
    if (t.link) {
        t.server = t.link->server;
        broker_queues_check(&t);
    }
    if (t.link) {
        limited = t.link->limited;
        rights_check(&t);
    }
    if (t.cluster[0])
        beyond_amqp_check(&t, limited);
    link_close(&t.link);
    if (has_snapshot)
        snapshot_close(&t.v);
    explicit_bzero(t.password, sizeof t.password);
    return findings_end(&f) ? 1 : 0;
}

const struct broker_engine broker_engine_amqp = {.doctor = doctor_broker_run};
