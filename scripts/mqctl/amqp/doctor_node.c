/* doctor_node.c - what rabbitmqctl shows of a broker's queue (see
 * doctor_node.h)
 *
 * rabbitmqctl answers root and the user rabbitmq, on a node. It prints JSON, in
 * which the definition of a policy is a string that has JSON.
 */
#include "scripts/mqctl/amqp/doctor_node.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/base/safe_text.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"

#define ARGUMENTS (SHELL_WORD_ROOM(BROKER_VHOST) + 64) /* of rabbitmqctl */

/* Run rabbitmqctl with these arguments; a node has 10 s to answer. Returns what
 * it printed, which the caller frees; NULL: it failed. */
static json_t *node_ask(const char *arguments)
{
    char command[ARGUMENTS + 128];
    json_t *answer;
    FILE *in;

    snprintf(command, sizeof command,
             "exec </dev/null 2>/dev/null; rabbitmqctl -q -t 10 --formatter "
             "json %s",
             arguments);
    in = popen(command, "re");
    if (!in)
        return NULL;
    answer = json_loadf(in, 0, NULL);
    if (pclose(in) == 0)
        return answer;
    json_decref(answer);
    return NULL;
}

/* Return true if one of a list's texts is `text`. */
static bool has_text(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));

        if (one && strcmp(one, text) == 0)
            return true;
    }
    return false;
}

/* Check that all nodes are running, are connected, and have one version. */
static void nodes_check(const struct node_visit *t, const json_t *status)
{
    const json_t *all = json_object_get(status, "disk_nodes"),
                 *run = json_object_get(status, "running_nodes"), *one;
    const char *version = NULL, *other = NULL, *flag = NULL, *name;
    size_t i;
    void *at;

    json_array_foreach(all, i, one)
    {
        name = json_string_value(one);
        if (name && !has_text(run, name))
            FOUND(t->f, BAD, "nodes",
                  fix(t->f,
                      "start RabbitMQ there; if the node is gone for good: "
                      "rabbitmqctl forget_cluster_node %s",
                      name),
                  "node %s is down; %zu of %zu nodes are running", name,
                  json_array_size(run), json_array_size(all));
    }
    if (json_array_size(run) >= json_array_size(all))
        FOUND(t->f, FINE, "nodes", NULL, "%zu of %zu running",
              json_array_size(run), json_array_size(all));
    if (json_object_size(json_object_get(status, "partitions")) > 0)
        FOUND(
            t->f, BAD, "nodes",
            "rabbitmqctl cluster_status; restart RabbitMQ on the nodes of the "
            "smaller part",
            "a network failure has divided the cluster");
    for (at = json_object_iter(json_object_get(status, "versions")); at;
         at = json_object_iter_next(json_object_get(status, "versions"), at)) {
        name = json_text_of(json_object_iter_value(at), "rabbitmq_version");
        if (version && name && strcmp(version, name) != 0)
            other = name;
        version = version ? version : name;
    }
    if (other)
        FOUND(t->f, WARN, "nodes",
              "upgrade the nodes of the older version; until then, start no "
              "worker of a new queue",
              "they run different versions, %s and %s", version, other);
    json_array_foreach(json_object_get(status, "feature_flags"), i, one)
    {
        name = json_text_of(one, "stability");
        if (name && strcmp(name, "experimental") != 0) {
            name = json_text_of(one, "state");
            if (name && strcmp(name, "disabled") == 0)
                flag = json_text_of(one, "name");
        }
    }
    if (flag)
        FOUND(t->f, NOTE, "feature flags",
              "once all nodes have one version: rabbitmqctl "
              "enable_feature_flag all",
              "%s is disabled: a later version may not start without it", flag);
}

/* Return the definition of a policy, which the caller frees. */
static json_t *policy_read(const json_t *policies, const char *name)
{
    const json_t *one;
    const char *text;
    size_t i;

    json_array_foreach(policies, i, one)
    {
        text = json_text_of(one, "name");
        if (text && strcmp(text, name) == 0) {
            text = json_text_of(one, "definition");
            return text ? json_loads(text, 0, NULL) : NULL;
        }
    }
    return NULL;
}

/* Check the policy of a queue for keys that lose or move messages. Returns true
 * if the policy lifts the delivery limit. */
