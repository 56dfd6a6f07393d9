/* link.c - a connection to a broker, with one channel (see link.h) */
#include "common/amqp/link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"

#define CONNECT_S  5
#define RPC_S      15
#define SILENT_MS  10000 /* until the kernel declares a silent host dead */
#define FRAME_MAX  131072
#define CHANNELS   8
#define SYSTEM_CA  "/etc/ssl/certs/ca-certificates.crt"
#define LEAST      0x030a00
#define LEAST_TEXT "3.10"

/* Keep the broker's reason for closing the channel or the connection. */
static void reason_keep(struct link *l, uint16_t code, amqp_bytes_t text)
{
    l->code = code;
    (void)safe_text_copy(l->why, sizeof l->why, text.bytes ? text.bytes : "",
                         text.len);
}

bool link_closed_by(struct link *l, const amqp_method_t *method)
{
    if (method->id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *m = method->decoded;

        reason_keep(l, m->reply_code, m->reply_text);
        return true;
    }
    if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *m = method->decoded;

        reason_keep(l, m->reply_code, m->reply_text);
        return true;
    }
    return false;
}

uint64_t link_largest_body(const struct link *l)
{
    /* "message size 20 is larger than configured max size 10" */
    const char *at =
        strstr(l->why, "message size ") ? strstr(l->why, " max size ") : NULL;

    return at && l->code == AMQP_PRECONDITION_FAILED
               ? strtoull(at + strlen(" max size "), NULL, 10)
               : 0;
}

int link_status(struct link *l, int status)
{
    if (status == AMQP_STATUS_OK)
        return 0;
    l->code = 0;
    snprintf(l->why, sizeof l->why, "%s", amqp_error_string2(status));
    return status == AMQP_STATUS_NO_MEMORY       ? -ENOMEM
           : status == AMQP_STATUS_TABLE_TOO_BIG ? -EMSGSIZE
           : status == AMQP_STATUS_TIMEOUT ||
                   status == AMQP_STATUS_HEARTBEAT_TIMEOUT
               ? -ETIMEDOUT
               : -ECONNRESET;
}

int link_reply(struct link *l, amqp_rpc_reply_t reply)
{
    switch (reply.reply_type) {
    case AMQP_RESPONSE_NORMAL:
        return 0;
    case AMQP_RESPONSE_SERVER_EXCEPTION:
        if (!link_closed_by(l, &reply.reply))
            snprintf(l->why, sizeof l->why, "method 0x%08X",
                     (unsigned)reply.reply.id);
        return reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD ? -EPROTO
                                                           : -ECONNRESET;
    case AMQP_RESPONSE_LIBRARY_EXCEPTION:
        return link_status(l, reply.library_error);
    case AMQP_RESPONSE_NONE:
    default:
        snprintf(l->why, sizeof l->why, "the connection was closed");
        return -ECONNRESET;
    }
}

/* ---- entries of a table ---- */

amqp_table_entry_t entry_text(const char *name, const char *value)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_UTF8,
                  .value.bytes = amqp_cstring_bytes(value)}};
}

amqp_table_entry_t entry_of(struct header_text name, struct header_text value)
{
    return (amqp_table_entry_t){
        .key = {name.size, (void *)(uintptr_t)name.at},
        .value = {.kind = AMQP_FIELD_KIND_UTF8,
                  .value.bytes = {value.size, (void *)(uintptr_t)value.at}}};
}

amqp_table_entry_t entry_number(const char *name, uint64_t n)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_I64,
                  .value.i64 = n > INT64_MAX ? INT64_MAX : (int64_t)n}};
}

amqp_table_entry_t entry_true(const char *name)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}};
}

/* ---- frames ---- */

/* Have the kernel close the connection when the peer has been silent for `ms`,
 * whether data waits for its acknowledgement or nothing is sent (tcp(7):
 * TCP_USER_TIMEOUT also bounds the keepalive probes); 0: the kernel's default.
 * This finds a host that is cut off sooner than heartbeats do, and does not
 * wake this process. If the option is refused, the heartbeats find it. */
static void silence_limit(int fd, unsigned ms)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

