/* peers.c - beanstalkd and Redis (see peers.h) */
#include "tests/bench/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS     16
#define LOOK_MS   5
#define READY_MS  30000
#define NOT_FOUND 127

/* ---- bytes ---- */

static void say(struct peer_link *l, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(l->fd, text, size);

        if (n < 0)
            fail(errno, "the server");
        text += n;
        size -= (size_t)n;
    }
}

/* Read the next line, without its end. */
static void line(struct peer_link *l, char *out, int room)
{
    if (!fgets(out, room, l->in))
        fail(errno, "the server has closed");
    out[strcspn(out, "\r\n")] = '\0';
}

/* Read `size` bytes and the end of the line after them. */
static void bytes(struct peer_link *l, char *out, size_t size)
{
    char end[2];

    if (fread(out, 1, size, l->in) != size || fread(end, 1, 2, l->in) != 2)
        fail(errno, "the server has closed");
    out[size] = '\0';
}

/* ---- beanstalkd: its protocol.txt ---- */

/* Read a line, which must begin like that. */
static void answered(struct peer_link *l, const char *want, char *text,
                     int room)
{
    line(l, text, room);
    if (strncmp(text, want, strlen(want)) != 0)
        fail(0, "beanstalkd says %s, not %s", text, want);
}

static void beanstalkd_put(struct peer_link *l, const char *body)
{
    char text[FEED_MOST + 64];
    int n = snprintf(text, sizeof text, "put 0 0 120 %zu\r\n%s\r\n",
                     strlen(body), body);

    say(l, text, (size_t)n);
    answered(l, "INSERTED", text, sizeof text);
}

static void beanstalkd_take(struct peer_link *l)
{
    char text[128];

    say(l, "reserve\r\n", 9);
    line(l, text, sizeof text);
    if (sscanf(text, "RESERVED %63s %zu", l->id, &l->size) != 2 ||
        l->size > FEED_MOST)
        fail(0, "beanstalkd says %s", text);
    bytes(l, l->body, l->size);
}

static void beanstalkd_done(struct peer_link *l)
{
    char text[128];
    int n = snprintf(text, sizeof text, "delete %s\r\n", l->id);

    say(l, text, (size_t)n);
    answered(l, "DELETED", text, sizeof text);
}

const struct peer peer_beanstalkd = {
    .socket = "beanstalkd",
    .server = (const char *const[]){"beanstalkd", "-l", "unix:%s/beanstalkd",
                                    "-b", "%s", NULL},
    .put = beanstalkd_put,
    .take = beanstalkd_take,
    .done = beanstalkd_done,
};

/* ---- Redis: its protocol, RESP ---- */

/* Send a command; its words end with NULL. */
static void ask(struct peer_link *l, const char *const words[])
{
    char text[FEED_MOST + 512];
    size_t count = 0, at;

    while (words[count])
        count++;
    at = (size_t)snprintf(text, sizeof text, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "$%zu\r\n%s\r\n",
                               strlen(words[i]), words[i]);
    say(l, text, at);
}

/* Read one answer of any form. Its last string is the body; a string that
 * begins with a digit is an id of a stream. */
static void answer(struct peer_link *l)
{
    char text[128];
    long n;

    line(l, text, sizeof text);
    n = strtol(text + 1, NULL, 10);
    if (text[0] == '-')
        fail(0, "Redis says %s", text + 1);
    if (text[0] == '*')
        while (n-- > 0)
            answer(l);
    if (text[0] != '$')
        return;
    if (n < 0 || n > FEED_MOST)
        fail(0, "Redis has a body of %ld bytes", n);
    bytes(l, l->body, (size_t)n);
    l->size = (size_t)n;
    if (l->body[0] >= '0' && l->body[0] <= '9' && l->size < sizeof l->id)
        memcpy(l->id, l->body, l->size + 1);
}

#define ASK(l, ...) ask((l), (const char *const[]){__VA_ARGS__, NULL})

static void list_put(struct peer_link *l, const char *body)
{
    ASK(l, "LPUSH", "queue", body);
    answer(l);
}

static void list_take(struct peer_link *l)
{
    ASK(l, "BLMOVE", "queue", "processing", "RIGHT", "LEFT", "0");
    answer(l);
}

static void list_done(struct peer_link *l)
{
    ASK(l, "LREM", "processing", "1", l->body);
    answer(l);
}

