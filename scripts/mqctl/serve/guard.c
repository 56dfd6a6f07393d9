/* guard.c - see guard.h */
#include "scripts/mqctl/serve/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/file.h"
#include "common/base/problem.h"

#define HEX_SIZE (SERVE_TOKEN - 1)

/* ---- names ---- */

/* Split "name:port". Returns false if the text is not a host; a port of 0 means
 * that none was given. */
static bool host_split(const char *host, char name[256], unsigned *port)
{
    const char *end = *host == '[' ? strchr(host, ']') : NULL;
    size_t size = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    const char *at = host + size;

    *port = 0;
    if (size == 0 || size >= 256 || (*host == '[' && !end))
        return false;
    memcpy(name, host, size);
    name[size] = '\0';
    if (!*at)
        return true;
    if (*at++ != ':' || !*at || strlen(at) > 5)
        return false;
    for (; *at; at++) {
        if (*at < '0' || *at > '9')
            return false;
        *port = *port * 10 + (unsigned)(*at - '0');
    }
    return *port > 0 && *port < 65536;
}

unsigned serve_host_port(const char *host)
{
    char name[256];
    unsigned port;

    return host_split(host, name, &port) ? port : 0;
}

bool serve_host_ours(const struct serve_guard *g, const char *host)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    unsigned port, plain = g->secure ? 443 : 80;
    char name[256];

    if (!host_split(host, name, &port))
        return false;
    for (size_t i = 0; i < g->name_count; i++)
        if (strcasecmp(name, g->names[i]) == 0 ||
            strcasecmp(host, g->names[i]) == 0)
            return true;
    if (g->port && (port ? port : plain) != g->port)
        return false;
    for (size_t i = 0; i < 3; i++)
        if (strcasecmp(name, local[i]) == 0)
            return true;
    return g->own[0] && strcasecmp(name, g->own) == 0;
}

bool serve_site_ours(const char *site, const char *origin, const char *host)
{
    const char *at;

    if (site)
        return strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
    if (!origin)
        return true; /* not a browser: with a write, it sends one of the two */
    at = strstr(origin, "://");
    return at && strcasecmp(at + 3, host) == 0;
}

/* ---- the token ---- */

/* Return true if two texts are equal. Equal beginnings take no longer, so
 * nobody can guess a text character by character. */
static bool text_is_same(const char *a, const char *b, size_t size)
{
    unsigned differs = 0;

    for (size_t i = 0; i < size; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return differs == 0;
}

int serve_group_find(const char *name, gid_t *out, struct problem *p)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the server has one thread */
    const struct group *found = getgrnam(name);
    char *end;
    unsigned long n = found ? found->gr_gid : strtoul(name, &end, 10);

    *out = (gid_t)n;
    if (found)
        return 0;
    return *name >= '0' && *name <= '9' && !*end && n < SERVE_NOBODY
               ? 0
               : problem_set(p, EX_USAGE, ENOENT,
                             "--group: there is no group \"%.64s\"; make it "
                             "with groupadd, or give another",
                             name);
}

#define NEW_MARK ".new-"
#define NEW_TAIL "XXXXXX" /* mkostemp(3) */

/* Remove the temporary files that killed servers left beside the token file:
 * our own files with a name that mkostemp made, no larger than a token. If
 * another server is starting, this may remove its file; it then makes a new
 * one. */
static void leftovers_remove(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t size = strlen(name), mark = strlen(NEW_MARK);
    char folder[PATH_MAX];
    struct dirent *entry;
    struct stat st;
    DIR *dir = NULL;

    if (snprintf(folder, sizeof folder, "%s", path) < PATH_MAX &&
        file_parent(folder))
        dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        const char *at = entry->d_name;

        if (strncmp(at, name, size) == 0 &&
            strncmp(at + size, NEW_MARK, mark) == 0 &&
            strlen(at + size + mark) == strlen(NEW_TAIL) &&
            fstatat(dirfd(dir), at, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            st.st_size <= SERVE_TOKEN)
            (void)unlinkat(dirfd(dir), at, 0);
    }
    if (dir)
        closedir(dir);
}

/* Make a token file. -EEXIST: another server has made it; -EAGAIN: another
 * server has removed the temporary file. The file gets its name after its owner
 * and mode are set. Crash before link: a file of another name is left, whose
 * token nobody uses. Crash after link: that name is left beside the token's
 * own. The next start removes it. */
static int token_make(const char *path, gid_t readers)
{
    uint8_t bytes[HEX_SIZE / 2];
    char text[SERVE_TOKEN + 1], temp[PATH_MAX];
    int fd, err;

    if (snprintf(temp, sizeof temp, "%s" NEW_MARK NEW_TAIL, path) >= PATH_MAX)
        return -ENAMETOOLONG;
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* The hash of random bytes is as random, and is printed as hex digits. */
    arc4random_buf(bytes, sizeof bytes);
    SHA256Data(bytes, sizeof bytes, text);
    memcpy(text + HEX_SIZE, "\n", 2);
    err = file_write(fd, text, SERVE_TOKEN, 0);
    if (!err && readers != SERVE_NOBODY &&
        (fchown(fd, (uid_t)-1, readers) < 0 || fchmod(fd, 0640) < 0))
        err = -errno;
    if (!err && fsync(fd) < 0)
        err = -errno;
    close(fd);
    if (!err && link(temp, path) < 0)
        err = errno == ENOENT ? -EAGAIN : -errno;
    unlink(temp);
    return err;
}

