/* amqp_fake.h - a small AMQP server that does on purpose what brokers rarely do
 *
 * WHAT   Each connection has a process of its own. It lets anybody in, says
 *        which product and version it is, takes every declaration, gives one
 *        message to whoever consumes, and confirms or refuses what it is sent,
 *        as the plan says. What it saw is in memory that the test shares.
 * WHO    One test at a time.
 * OWNS   The processes; the janitor ends them with the test.
 * FAILS  By ending the test.
 */
#ifndef TESTS_AMQP_FAKE_H
#define TESTS_AMQP_FAKE_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <bsd/unistd.h>

struct fake {
    const char *product, *version;
    const char *message;     /* to a consumer; NULL: none */
    unsigned nacked;         /* so many connections get nacks only */
    bool leaves;             /* closes when asked for confirms */
    bool limited;            /* its queues were made without x-delivery-limit */
    bool unlimited;          /* its queues were made with one of -1 */
    bool hangs;              /* no answer to a declaration after the message */
    unsigned frame_max;      /* of what it takes, bytes; 0: 131072 */
    atomic_bool given;       /* the message was given */
    unsigned port;           /* out */
    atomic_uint publishers;  /* out: connections that published, and */
    atomic_uint published;   /* messages, */
    atomic_uint nacks, acks; /* and what was said to them */
    atomic_bool confirmed;   /* out: a copy was confirmed before */
    atomic_uint acked_early, acked; /* out: acks before, after that */
};

/* A connection, and a frame in the making. */
struct fake_link {
    struct fake *f;
    int fd;
    unsigned char out[512];
    size_t size;
    uint64_t published;
    bool nacks;
};

static inline void fake_u8(struct fake_link *l, unsigned v)
{
    l->out[l->size++] = (unsigned char)v;
}
static inline void fake_u16(struct fake_link *l, unsigned v)
{
    fake_u8(l, v >> 8);
    fake_u8(l, v & 255);
}
static inline void fake_u32(struct fake_link *l, uint32_t v)
{
    fake_u16(l, v >> 16);
    fake_u16(l, v & 65535);
}
static inline void fake_u64(struct fake_link *l, uint64_t v)
{
    fake_u32(l, (uint32_t)(v >> 32));
    fake_u32(l, (uint32_t)v);
}
static inline void fake_text(struct fake_link *l, const char *t, bool lengthy)
{
    size_t n = strlen(t);

    if (lengthy)
        fake_u32(l, (uint32_t)n);
    else
        fake_u8(l, (unsigned)n);
    memcpy(l->out + l->size, t, n);
    l->size += n;
}

/* Begin a frame, which fake_send ends. */
static inline void fake_frame(struct fake_link *l, unsigned type,
                              unsigned channel)
{
    l->size = 0;
    fake_u8(l, type);
    fake_u16(l, channel);
    fake_u32(l, 0);
}

static inline void fake_method(struct fake_link *l, unsigned channel,
                               unsigned class, unsigned method)
{
    fake_frame(l, 1, channel);
    fake_u16(l, class);
    fake_u16(l, method);
}

static inline void fake_send(struct fake_link *l)
{
    uint32_t payload = htonl((uint32_t)(l->size - 7));

    memcpy(l->out + 3, &payload, 4);
    fake_u8(l, 0xce);
    if (send(l->fd, l->out, l->size, MSG_NOSIGNAL) != (ssize_t)l->size)
        _exit(0);
}

static inline void fake_read(const struct fake_link *l, void *to, size_t n)
{
    if (n > 0 && recv(l->fd, to, n, MSG_WAITALL) != (ssize_t)n)
        _exit(0);
}

static inline void fake_start(struct fake_link *l)
{
    char table[256];
    size_t n = 0;
    const char *pairs[][2] = {{"product", l->f->product},
                              {"version", l->f->version}};

    for (int i = 0; i < 2; i++) {
        uint32_t size = htonl((uint32_t)strlen(pairs[i][1]));

        table[n++] = (char)strlen(pairs[i][0]);
        n += (size_t)sprintf(table + n, "%sS", pairs[i][0]);
        memcpy(table + n, &size, 4);
        n += 4;
        n += (size_t)sprintf(table + n, "%s", pairs[i][1]);
    }
    fake_method(l, 0, 10, 10);
    fake_u16(l, 9); /* 0-9 */
    fake_u32(l, (uint32_t)n);
    memcpy(l->out + l->size, table, n);
    l->size += n;
    fake_text(l, "PLAIN", true);
    fake_text(l, "en_US", true);
    fake_send(l);
}

/* Deliver the message, with tag 1. */
static inline void fake_deliver(struct fake_link *l)
{
    atomic_store(&l->f->given, true);
    fake_method(l, 1, 60, 60);
    fake_text(l, "mqworker", false);
    fake_u64(l, 1);
    fake_u8(l, 0);
    fake_text(l, "", false);
    fake_text(l, "q", false);
    fake_send(l);
    fake_frame(l, 2, 1);
    fake_u16(l, 60);
    fake_u16(l, 0);
    fake_u64(l, strlen(l->f->message));
    fake_u16(l, 0); /* no properties */
    fake_send(l);
    fake_frame(l, 3, 1);
    memcpy(l->out + l->size, l->f->message, strlen(l->f->message));
    l->size += strlen(l->f->message);
    fake_send(l);
}

