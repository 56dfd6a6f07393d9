/* broker_operand.c - a queue on a broker, as a command line names and opens it
 * (see broker_operand.h) */
#include "common/broker/broker_operand.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>

#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"

#define SCHEME     "amqp://"
#define SCHEME_TLS "amqps://"
#define PORT       5672
#define PORT_TLS   5671
#define SAFE       100 /* of a part in a sentence */
#define LIKE       "like amqp://orders@mq1,mq2/%%2F/orders" /* in a format */

/* A part of the operand. */
struct part {
    const char *at;
    size_t size;
};

bool broker_operand_is(const char *text)
{
    return strncmp(text, SCHEME, strlen(SCHEME)) == 0 ||
           strncmp(text, SCHEME_TLS, strlen(SCHEME_TLS)) == 0;
}

/* refuse - `what` is wrong with a part that is no secret */
static int refuse(struct problem *p, const char *name, struct part part,
                  const char *what)
{
    char safe[SAFE];

    safe_text_copy(safe, sizeof safe, part.at, part.size);
    return problem_set(p, EX_USAGE, EINVAL, "%s \"%s\" %s, " LIKE, name, safe,
                       what);
}

/* cut - the part before `at`, which moves behind it; all if there is none */
static struct part cut(const char **from, const char *end, char at)
{
    const char *found = memchr(*from, at, (size_t)(end - *from));
    struct part part = {*from, (size_t)((found ? found : end) - *from)};

