/* rabbit.h - librabbitmq, loaded at the first connection to a broker
 *
 * WHAT   Loading librabbitmq and its OpenSSL takes 2 MB of memory and a
 *        millisecond, so the programs are not linked with it. Its functions are
 *        called through pointers, under their own names.
 * WHO    Every file of amqp/. host_connect in link.c loads the library; no
 *        function may be called before that.
 * OWNS   The library, until the program ends.
 * FAILS  rabbit_load: 78, the library is missing or lacks a function.
 */
#ifndef COMMON_AMQP_RABBIT_H
#define COMMON_AMQP_RABBIT_H

/* Version 0.13 of librabbitmq moved the headers and left stubs that only
 * warn. */
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

/* The functions in use; each has a #define below. */
#define RABBIT_CALLS(X)                                                        \
    X(amqp_basic_ack), X(amqp_basic_cancel), X(amqp_basic_consume),            \
        X(amqp_basic_nack), X(amqp_basic_publish), X(amqp_basic_qos),          \
        X(amqp_channel_open), X(amqp_confirm_select), X(amqp_cstring_bytes),   \
        X(amqp_data_in_buffer), X(amqp_decode_properties),                     \
        X(amqp_destroy_connection), X(amqp_encode_properties),                 \
        X(amqp_error_string2), X(amqp_exchange_declare),                       \
        X(amqp_frames_enqueued), X(amqp_get_frame_max), X(amqp_get_rpc_reply), \
        X(amqp_get_server_properties), X(amqp_get_sockfd),                     \
        X(amqp_login_with_properties), X(amqp_maybe_release_buffers),          \
        X(amqp_new_connection), X(amqp_pool_alloc), X(amqp_queue_bind),        \
        X(amqp_queue_declare), X(amqp_send_method),                            \
        X(amqp_set_handshake_timeout), X(amqp_set_rpc_timeout),                \
        X(amqp_simple_wait_frame_noblock), X(amqp_socket_open_noblock),        \
        X(amqp_ssl_socket_new), X(amqp_ssl_socket_set_cacert),                 \
        X(amqp_ssl_socket_set_key), X(amqp_ssl_socket_set_ssl_versions),       \
        X(amqp_tcp_socket_new), X(empty_amqp_pool), X(init_amqp_pool)

enum rabbit_call {
#define X(name) RABBIT_##name
    RABBIT_CALLS(X),
#undef X
    RABBIT_COUNT
};
extern void (*rabbit_calls[RABBIT_COUNT])(void);
#define RABBIT(name) ((__typeof__(name) *)rabbit_calls[RABBIT_##name])

/* Load the library at the first call. Returns 0 or -EINVAL. Any thread. */
int rabbit_load(struct problem *p);

#define amqp_basic_ack                 RABBIT(amqp_basic_ack)
#define amqp_basic_cancel              RABBIT(amqp_basic_cancel)
#define amqp_basic_consume             RABBIT(amqp_basic_consume)
#define amqp_basic_nack                RABBIT(amqp_basic_nack)
#define amqp_basic_publish             RABBIT(amqp_basic_publish)
#define amqp_basic_qos                 RABBIT(amqp_basic_qos)
#define amqp_channel_open              RABBIT(amqp_channel_open)
#define amqp_confirm_select            RABBIT(amqp_confirm_select)
#define amqp_cstring_bytes             RABBIT(amqp_cstring_bytes)
#define amqp_data_in_buffer            RABBIT(amqp_data_in_buffer)
#define amqp_decode_properties         RABBIT(amqp_decode_properties)
#define amqp_destroy_connection        RABBIT(amqp_destroy_connection)
#define amqp_encode_properties         RABBIT(amqp_encode_properties)
#define amqp_error_string2             RABBIT(amqp_error_string2)
#define amqp_exchange_declare          RABBIT(amqp_exchange_declare)
#define amqp_frames_enqueued           RABBIT(amqp_frames_enqueued)
#define amqp_get_frame_max             RABBIT(amqp_get_frame_max)
#define amqp_get_rpc_reply             RABBIT(amqp_get_rpc_reply)
#define amqp_get_server_properties     RABBIT(amqp_get_server_properties)
#define amqp_get_sockfd                RABBIT(amqp_get_sockfd)
#define amqp_login_with_properties     RABBIT(amqp_login_with_properties)
#define amqp_maybe_release_buffers     RABBIT(amqp_maybe_release_buffers)
#define amqp_new_connection            RABBIT(amqp_new_connection)
#define amqp_pool_alloc                RABBIT(amqp_pool_alloc)
#define amqp_queue_bind                RABBIT(amqp_queue_bind)
#define amqp_queue_declare             RABBIT(amqp_queue_declare)
#define amqp_send_method               RABBIT(amqp_send_method)
#define amqp_set_handshake_timeout     RABBIT(amqp_set_handshake_timeout)
#define amqp_set_rpc_timeout           RABBIT(amqp_set_rpc_timeout)
#define amqp_simple_wait_frame_noblock RABBIT(amqp_simple_wait_frame_noblock)
#define amqp_socket_open_noblock       RABBIT(amqp_socket_open_noblock)
#define amqp_ssl_socket_new            RABBIT(amqp_ssl_socket_new)
#define amqp_ssl_socket_set_cacert     RABBIT(amqp_ssl_socket_set_cacert)
#define amqp_ssl_socket_set_key        RABBIT(amqp_ssl_socket_set_key)
#define amqp_ssl_socket_set_ssl_versions \
    RABBIT(amqp_ssl_socket_set_ssl_versions)
#define amqp_tcp_socket_new RABBIT(amqp_tcp_socket_new)
#define empty_amqp_pool     RABBIT(empty_amqp_pool)
#define init_amqp_pool      RABBIT(init_amqp_pool)

#endif
