/* rabbit.h - the headers of librabbitmq
 *
 * WHAT   Includes them from the place where this version has them.
 * WHO    Files in folders amqp/, which are built where the headers are.
 * OWNS   -
 * FAILS  -
 */
#ifndef COMMON_AMQP_RABBIT_H
#define COMMON_AMQP_RABBIT_H

/* Version 0.13 moved the headers and left stubs that only warn. */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#endif