/* Confirm or refuse a message that was published and is whole. */
static inline void fake_answer(struct fake_link *l)
{
    struct fake *f = l->f;

    if (l->published++ == 0)
        l->nacks = atomic_fetch_add(&f->publishers, 1) < f->nacked;
    atomic_fetch_add(&f->published, 1);
    atomic_fetch_add(l->nacks ? &f->nacks : &f->acks, 1);
    if (!l->nacks) {
        usleep(100000); /* time to be acknowledged too early */
        atomic_store(&f->confirmed, true);
    }
    fake_method(l, 1, 60, l->nacks ? 120 : 80);
    fake_u64(l, l->published);
    fake_u8(l, 0);
    fake_send(l);
}

/* Close the channel if a queue is declared with another limit of deliveries
 * than it has. Like RabbitMQ, accept any passive declaration. */
static inline bool fake_declare_refuse(struct fake_link *l, unsigned channel,
                                       const unsigned char *in, size_t size)
{
    bool passive = in[7 + in[6]] & 1;
    bool asked = memmem(in, size, "x-delivery-limit", 16) != NULL;

    if (passive || !(asked ? l->f->limited : l->f->unlimited))
        return false;
    fake_method(l, channel, 20, 40);
    fake_u16(l, 406);
    fake_text(l,
              asked ? "PRECONDITION_FAILED - inequivalent arg "
                      "'x-delivery-limit' for queue 'q' in vhost '/': received "
                      "the value '-1' of type 'long' but current is none"
                    : "PRECONDITION_FAILED - inequivalent arg "
                      "'x-delivery-limit' for queue 'q' in vhost '/': received "
                      "none but current is the value '-1' of type 'long'",
              false);
    fake_u16(l, 50);
    fake_u16(l, 10);
    fake_send(l);
    return true;
}

/* Answer a method. */
static inline void fake_method_use(struct fake_link *l, unsigned channel,
                                   unsigned id, const unsigned char *in,
                                   size_t size)
{
    static const struct {
        unsigned id, class, method, extra;
    } answers[] = {
        {10 << 16 | 40, 10, 41, 1},  /* connection.open: a short text */
        {10 << 16 | 50, 10, 51, 0},  /* connection.close */
        {20 << 16 | 10, 20, 11, 4},  /* channel.open: a long text */
        {85 << 16 | 10, 85, 11, 0},  /* confirm.select */
        {60 << 16 | 10, 60, 11, 0},  /* basic.qos */
        {50 << 16 | 10, 50, 11, 10}, /* queue.declare: "q", 0, 0 */
        {60 << 16 | 20, 60, 21, 9},  /* basic.consume: the tag */
    };

    if (id == (50U << 16 | 10) && l->f->hangs && atomic_load(&l->f->given))
        return;
    if (id == (50U << 16 | 10) && fake_declare_refuse(l, channel, in, size))
        return;
    if (id == (85U << 16 | 10) && l->f->leaves)
        _exit(0);
    if (id == (60U << 16 | 80))
        atomic_fetch_add(atomic_load(&l->f->confirmed) ? &l->f->acked
                                                       : &l->f->acked_early,
                         1);
    if (id == (10U << 16 | 11)) { /* start-ok: tune */
        fake_method(l, 0, 10, 30);
        fake_u16(l, 8);
        fake_u32(l, l->f->frame_max ? l->f->frame_max : 131072);
        fake_u16(l, 0);
        fake_send(l);
    }
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        if (answers[i].id != id)
            continue;
        fake_method(l, channel, answers[i].class, answers[i].method);
        if (answers[i].extra == 9)
            fake_text(l, "mqworker", false);
        else if (answers[i].extra == 10) {
            fake_text(l, "q", false);
            fake_u64(l, 0);
        } else
            for (unsigned n = 0; n < answers[i].extra; n++)
                fake_u8(l, 0);
        fake_send(l);
        if (answers[i].extra == 9 && l->f->message)
            fake_deliver(l);
    }
}

static inline void fake_serve(struct fake *f, int fd)
{
    struct fake_link l = {.f = f, .fd = fd};
    static unsigned char in[140000];
    unsigned char head[8];
    uint64_t left = 0;

    fake_read(&l, head, 8);
    fake_start(&l);
    for (;;) {
        uint32_t size;

        fake_read(&l, head, 7);
        memcpy(&size, head + 3, 4);
        size = ntohl(size);
        if (size + 1 > sizeof in)
            _exit(1);
        fake_read(&l, in, size + 1);
        if (head[0] == 1)
            fake_method_use(&l, (unsigned)head[1] << 8 | head[2],
                            (unsigned)in[0] << 24 | (unsigned)in[1] << 16 |
                                (unsigned)in[2] << 8 | in[3],
                            in, size);
        if (head[0] == 2) {
            left = 0;
            for (int i = 4; i < 12; i++)
                left = left << 8 | in[i];
            if (left == 0)
                fake_answer(&l);
        }
        if (head[0] == 3 && left > 0 && (left -= size) == 0)
            fake_answer(&l);
    }
}

/* Start a server on loopback. Copies the plan. */
static inline struct fake *fake_open(const struct fake *plan)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next;
    struct fake *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    cr_assert(fd >= 0 && f != MAP_FAILED);
    memcpy(f, plan, sizeof *f);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    cr_assert_eq(listen(fd, 16), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    f->port = ntohs(at.sin_port);
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        /* Close inherited pipes, whose ends the janitor and Criterion await. */
        if (dup2(fd, 3) != 3)
            _exit(1);
        fd = 3;
        closefrom(4);
        while ((next = accept(fd, NULL, NULL)) >= 0) {
            if (fork() == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                fake_serve(f, next);
            }
            close(next);
        }
        _exit(0);
    }
    close(fd);
    return f;
}

static inline const char *fake_operand(const struct fake *f)
{
    static char text[100];

    snprintf(text, sizeof text, "amqp://guest@127.0.0.1:%u/%%2F/q", f->port);
    return text;
}

#endif
