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
#define SAFE       100 /* bytes of a part that an error quotes */
/* An example for messages; %% because it is part of a format. */
#define LIKE "like amqp://orders@mq1,mq2/%%2F/orders"

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

/* Refuse a part. The message quotes it, so it must not be a secret. */
static int part_refuse(struct problem *p, const char *name, struct part part,
                       const char *what)
{
    char safe[SAFE];

    safe_text_copy(safe, sizeof safe, part.at, part.size);
    return problem_set(p, EX_USAGE, EINVAL, "%s \"%s\" %s, " LIKE, name, safe,
                       what);
}

/* Return the text from *from up to the next `separator`, or up to `end` if
 * there is none, and move *from past it. */
static struct part part_cut(const char **from, const char *end, char separator)
{
    const char *found = memchr(*from, separator, (size_t)(end - *from));
    struct part part = {*from, (size_t)((found ? found : end) - *from)};

    *from = found ? found + 1 : end;
    return part;
}

/* Decode a part with its %XX to a text of `room` bytes, which must be safe to
 * print. */
static int part_decode(char *out, size_t room, struct part part,
                       const char *name, struct problem *p)
{
    size_t n = 0, used;
    uint32_t point;

    if (part.size == 0)
        return part_refuse(p, name, part, "is empty: give one");
    for (size_t i = 0; i < part.size; i++) {
        char c = part.at[i], digits[3] = "";

        if (c == '%') {
            if (part.size - i > 2)
                memcpy(digits, part.at + i + 1, 2);
            if (!isxdigit((unsigned char)digits[0]) ||
                !isxdigit((unsigned char)digits[1]))
                return part_refuse(p, name, part,
                                   "has a % without two hex digits after it; "
                                   "%25 is a percent sign");
            c = (char)strtoul(digits, NULL, 16);
            i += 2;
        }
        if ((unsigned char)c < 0x20 || c == 0x7f)
            return part_refuse(p, name, part,
                               "has a control character, which is not allowed");
        if (n + 1 >= room)
            return part_refuse(p, name, part, "is too long");
        out[n++] = c;
    }
    out[n] = '\0';
    for (size_t i = 0; i < n; i += used) {
        used = utf8_read(out + i, n - i, &point);
        if (used == 0 || utf8_hidden(point))
            return part_refuse(p, name, (struct part){out, n},
                               "is not printable UTF-8, which is required");
    }
    return 0;
}

/* Read NAME, NAME:PORT, [IPV6] or [IPV6]:PORT. Without a port, use the default
 * port of the scheme. */
static int host_read(struct broker_operand *o, struct part part,
                     struct problem *p)
{
    struct broker_host *h = &o->hosts[o->host_count];
    bool bracketed = part.size > 0 && part.at[0] == '[';
    const char *at = part.at + bracketed, *end = part.at + part.size;
    struct part name = part_cut(&at, end, bracketed ? ']' : ':');
    bool plain = name.size > 0;
    const char *wrong = NULL;
    char port[6] = "";
    size_t digits;

    if (bracketed && at < end && *at == ':')
        at++;
    else if (bracketed && at < end)
        return part_refuse(p, "host", part, "has text after its ]");
    for (size_t i = 0; i < name.size && plain; i++)
        plain = isalnum((unsigned char)name.at[i]) ||
                (name.at[i] && strchr(bracketed ? ":.%" : "-._", name.at[i]));
    if (!plain)
        return part_refuse(p, "host", part,
                           "is not the name or address of a machine");
    if (name.size >= sizeof h->name)
        return part_refuse(p, "host", part, "is too long");
    memcpy(h->name, name.at, name.size);
    h->name[name.size] = '\0';
    o->host_count++;
    h->port = o->tls ? PORT_TLS : PORT;
    digits = (size_t)(end - at);
    if (digits == 0)
        return 0;
    if (digits < sizeof port) {
        memcpy(port, at, digits);
        h->port = (unsigned)strtonum(port, 1, 65535, &wrong);
    }
    if (digits < sizeof port && !wrong)
        return 0;
    /* Do not quote the text: it may be a password with a slash in it. */
    return problem_set(p, EX_USAGE, EINVAL,
                       "the port of a host is not a number from 1 to 65535; "
                       "if it is a password, leave it out, " LIKE);
}

/* Print a text as one name of a path, escaped so that it has no slash and does
 * not begin with a dot. Different texts give different names. */
static void name_escape(FILE *out, const char *text)
{
    for (const char *c = text; *c; c++)
        if (isalnum((unsigned char)*c) || strchr("-_:", *c) ||
            (*c == '.' && c > text) || (unsigned char)*c >= 0x80)
            fputc(*c, out);
        else
            fprintf(out, "%%%02X", (unsigned)(unsigned char)*c);
}

/* Make the folder's name, with only the first host: the others are nodes of the
 * same broker. */
static int folder_fill(struct broker_operand *o, struct problem *p)
{
    FILE *out = fmemopen(o->folder, sizeof o->folder, "w");
    bool fits;

    if (!out)
        return problem_set(p, EX_OSERR, errno, "out of memory");
    fputs("/amqp/", out);
    name_escape(out, o->vhost);
    fputc('@', out);
    name_escape(out, o->hosts[0].name);
    if (o->hosts[0].port != (o->tls ? PORT_TLS : PORT))
        fprintf(out, ":%u", o->hosts[0].port);
    fputc('/', out);
    name_escape(out, o->queue);
    fflush(out);
    fits = !ferror(out) && ftell(out) < (long)sizeof o->folder;
    fclose(out);
    return fits ? 0
                : problem_set(p, EX_USAGE, ENAMETOOLONG,
                              "the names of the virtual host and the queue are "
                              "too long together");
}