int link_frame(struct link *l, amqp_frame_t *frame)
{
    const amqp_method_t *m = &frame->payload.method;
    const struct timeval now = {0, 0};
    int status = amqp_simple_wait_frame_noblock(l->c, frame, &now);

    if (status == AMQP_STATUS_TIMEOUT)
        return NO;
    if (status != AMQP_STATUS_OK)
        return link_status(l, status);
    if (frame->frame_type != AMQP_FRAME_METHOD || frame->channel != 0)
        return YES;
    /* During an alarm the broker stops reading, so its window fills, and the
     * kernel would take that for silence (tcp_probe_timer). */
    if (m->id == AMQP_CONNECTION_BLOCKED_METHOD ||
        m->id == AMQP_CONNECTION_UNBLOCKED_METHOD) {
        l->blocked = m->id == AMQP_CONNECTION_BLOCKED_METHOD;
        silence_limit(l->fd, l->blocked ? 0 : SILENT_MS);
    }
    return link_closed_by(l, m) ? -ECONNRESET : YES;
}

void incoming_next(struct incoming *in)
{
    free(in->block);
    *in = (struct incoming){.before = in->before, .gap = in->gap};
}

int incoming_frame(struct incoming *in, struct link *l, const amqp_frame_t *f)
{
    const amqp_method_t *m = &f->payload.method;
    const amqp_basic_deliver_t *d;
    amqp_bytes_t part;
    uint64_t size;

    if (f->frame_type == AMQP_FRAME_METHOD &&
        m->id == AMQP_BASIC_DELIVER_METHOD) {
        d = m->decoded;
        if (in->tag)
            return -EPROTO;
        in->tag = d->delivery_tag;
        in->redelivered = d->redelivered != 0;
        if (d->consumer_tag.len < sizeof in->consumer)
            memcpy(in->consumer, d->consumer_tag.bytes, d->consumer_tag.len);
        return NO;
    }
    if (f->frame_type == AMQP_FRAME_METHOD &&
        m->id == AMQP_BASIC_CANCEL_METHOD) {
        snprintf(l->why, sizeof l->why,
                 "the broker cancelled the consumer: was the queue deleted%s?",
                 l->server < SERVER_4_3 ? ""
                                        : ", or was a message not acknowledged "
                                          "within consumer_timeout");
        return -ENOENT;
    }
    if (f->frame_type == AMQP_FRAME_METHOD)
        return link_closed_by(l, m) ? -ECONNRESET : NO;
    if (f->frame_type == AMQP_FRAME_HEADER) {
        part = f->payload.properties.raw;
        size = f->payload.properties.body_size;
        if (!in->tag || in->block || size > SIZE_MAX / 2)
            return -EPROTO;
        in->block = malloc(in->before + part.len + in->gap + (size_t)size);
        if (!in->block)
            return -ENOMEM;
        in->raw = (amqp_bytes_t){part.len, in->block + in->before};
        memcpy(in->raw.bytes, part.bytes, part.len);
        in->body = in->block + in->before + part.len + in->gap;
        in->body_size = (size_t)size;
    } else if (f->frame_type == AMQP_FRAME_BODY) {
        part = f->payload.body_fragment;
        if (!in->block || part.len > in->body_size - in->filled)
            return -EPROTO;
        memcpy(in->body + in->filled, part.bytes, part.len);
        in->filled += part.len;
    } else {
        return NO;
    }
    return in->filled == in->body_size ? YES : NO;
}

/* ---- open ---- */

/* Connect once more, to find the errno that the library does not return; 0: no
 * error, or not known. */
static int connect_error(const struct broker_host *h)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    const struct timeval limit = {.tv_sec = 1};
    struct addrinfo *found = NULL;
    char port[16];
    int fd, error = 0;

    snprintf(port, sizeof port, "%u", h->port);
    if (getaddrinfo(h->name, port, &want, &found) != 0)
        return 0;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(fd, found->ai_addr, found->ai_addrlen) < 0)
            error = errno;
        close(fd);
    }
    freeaddrinfo(found);
    return error;
}

/* Report why a host cannot be connected to. */
static int socket_refused(const struct link_setup *setup, unsigned i,
                          int status, struct problem *p)
{
    const struct broker_host *h = &setup->operand->hosts[i];
    const char *ca = setup->tls.ca ? setup->tls.ca : SYSTEM_CA;
    int error = status == AMQP_STATUS_SOCKET_ERROR ? connect_error(h) : 0;

    if (status == AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED)
        return problem_set(p, EX_CONFIG, EPERM,
                           "the certificate of %s:%u is for another name: use "
                           "the name in the certificate, or get another one",
                           h->name, h->port);
    if (status == AMQP_STATUS_SSL_PEER_VERIFY_FAILED)
        return problem_set(p, EX_CONFIG, EPERM,
                           "the certificate of %s:%u is not signed by one of "
                           "%s: give the right file to --tls-ca",
                           h->name, h->port, ca);
    if (status <= AMQP_STATUS_SSL_ERROR)
        return problem_set(p, EX_UNAVAILABLE, ECONNREFUSED,
                           "no TLS with %s:%u: %s; the port for TLS is usually "
                           "5671, and the server's certificate must be for "
                           "that name and signed by one of %s",
                           h->name, h->port, amqp_error_string2(status), ca);
    return problem_set(
        p, EX_UNAVAILABLE, ECONNREFUSED,
        "cannot connect to %s:%u: %s%s; start the broker, or "
        "name another host",
        h->name, h->port,
        status == AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED ? "no such host"
        : status == AMQP_STATUS_TIMEOUT                  ? "no answer"
        : error                                          ? errno_text(error)
                : amqp_error_string2(status),
        setup->operand->host_count > 1 ? ", nor to the others" : "");
}

