/* doctor_node.h - checks with rabbitmqctl, for mqctl doctor
 *
 * WHAT   Checks the cluster's nodes, and the replicas and policies of the
 *        queues, none of which AMQP shows.
 * WHO    doctor_broker.c, on the only thread of the process.
 * OWNS   Nothing.
 * FAILS  Never; a problem is a finding.
 */
#ifndef SCRIPTS_MQCTL_AMQP_DOCTOR_NODE_H
#define SCRIPTS_MQCTL_AMQP_DOCTOR_NODE_H

#include <stdbool.h>

#include "common/broker/broker_operand.h"
#include "scripts/mqctl/look/doctor.h"

/* The broker, with facts that its connection has shown. */
struct node_visit {
    struct findings *f;
    const struct broker_operand *operand;
    const char *cluster; /* its name */
    bool limits;         /* version 4.0 or later: queues limit deliveries by
                          * default */
};

/* Run rabbitmqctl and check what it prints. Returns false if it does not show
 * the queues: this machine is no node of the cluster, or the user is neither
 * root nor rabbitmq. *lifted: policies lift the delivery limits of all of the
 * worker's queues. */
bool node_check(const struct node_visit *t, bool *lifted);

#endif