    *from = found ? found + 1 : end;
    return part;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* byte_at - the byte that stands at *i, which moves to its last character; -1:
 * a % without two hex digits */
static int byte_at(struct part part, size_t *i)
{
    int high, low;

    if (part.at[*i] != '%')
        return (unsigned char)part.at[*i];
    if (part.size - *i < 3)
        return -1;
    high = hex(part.at[*i + 1]);
    low = hex(part.at[*i + 2]);
    *i += 2;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* decode - a part without its %XX, as text of `room` bytes */
static int decode(char *out, size_t room, struct part part, const char *name,
                  struct problem *p)
{
    size_t n = 0;

    if (part.size == 0)
        return refuse(p, name, part, "is empty: give one");
    for (size_t i = 0; i < part.size; i++) {
        int c = byte_at(part, &i);

        if (c < 0)
            return refuse(p, name, part,
                          "has a % without two hex digits behind it; %25 is a "
                          "percent sign");
        if (c < 0x20 || c == 0x7f)
            return refuse(p, name, part,
                          "has a control character, which is not allowed");
        if (n + 1 >= room)
            return refuse(p, name, part, "is too long");
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return 0;
}

/* text_ok - nothing that a log or a terminal would take for something else */
static int text_ok(const char *text, const char *name, struct problem *p)
{
    struct part part = {text, strlen(text)};
    size_t used;
    uint32_t point;

    for (size_t i = 0; i < part.size; i += used) {
        used = utf8_read(text + i, part.size - i, &point);
        if (used == 0 || utf8_hidden(point))
            return refuse(p, name, part,
                          "is not printable UTF-8, which is allowed only");
    }
    return 0;
}

/* user_read - a password beside it is refused: it would be in ps(1) */
static int user_read(struct broker_operand *o, struct part part,
                     struct problem *p)
{
    int err;

    if (memchr(part.at, ':', part.size))
        return problem_set(p, EX_USAGE, EINVAL,
                           "a password in the operand can be read by everybody "
                           "on this machine: leave it out; give it by "
                           "--password-file FILE, "
                           "$CREDENTIALS_DIRECTORY/amqp-password or "
                           "AMQP_PASSWORD");
    err = decode(o->user, sizeof o->user, part, "user", p);
    return err ? err : text_ok(o->user, "user", p);
}

/* port_read - "" is the scheme's own */
static int port_read(struct broker_operand *o, struct broker_host *h,
                     struct part part, struct problem *p)
{
    const char *wrong = NULL;
    char text[6];

    h->port = o->tls ? PORT_TLS : PORT;
    if (part.size == 0)
        return 0;
    if (part.size < sizeof text) {
        memcpy(text, part.at, part.size);
        text[part.size] = '\0';
        h->port = (unsigned)strtonum(text, 1, 65535, &wrong);
    }
    if (part.size < sizeof text && !wrong)
        return 0;
    /* Not repeated: it may be a password with a slash in it. */
    return problem_set(p, EX_USAGE, EINVAL,
                       "what follows the : of a host is not a number from 1 to "
                       "65535: give a port, and no password, " LIKE);
}

/* host_plain - what a name or an address may have */
static bool host_plain(struct part part, bool bracketed)
{
    for (size_t i = 0; i < part.size; i++) {
        unsigned char c = (unsigned char)part.at[i];

        if (!isalnum(c) && !strchr(bracketed ? ":.%" : "-._", c))
            return false;
    }
    return part.size > 0;
}

/* host_read - NAME, NAME:PORT, [IPV6] or [IPV6]:PORT */
static int host_read(struct broker_operand *o, struct part part,
                     struct problem *p)
{
    struct broker_host *h = &o->hosts[o->host_count];
    bool bracketed = part.size > 0 && part.at[0] == '[';
    const char *at = part.at + bracketed, *end = part.at + part.size;
    struct part name = cut(&at, end, bracketed ? ']' : ':');

    if (bracketed && at < end && *at == ':')
        at++;
    else if (bracketed && at < end)
        return refuse(p, "host", part, "has something behind its ]");
    if (!host_plain(name, bracketed))
        return refuse(p, "host", part,
                      "is not the name or address of a machine");
    if (name.size >= sizeof h->name)
        return refuse(p, "host", part, "is too long");
    memcpy(h->name, name.at, name.size);
    h->name[name.size] = '\0';
    o->host_count++;
    return port_read(o, h, (struct part){at, (size_t)(end - at)}, p);
}

static int hosts_read(struct broker_operand *o, struct part part,
                      struct problem *p)
{
    const char *at = part.at, *end = part.at + part.size;
    int err = 0;

    if (part.size > 0 && end[-1] == ',')
        return refuse(p, "list of hosts", part, "ends in a comma");
    while (at < end && !err) {
        if (o->host_count == BROKER_HOSTS)
            return refuse(p, "list of hosts", part, "has more than 8");
        err = host_read(o, cut(&at, end, ','), p);
    }
    if (!err && o->host_count == 0)
        return refuse(p, "host", part, "is empty: give one");
    return err;
}

/* escape - one name of a folder: no slash, no dot in front, and decodable */
static void escape(FILE *out, const char *text)
{
    for (const char *c = text; *c; c++)
        if (isalnum((unsigned char)*c) || strchr("-_:", *c) ||
            (*c == '.' && c > text) || (unsigned char)*c >= 0x80)
            fputc(*c, out);
        else
            fprintf(out, "%%%02X", (unsigned)(unsigned char)*c);
}

/* folder_name - by the first host, as one broker has many */
static int folder_name(struct broker_operand *o, struct problem *p)
{
    FILE *out = fmemopen(o->folder, sizeof o->folder, "w");
    bool fits;

    if (!out)
        return problem_set(p, EX_OSERR, errno, "out of memory");
    fputs("/amqp/", out);
    escape(out, o->vhost);
    fputc('@', out);
    escape(out, o->hosts[0].name);
    if (o->hosts[0].port != (o->tls ? PORT_TLS : PORT))
        fprintf(out, ":%u", o->hosts[0].port);
    fputc('/', out);
    escape(out, o->queue);
    fflush(out);
    fits = !ferror(out) && ftell(out) < (long)sizeof o->folder;
    fclose(out);
    return fits ? 0
                : problem_set(p, EX_USAGE, ENAMETOOLONG,
                              "the names of the virtual host and the queue are "
                              "too long together");
}

/* rest_read - /VHOST/QUEUE */
static int rest_read(struct broker_operand *o, const char *at, const char *end,
                     struct problem *p)
{
    struct part vhost = cut(&at, end, '/'), queue = {at, (size_t)(end - at)};
    int err;

    if (vhost.size > 0 && memchr(queue.at, '/', queue.size))
        return refuse(p, "queue", queue,
                      "has a slash: write %2F for one that belongs to a name");
    err = decode(o->vhost, sizeof o->vhost, vhost, "virtual host", p);
    if (!err)
        err = decode(o->queue, sizeof o->queue, queue, "queue", p);
    if (!err)
        err = text_ok(o->vhost, "virtual host", p);
    if (!err)
        err = text_ok(o->queue, "queue", p);
    if (!err && strncmp(o->queue, "amq.", 4) == 0)
        return refuse(p, "queue", queue,
                      "begins with amq., which the broker keeps for itself");
    return err;
}

int broker_operand_parse(struct broker_operand *out, const char *text,
                         struct problem *p)
{
    const char *at = text, *end = text + strlen(text), *sign;
    struct part hosts;
    int n, err = 0;

    *out = (struct broker_operand){
        .tls = strncmp(text, SCHEME_TLS, strlen(SCHEME_TLS)) == 0};
    at += strlen(out->tls ? SCHEME_TLS : SCHEME);
    strcpy(out->user, "guest");
    hosts = cut(&at, end, '/');
    /* The last one, as a password may have one; it is not repeated. */
    sign = memrchr(hosts.at, '@', hosts.size);
    if (sign) {
        err = user_read(out, (struct part){hosts.at, (size_t)(sign - hosts.at)},
                        p);
        hosts.size -= (size_t)(sign + 1 - hosts.at);
        hosts.at = sign + 1;
    }
    if (!err)
        err = hosts_read(out, hosts, p);
    if (!err)
        err = rest_read(out, at, end, p);
    if (err)
        return err;
    n = snprintf(out->shown, sizeof out->shown, "%s%s",
                 out->tls ? SCHEME_TLS : SCHEME, hosts.at);
    if (n < 0 || (size_t)n >= sizeof out->shown)
        return problem_set(p, EX_USAGE, ENAMETOOLONG,
                           "the operand has over %d bytes without its user: "
                           "name fewer hosts",
                           QUEUE_NAME_MAX - 1);
    return folder_name(out, p);
}

bool broker_operand_of(char out[QUEUE_NAME_MAX], const char *folder)
{
    static const char root[] = "/amqp/";
    const char *at = folder + strlen(root), *host, *queue;
    struct broker_operand o;
    struct problem p;
    int n;

    if (strncmp(folder, root, strlen(root)) != 0)
        return false;
    queue = strrchr(at, '/');
    host = queue ? memrchr(at, '@', (size_t)(queue - at)) : NULL;
    if (!host)
        return false;
    n = snprintf(out, QUEUE_NAME_MAX, SCHEME "%.*s/%.*s%s",
                 (int)(queue - host - 1), host + 1, (int)(host - at), at,
                 queue);
    return n > 0 && n < QUEUE_NAME_MAX &&
           broker_operand_parse(&o, out, &p) == 0 &&
           strcmp(o.folder, folder) == 0;
}

int broker_only(const char *flag, const char *operand, struct problem *p)
{
    return operand[0]
               ? problem_set(p, EX_USAGE, EINVAL,
                             "%s is for a queue on a broker (amqp://), and %s "
                             "is not one: leave it out",
                             flag, operand)
               : problem_set(p, EX_USAGE, EINVAL,
                             "%s is for a queue on a broker (amqp://): leave "
                             "it out",
                             flag);
}

int broker_access_check(const struct broker_access *a, const char *operand,
                        struct problem *p)
{
    const char *tls = a->tls.ca     ? "--tls-ca"
                      : a->tls.cert ? "--tls-cert"
                      : a->tls.key  ? "--tls-key"
                                    : NULL;
    const char *given = a->password_file ? "--password-file"
                        : tls            ? tls
                        : a->partitions  ? "--partitions"
                                         : NULL;

    if (given && !broker_operand_is(operand))
        return broker_only(given, operand, p);
    if (!a->tls.cert != !a->tls.key)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--tls-cert and --tls-key go together: give both");
    if (!tls || strncmp(operand, "amqps://", 8) == 0)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "%s cannot be used with amqp://, which has no TLS: give "
                       "amqps://, or leave it out",
                       tls);
}

#define CREDENTIAL "/amqp-password"
#define VARIABLE   "AMQP_PASSWORD"

/* loopback - all hosts are this machine: guest may not come from another */
static bool loopback(const struct broker_operand *o)
{
    for (unsigned i = 0; i < o->host_count; i++) {
        const char *name = o->hosts[i].name;

        if (strcmp(name, "localhost") != 0 && strncmp(name, "127.", 4) != 0 &&
            strcmp(name, "::1") != 0)
            return false;
    }
    return true;
}

/* taken - as far as one line of it goes */
static int taken(char out[BROKER_PASSWORD], size_t size, const char *from,
                 struct problem *p)
{
    while (size > 0 && (out[size - 1] == '\n' || out[size - 1] == '\r'))
        size--;
    out[size] = '\0';
    if (size == 0 || strlen(out) != size)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s: %s: write the password into it, on one line",
                           from, size == 0 ? "is empty" : "has a NUL in it");
    return 0;
}

/* file_read - of a file that only its owner reads */
static int file_read(char out[BROKER_PASSWORD], const char *path,
                     struct problem *p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return problem_set(p, EX_NOINPUT, errno,
                           "cannot read the password in %s: %s", path,
                           errno_text(errno));
    n = fstat(fd, &st) < 0 ? -1 : read(fd, out, BROKER_PASSWORD);
    close(fd);
    if (n < 0)
        return problem_set(p, EX_NOINPUT, errno,
                           "cannot read the password in %s: %s", path,
                           errno_text(errno));
    if (st.st_mode & (S_IRWXO | S_IWGRP))
        return problem_set(p, EX_CONFIG, EACCES,
                           "%s has a password and mode %04o: others can read "
                           "or change it; chmod 0600 %s",
                           path, (unsigned)st.st_mode & 07777, path);
    if (n == BROKER_PASSWORD)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s has over %d bytes: a password is one line", path,
                           BROKER_PASSWORD - 1);
    return taken(out, (size_t)n, path, p);
}