/* Report why the broker refuses the login. */
static int login_refused(const struct link *l, const struct link_setup *setup,
                         struct problem *p)
{
    const struct broker_operand *o = setup->operand;
    const char *host = o->hosts[l->host].name;

    if (strstr(l->why, "access to vhost"))
        return problem_set(p, EX_NOPERM, EACCES,
                           "user %s has no rights in virtual host %s of %s: "
                           "rabbitmqctl set_permissions -p %s %s '.*' '.*' "
                           "'.*'",
                           o->user, o->vhost, host, o->vhost, o->user);
    if (l->code == AMQP_ACCESS_REFUSED)
        return problem_set(p, EX_NOPERM, EACCES,
                           "%s refuses user %s: unknown user or wrong "
                           "password; see --password-file",
                           host, o->user);
    if (l->code == AMQP_NOT_ALLOWED && strstr(l->why, "not found"))
        return problem_set(p, EX_NOINPUT, ENOENT,
                           "%s has no virtual host %s: rabbitmqctl add_vhost "
                           "%s, or name another one (%%2F is the default one)",
                           host, o->vhost, o->vhost);
    if (l->code == AMQP_NOT_ALLOWED)
        return problem_set(p, EX_NOPERM, EACCES,
                           "%s refuses user %s in virtual host %s: %s", host,
                           o->user, o->vhost, l->why);
    return problem_set(p, EX_UNAVAILABLE, ECONNREFUSED,
                       "%s:%u refuses the login: %s", host,
                       o->hosts[l->host].port,
                       l->why[0] ? l->why : "it closed the connection");
}

void link_property(const struct link *l, const char *name, char *out,
                   size_t room)
{
    const amqp_table_t *all = amqp_get_server_properties(l->c);

    out[0] = '\0';
    for (int i = 0; all && i < all->num_entries; i++) {
        const amqp_table_entry_t *e = &all->entries[i];

        if (e->key.len == strlen(name) &&
            memcmp(e->key.bytes, name, e->key.len) == 0 &&
            e->value.kind == AMQP_FIELD_KIND_UTF8)
            (void)safe_text_copy(out, room, e->value.value.bytes.bytes,
                                 e->value.value.bytes.len);
    }
}

static int channel_open(struct link *l)
{
    amqp_channel_open(l->c, LINK_CHANNEL);
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* Confirm first that the old channel is closed: until then the broker opens no
 * other with its number. */
int link_channel(struct link *l)
{
    int err = link_status(l, amqp_send_method(l->c, LINK_CHANNEL,
                                              AMQP_CHANNEL_CLOSE_OK_METHOD,
                                              &(amqp_channel_close_ok_t){0}));

    return err ? err : channel_open(l);
}

/* Connect to host `i`, over TLS with the keys that were given. */
static int host_connect(struct link *l, const struct link_setup *setup,
                        unsigned i, struct problem *p)
{
    const struct broker_host *h = &setup->operand->hosts[i];
    const struct broker_tls *tls = &setup->tls;
    const unsigned limit = setup->limit_s;
    const char *ca = tls->ca ? tls->ca : SYSTEM_CA;
    struct timeval connect = {.tv_sec = limit ? (time_t)limit : CONNECT_S};
    struct timeval rpc = {.tv_sec = limit ? (time_t)limit : RPC_S};
    const int on = 1, idle_s = 4, interval_s = 2, probes = 3;
    amqp_socket_t *s = NULL;
    int status;

    l->host = i;
    status = rabbit_load(p);
    if (status < 0)
        return status;
    l->c = amqp_new_connection();
    if (l->c)
        s = setup->operand->tls ? amqp_ssl_socket_new(l->c)
                                : amqp_tcp_socket_new(l->c);
    if (!s)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (setup->operand->tls) {
        (void)amqp_ssl_socket_set_ssl_versions(s, AMQP_TLSv1_2,
                                               AMQP_TLSvLATEST);
        if (amqp_ssl_socket_set_cacert(s, ca) != AMQP_STATUS_OK)
            return problem_set(
                p, EX_CONFIG, EINVAL,
                "--tls-ca: %s has no certificates that can be read", ca);
        if (tls->cert &&
            amqp_ssl_socket_set_key(s, tls->cert, tls->key) != AMQP_STATUS_OK)
            return problem_set(
                p, EX_CONFIG, EINVAL,
                "--tls-cert %s and --tls-key %s: cannot be read, or do not "
                "belong together",
                tls->cert, tls->key);
    }
    (void)amqp_set_handshake_timeout(l->c, &rpc);
    (void)amqp_set_rpc_timeout(l->c, &rpc);
    status = amqp_socket_open_noblock(s, h->name, (int)h->port, &connect);
    if (status != AMQP_STATUS_OK)
        return socket_refused(setup, i, status, p);
    l->fd = amqp_get_sockfd(l->c);
    /* Have the kernel probe an idle connection, and limit its peer's silence.
     */
    (void)setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s,
                     sizeof interval_s);
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    silence_limit(l->fd, SILENT_MS);
    return 0;
}