/* Read the token file, if nobody but the right users can read it. A private
 * file is not opened to the group, because a server with --allow-write may use
 * it. */
static int token_file_read(struct serve_guard *g, const char *path,
                           gid_t readers, struct problem *p)
{
    /* Without O_NONBLOCK, opening a FIFO would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool private = readers == SERVE_NOBODY;
    struct stat st;
    ssize_t n;

    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0) {
        n = problem_set(p, errno == EACCES ? EX_NOPERM : EX_CANTCREAT, errno,
                        "token file %s: %s; run as its owner, or give another "
                        "--token-file",
                        path, errno_text(errno));
        if (fd >= 0)
            close(fd);
        return (int)n;
    }
    n = S_ISREG(st.st_mode) ? read(fd, g->token, HEX_SIZE) : 0;
    close(fd);
    if (!S_ISREG(st.st_mode))
        return problem_set(p, EX_CANTCREAT, EINVAL,
                           "token file %s is not a regular file; give another "
                           "--token-file",
                           path);
    if ((st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0) ||
        (st.st_mode & 077) != (private ? 0 : 040) ||
        (!private && st.st_gid != readers))
        return private
                   ? problem_set(p, EX_CANTCREAT, EPERM,
                                 "token file %s is owned by another user, or "
                                 "others can read it; chmod 600 and chown it, "
                                 "or remove it, and a new one is made",
                                 path)
                   : problem_set(p, EX_CANTCREAT, EPERM,
                                 "token file %s was not made for that --group "
                                 "alone: it has mode %04o and group %u, not "
                                 "mode 0640 and group %u; `rm %s` and start "
                                 "again (a new token is made, and everybody "
                                 "has to sign in again), or give another "
                                 "--token-file",
                                 path, (unsigned)st.st_mode & 07777,
                                 (unsigned)st.st_gid, (unsigned)readers, path);
    g->token[HEX_SIZE] = '\0';
    if (n == HEX_SIZE && strspn(g->token, "0123456789abcdef") == HEX_SIZE)
        return 0;
    return problem_set(p, EX_CANTCREAT, EINVAL,
                       "token file %s does not hold 64 hex digits; remove it, "
                       "and a new one is made",
                       path);
}

int serve_token_load(struct serve_guard *g, const char *path, gid_t readers,
                     struct problem *p)
{
    int err;

    leftovers_remove(path);
    err = token_file_read(g, path, readers, p);
    if (err != -ENOENT)
        return err;
    /* Each other start removes the new file at most once. */
    do
        err = token_make(path, readers);
    while (err == -EAGAIN);
    if (err && err != -EEXIST)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot make token file %s: %s; give a "
                           "--token-file in a writable folder%s",
                           path, errno_text(-err),
                           err == -EPERM && readers != SERVE_NOBODY
                               ? ", and run as a member of the --group"
                               : "");
    err = token_file_read(g, path, readers, p);
    return err != -ENOENT
               ? err
               : problem_set(p, EX_CANTCREAT, ENOENT,
                             "token file %s was removed just now; start again",
                             path);
}

bool serve_token_right(const struct serve_guard *g, const char *text)
{
    return strlen(text) == HEX_SIZE && text_is_same(text, g->token, HEX_SIZE);
}

/* ---- the cookie: a time, and a sum that only this server can make ---- */

/* Compute SHA-256 over the token and an inner sum of the token, the purpose
 * `what` and a time. The inner sum stays secret, so an attacker cannot append
 * to what it covers. */
static void sum_make(const struct serve_guard *g, const char *what,
                     const char *until, char out[SERVE_TOKEN])
{
    uint8_t sum[SHA256_DIGEST_LENGTH];
    SHA2_CTX c;

    SHA256Init(&c);
    SHA256Update(&c, (const uint8_t *)g->token, HEX_SIZE);
    SHA256Update(&c, (const uint8_t *)what, strlen(what));
    SHA256Update(&c, (const uint8_t *)until, 16);
    SHA256Final(sum, &c);
    SHA256Init(&c);
    SHA256Update(&c, (const uint8_t *)g->token, HEX_SIZE);
    SHA256Update(&c, sum, sizeof sum);
    SHA256End(&c, out);
}

void serve_cookie_make(const struct serve_guard *g, uint64_t until_s,
                       char out[SERVE_COOKIE])
{
    snprintf(out, SERVE_COOKIE, "%016" PRIx64 "-", until_s);
    sum_make(g, "cookie", out, out + 17);
}

void serve_key_make(const struct serve_guard *g, const char *cookie,
                    char out[SERVE_TOKEN])
{
    sum_make(g, "key", cookie, out);
}

bool serve_key_right(const struct serve_guard *g, const char *cookie,
                     const char *key)
{
    char sum[SERVE_TOKEN];

    if (strlen(key) != HEX_SIZE)
        return false;
    serve_key_make(g, cookie, sum);
    return text_is_same(key, sum, HEX_SIZE);
}

bool serve_cookie_right(const struct serve_guard *g, const char *text,
                        uint64_t now_s)
{
    char sum[SERVE_TOKEN];

    if (strlen(text) != SERVE_COOKIE - 1 || text[16] != '-' ||
        strspn(text, "0123456789abcdef") != 16)
        return false;
    sum_make(g, "cookie", text, sum);
    return text_is_same(text + 17, sum, HEX_SIZE) &&
           strtoull(text, NULL, 16) > now_s;
}