/* Read VHOST/QUEUE. */
static int queue_read(struct broker_operand *o, const char *at, const char *end,
                      struct problem *p)
{
    struct part vhost = part_cut(&at, end, '/'),
                queue = {at, (size_t)(end - at)};
    int err;

    if (vhost.size > 0 && memchr(queue.at, '/', queue.size))
        return part_refuse(p, "queue", queue,
                           "has a slash: write a slash inside a name as %2F");
    err = part_decode(o->vhost, sizeof o->vhost, vhost, "virtual host", p);
    if (!err)
        err = part_decode(o->queue, sizeof o->queue, queue, "queue", p);
    if (!err && strncmp(o->queue, "amq.", 4) == 0)
        return part_refuse(
            p, "queue", queue,
            "begins with amq., which the broker keeps for itself");
    return err;
}

int broker_operand_parse(struct broker_operand *out, const char *text,
                         struct problem *p)
{
    const char *at = text, *end = text + strlen(text), *sign, *host;
    struct part hosts, user;
    int n, err = 0;

    *out = (struct broker_operand){
        .tls = strncmp(text, SCHEME_TLS, strlen(SCHEME_TLS)) == 0};
    at += strlen(out->tls ? SCHEME_TLS : SCHEME);
    strcpy(out->user, "guest");
    hosts = part_cut(&at, end, '/');
    /* Look for the last @, because a password may have one. */
    sign = memrchr(hosts.at, '@', hosts.size);
    if (sign) {
        user = (struct part){hosts.at, (size_t)(sign - hosts.at)};
        if (memchr(user.at, ':', user.size)) /* it would be in ps(1) */
            return problem_set(p, EX_USAGE, EINVAL,
                               "a password in the operand can be read by "
                               "everybody on this machine: leave it out; give "
                               "it by --password-file FILE, "
                               "$CREDENTIALS_DIRECTORY/amqp-password or "
                               "AMQP_PASSWORD");
        err = part_decode(out->user, sizeof out->user, user, "user", p);
        hosts.size -= (size_t)(sign + 1 - hosts.at);
        hosts.at = sign + 1;
    }
    if (!err && hosts.size == 0)
        return part_refuse(p, "host", hosts, "is empty: give one");
    if (!err && hosts.at[hosts.size - 1] == ',')
        return part_refuse(p, "list of hosts", hosts, "ends in a comma");
    for (host = hosts.at; host < hosts.at + hosts.size && !err;) {
        if (out->host_count == BROKER_HOSTS)
            return part_refuse(p, "list of hosts", hosts, "has more than 8");
        err = host_read(out, part_cut(&host, hosts.at + hosts.size, ','), p);
    }
    if (!err)
        err = queue_read(out, at, end, p);
    if (err)
        return err;
    n = snprintf(out->shown, sizeof out->shown, "%s%s",
                 out->tls ? SCHEME_TLS : SCHEME, hosts.at);
    if (n < 0 || (size_t)n >= sizeof out->shown)
        return problem_set(p, EX_USAGE, ENAMETOOLONG,
                           "the operand has over %d bytes without its user: "
                           "name fewer hosts",
                           QUEUE_NAME_MAX - 1);
    return folder_fill(out, p);
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

/* Cut off newlines at the end, and refuse an empty password or one with a
 * NUL. */
static int password_check(char out[BROKER_PASSWORD], size_t size,
                          const char *from, struct problem *p)
{
    while (size > 0 && (out[size - 1] == '\n' || out[size - 1] == '\r'))
        size--;
    out[size] = '\0';
    if (size == 0 || strlen(out) != size)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s %s: write the password into it, on one line",
                           from, size == 0 ? "is empty" : "has a NUL in it");
    return 0;
}

/* Read the password from a file, unless others can read it or the group can
 * change it. */
static int password_read(char out[BROKER_PASSWORD], const char *path,
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
    return password_check(out, (size_t)n, path, p);
}

/* Take the password out of the environment, because handlers inherit that. */
static int variable_take(char out[BROKER_PASSWORD], struct problem *p)
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
    return password_check(out, size, VARIABLE, p);
}

int broker_password_find(char out[BROKER_PASSWORD],
                         const struct broker_operand *o, const char *file,
                         struct problem *p)
{
    const char *folder = folder_variable("CREDENTIALS_DIRECTORY");
    bool guest = strcmp(o->user, "guest") == 0;
    char path[PATH_MAX];
    int err;

    /* Remove the variable even if the password comes from a file. */
    err = variable_take(out, p);
    if (file)
        return password_read(out, file, p);
    if (folder && folder_join(path, folder, CREDENTIAL, "") &&
        access(path, F_OK) == 0)
        return password_read(out, path, p);
    if (err != -ENOENT)
        return err;
    /* Use the password of guest only on this machine, because a broker refuses
     * guest from any other. */
    for (unsigned i = 0; i < o->host_count; i++)
        guest = guest && (strcmp(o->hosts[i].name, "localhost") == 0 ||
                          strncmp(o->hosts[i].name, "127.", 4) == 0 ||
                          strcmp(o->hosts[i].name, "::1") == 0);
    if (guest) {
        strlcpy(out, "guest", BROKER_PASSWORD);
        return 0;
    }
    return problem_set(p, EX_USAGE, EINVAL,
                       "no password for user %s of %s: give --password-file "
                       "FILE, $CREDENTIALS_DIRECTORY/amqp-password or "
                       "AMQP_PASSWORD",
                       o->user, o->shown);
}