static bool policy_check(const struct node_visit *t, const char *queue,
                         const char *name, const json_t *policies)
{
    static const struct {
        const char *key;
        enum level level;
        const char *does;
    } takes[] = {
        {"delivery-limit", WARN,
         "moves each message to the dead letters after that number of "
         "deliveries"},
        {"message-ttl", WARN,
         "moves each message to the next queue after that number of ms"},
        {"expires", BAD,
         "deletes the queue with its messages if no worker uses it for that "
         "number of ms"},
    };
    json_t *policy = policy_read(policies, name);
    const json_t *limit = json_object_get(policy, "delivery-limit");
    bool lifts = json_is_integer(limit) && json_integer_value(limit) < 0;

    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++) {
        const json_t *n = json_object_get(policy, takes[i].key);

        if (!json_is_integer(n) || (i == 0 && lifts && t->limits))
            continue;
        FOUND(t->f, takes[i].level, "policies",
              fix(t->f, "rabbitmqctl list_policies -p %s; remove %s from %s%s",
                  t->operand->vhost, takes[i].key, name,
                  i == 0 && t->limits ? ", or set it to -1" : ""),
              "policy %s of %s has %s %" JSON_INTEGER_FORMAT ": it %s", name,
              queue, takes[i].key, json_integer_value(n), takes[i].does);
    }
    json_decref(policy);
    return lifts;
}

/* Check the replicas and policies of the worker's queues, NAME and NAME.*.
 * *lifted becomes false if a queue's policy does not lift its limit. */
static void replicas_check(const struct node_visit *t, const json_t *queues,
                           const json_t *policies, size_t nodes, bool *lifted)
{
    const char *own = t->operand->queue, *name, *by, *first = NULL;
    size_t n = strlen(own), i, members, online, least = SIZE_MAX;
    const json_t *queue;

    json_array_foreach(queues, i, queue)
    {
        name = json_text_of(queue, "name");
        if (!name || strncmp(name, own, n) != 0 || (name[n] && name[n] != '.'))
            continue;
        by = json_text_of(queue, "policy");
        *lifted = policy_check(t, name, by ? by : "", policies) && *lifted;
        members = json_array_size(json_object_get(queue, "members"));
        online = json_array_size(json_object_get(queue, "online"));
        if (members > 0 && 2 * online <= members)
            FOUND(t->f, BAD, "replicas",
                  "start RabbitMQ on the nodes that are down",
                  "%s has no majority: %zu of %zu replicas are online", name,
                  online, members);
        if (members > 0 && members < least) {
            least = members;
            first = name;
        }
    }
    if (!first)
        return;
    if (least >= 3)
        FOUND(t->f, FINE, "replicas", NULL, "each queue has at least %zu",
              least);
    else
        FOUND(t->f, nodes < 3 ? NOTE : WARN, "replicas",
              nodes < 3
                  ? "join more nodes: rabbitmqctl join_cluster; then "
                    "rabbitmq-queues grow NODE all"
                  : fix(t->f,
                        "for each node: rabbitmq-queues grow NODE all "
                        "--vhost-pattern '^%s$' --queue-pattern '^%s(\\..*)?$'",
                        t->operand->vhost, own),
              "%s has %zu replica%s; three are needed to survive the death of "
              "a node",
              first, least, term_plural(least));
}

bool node_check(const struct node_visit *t, bool *lifted)
{
    char word[SHELL_WORD_ROOM(BROKER_VHOST)], text[ARGUMENTS];
    const char *vhost = shell_word(t->operand->vhost, word, sizeof word);
    json_t *status = node_ask("cluster_status"), *queues = NULL,
           *policies = NULL;
    const char *name = json_text_of(status, "cluster_name");
    bool seen;

    if (name && strcmp(name, t->cluster) == 0) {
        nodes_check(t, status);
        snprintf(text, sizeof text,
                 "list_queues -p %s name members online policy", vhost);
        queues = node_ask(text);
        snprintf(text, sizeof text, "list_policies -p %s", vhost);
        policies = queues ? node_ask(text) : NULL;
    }
    *lifted = policies != NULL;
    if (policies)
        replicas_check(t, queues, policies,
                       json_array_size(json_object_get(status, "disk_nodes")),
                       lifted);
    seen = policies != NULL;
    json_decref(policies);
    json_decref(queues);
    json_decref(status);
    return seen;
}
