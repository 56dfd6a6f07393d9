/* rabbit.h - librabbitmq, loaded when an amqp:// operand asks for it
 *
 * WHAT   The calls of the library that are used here, as a table: who has no
 *        broker needs neither it nor the TLS library that it needs, and their
 *        pages are not mapped.
 * WHO    rabbit_load: any thread. The table: constant after it.
 * OWNS   The library, until the process ends.
 * FAILS  A problem with status 69 that names what to install.
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

#include "common/base/problem.h"

#define RABBIT_CALLS(X)                 \
    X(amqp_basic_ack)                   \
    X(amqp_basic_cancel)                \
    X(amqp_basic_consume)               \
    X(amqp_basic_nack)                  \
    X(amqp_basic_publish)               \
    X(amqp_basic_qos)                   \
    X(amqp_channel_open)                \
    X(amqp_confirm_select)              \
    X(amqp_connection_close)            \
    X(amqp_data_in_buffer)              \
    X(amqp_decode_properties)           \
    X(amqp_destroy_connection)          \
    X(amqp_encode_properties)           \
    X(amqp_error_string2)               \
    X(amqp_exchange_declare)            \
    X(amqp_frames_enqueued)             \
    X(amqp_get_frame_max)               \
    X(amqp_get_rpc_reply)               \
    X(amqp_get_server_properties)       \
    X(amqp_get_sockfd)                  \
    X(amqp_login_with_properties)       \
    X(amqp_maybe_release_buffers)       \
    X(amqp_new_connection)              \
    X(amqp_pool_alloc)                  \
    X(amqp_queue_bind)                  \
    X(amqp_queue_declare)               \
    X(amqp_queue_delete)                \
    X(amqp_send_method)                 \
    X(amqp_set_handshake_timeout)       \
    X(amqp_set_rpc_timeout)             \
    X(amqp_simple_wait_frame_noblock)   \
    X(amqp_socket_open_noblock)         \
    X(amqp_ssl_socket_new)              \
    X(amqp_ssl_socket_set_cacert)       \
    X(amqp_ssl_socket_set_key)          \
    X(amqp_ssl_socket_set_ssl_versions) \
    X(amqp_tcp_socket_new)              \
    X(empty_amqp_pool)                  \
    X(init_amqp_pool)

struct rabbit {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member */
#define RABBIT_FIELD(name) __typeof__(&(name)) name;
    RABBIT_CALLS(RABBIT_FIELD)
#undef RABBIT_FIELD
};

extern struct rabbit rabbit;

int rabbit_load(struct problem *p);

#endif