static void stream_prepare(struct peer_link *l)
{
    ASK(l, "XGROUP", "CREATE", "queue", "group", "$", "MKSTREAM");
    answer(l);
}

static void stream_put(struct peer_link *l, const char *body)
{
    ASK(l, "XADD", "queue", "*", "body", body);
    answer(l);
}

static void stream_take(struct peer_link *l)
{
    ASK(l, "XREADGROUP", "GROUP", "group", "one", "COUNT", "1", "BLOCK", "0",
        "STREAMS", "queue", ">");
    answer(l);
}

/* Report it done and delete it, because the stream would grow. */
static void stream_done(struct peer_link *l)
{
    ASK(l, "XACK", "queue", "group", l->id);
    ASK(l, "XDEL", "queue", l->id);
    answer(l);
    answer(l);
}

/* What was answered is in the file: a kill of the server loses nothing, a power
 * cut loses up to the last second. */
static const char *const redis_server[] = {"redis-server",
                                           "--port",
                                           "0",
                                           "--unixsocket",
                                           "%s/redis",
                                           "--dir",
                                           "%s",
                                           "--appendonly",
                                           "yes",
                                           "--save",
                                           "",
                                           "--appendfsync",
                                           "everysec",
                                           "--logfile",
                                           "%s/redis.log",
                                           NULL};

const struct peer peer_redis_list = {
    .socket = "redis",
    .server = redis_server,
    .put = list_put,
    .take = list_take,
    .done = list_done,
};
const struct peer peer_redis_stream = {
    .socket = "redis",
    .server = redis_server,
    .prepare = stream_prepare,
    .put = stream_put,
    .take = stream_take,
    .done = stream_done,
};

/* ---- servers ---- */

/* Execute the server in its process. This does not return. */
static _Noreturn void server_run(const struct peer *peer)
{
    static char text[WORDS][PATH_MAX + 32];
    char *argv[WORDS + 1] = {NULL};
    int null = open("/dev/null", O_RDWR);

    for (size_t i = 0; i < WORDS && peer->server[i]; i++) {
        const char *word = peer->server[i], *dir = strstr(word, "%s");

        if (dir)
            snprintf(text[i], sizeof text[i], "%.*s%s%s", (int)(dir - word),
                     word, place->dir, dir + 2);
        else
            snprintf(text[i], sizeof text[i], "%s", word);
        argv[i] = text[i];
    }
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    execvp(argv[0], argv);
    _exit(NOT_FOUND);
}

/* Connect to the server; return false if it takes no connections. */
static bool joined(const struct peer *peer, int *fd)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int n = snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", place->dir,
                     peer->socket);

    if (n < 0 || (size_t)n >= sizeof to.sun_path)
        fail(0, "%s: too long for a socket; set TMPDIR", place->dir);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        fail(errno, "socket");
    if (connect(*fd, (const struct sockaddr *)&to, sizeof to) == 0)
        return true;
    close(*fd);
    return false;
}

void peer_open(const struct peer *peer, struct peer_link *l)
{
    if (!joined(peer, &l->fd))
        fail(errno, "%s", peer->server[0]);
    l->in = fdopen(l->fd, "r");
    if (!l->in)
        fail(errno, "fdopen");
}

enum measured peer_start(const struct peer *peer)
{
    int pid = fork_bound(), fd, status;
    struct peer_link l;

    if (pid == 0)
        server_run(peer);
    for (int ms = 0; !joined(peer, &fd); ms += LOOK_MS) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND
                       ? NOT_BUILT
                       : (fail(0, "%s has ended", peer->server[0]), NOT_BUILT);
        if (ms > READY_MS)
            fail(0, "%s takes no connection", peer->server[0]);
        poll(NULL, 0, LOOK_MS);
    }
    close(fd);
    if (peer->prepare) {
        peer_open(peer, &l);
        peer->prepare(&l);
        fclose(l.in);
    }
    return MEASURED;
}

int peer_send(const struct peer *peer, unsigned long n, size_t size)
{
    static char body[FEED_MOST + 1];
    static struct peer_link l;
    int pid = fork_bound();

    if (pid > 0)
        return pid;
    feed_body(body);
    body[size] = '\0';
    peer_open(peer, &l);
    for (unsigned long i = 0; i < n; i++) {
        feed_turn(body, i);
        peer->put(&l, body);
    }
    _exit(0);
}