/* Log in to the connected host, refuse a server that may lose messages, and
 * open the channel. The broker reports a cancelled consumer, and that it
 * accepts no messages, only to a client that names these capabilities. */
static int host_log_in(struct link *l, const struct link_setup *setup,
                       struct problem *p)
{
    const struct broker_operand *o = setup->operand;
    const char *host = o->hosts[l->host].name;
    amqp_table_entry_t can[] = {
        entry_true("consumer_cancel_notify"), entry_true("connection.blocked"),
        entry_true("authentication_failure_close"), entry_true("basic.nack"),
        entry_true("publisher_confirms")};
    amqp_table_entry_t all[] = {
        {.key = amqp_cstring_bytes("capabilities"),
         .value = {.kind = AMQP_FIELD_KIND_TABLE,
                   .value.table = {sizeof can / sizeof can[0], can}}},
        entry_text("connection_name", setup->name),
        entry_text("product", "mqworker"),
        entry_text("version", MQW_VERSION)};
    const amqp_table_t properties = {sizeof all / sizeof all[0], all};
    char product[64], *at = l->version;

    if (link_reply(l, amqp_login_with_properties(
                          l->c, o->vhost, CHANNELS, FRAME_MAX, LINK_HEARTBEAT,
                          &properties, AMQP_SASL_METHOD_PLAIN, o->user,
                          setup->password)) < 0)
        return login_refused(l, setup, p);
    link_property(l, "product", product, sizeof product);
    link_property(l, "version", l->version, sizeof l->version);
    l->server = 0;
    for (int i = 0; i < 3; i++) {
        unsigned long part = strtoul(at, &at, 10);

        l->server = l->server << 8 | (part < 255 ? (unsigned)part : 255);
        at += *at == '.';
    }
    if (strcmp(product, "RabbitMQ") != 0)
        return problem_set(p, EX_UNAVAILABLE, ENOTSUP,
                           "%s is %s %s: only RabbitMQ's quorum queues are "
                           "known to lose nothing",
                           host, product[0] ? product : "a server without name",
                           l->version);
    if (l->server < LEAST)
        return problem_set(p, EX_UNAVAILABLE, ENOTSUP,
                           "%s has RabbitMQ %s: its dead lettering may lose "
                           "messages; " LEAST_TEXT
                           " or later is needed, 3.12.5 "
                           "or later is better",
                           host, l->version);
    return channel_open(l) < 0 ? login_refused(l, setup, p) : 0;
}

int link_open(struct link **out, const struct link_setup *setup, unsigned first,
              struct problem *p)
{
    unsigned count = setup->operand->host_count;
    struct link *l = calloc(1, sizeof *l);
    int err = -ECONNREFUSED;

    *out = NULL;
    if (!l)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    for (unsigned n = 0; n < count && err == -ECONNREFUSED; n++) {
        if (l->c)
            (void)amqp_destroy_connection(l->c);
        err = host_connect(l, setup, (first + n) % count, p);
        if (!err)
            err = host_log_in(l, setup, p);
    }
    if (err)
        link_close(&l);
    *out = l;
    return err;
}

void link_close(struct link **link)
{
    struct link *l = *link;

    if (!l)
        return;
    *link = NULL;
    if (l->c) /* without telling the broker */
        (void)amqp_destroy_connection(l->c);
    free(l);
}