/* variable_read - and it is gone: the environment is what handlers get */
static int variable_read(char out[BROKER_PASSWORD], struct problem *p)
{
    char *value = getenv(VARIABLE);
    size_t size = value ? strlen(value) : 0;
    bool fits = size < BROKER_PASSWORD;

    if (!value)
        return -ENOENT;
    if (fits)
        strlcpy(out, value, BROKER_PASSWORD);
    explicit_bzero(value, size); /* /proc/PID/environ shows the same bytes */
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads yet */
    unsetenv(VARIABLE);
    if (!fits)
        return problem_set(p, EX_CONFIG, EINVAL,
                           VARIABLE " has over %d bytes: a password is one "
                                    "line",
                           BROKER_PASSWORD - 1);
    return taken(out, size, VARIABLE, p);
}

int broker_password_find(char out[BROKER_PASSWORD],
                         const struct broker_operand *o, const char *file,
                         struct problem *p)
{
    const char *folder = folder_variable("CREDENTIALS_DIRECTORY");
    char path[PATH_MAX];
    int err;

    /* In any case, so that it is gone. */
    err = variable_read(out, p);
    if (file)
        return file_read(out, file, p);
    if (folder && folder_join(path, folder, CREDENTIAL, "") &&
        access(path, F_OK) == 0)
        return file_read(out, path, p);
    if (err != -ENOENT)
        return err;
    if (strcmp(o->user, "guest") == 0 && loopback(o)) {
        strlcpy(out, "guest", BROKER_PASSWORD);
        return 0;
    }
    return problem_set(p, EX_USAGE, EINVAL,
                       "no password for user %s of %s: give --password-file "
                       "FILE, $CREDENTIALS_DIRECTORY/amqp-password or "
                       "AMQP_PASSWORD",
                       o->user, o->shown);
}
