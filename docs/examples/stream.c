/* stream.c - a long-lived handler that makes one sync serve many messages
 *
 *     cc -o stream stream.c
 *     mqworker --stream --window 32 /numbers -- ./stream
 *
 * Each message is a list of whole numbers. Their sum is added to the file $SUMS
 * as a line "ID SUM". All messages that have arrived are handled, then the file
 * is synced once, then all are answered: the more are open, the less each
 * costs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int sums = -1;
static char synced[1 << 16]; /* ids of sums that wait for the sync, by line */
static size_t synced_size;

/* add - 0, or -1 and why not */
static int add(const char *body, long long *sum, char *why, size_t room)
{
    char *end;

    *sum = 0;
    for (;; body = end) {
        long long n;

        body += strspn(body, " \t\n");
        if (!*body)
            return 0;
        errno = 0;
        n = strtoll(body, &end, 10);
        if (errno || end == body || (*end && !strchr(" \t\n", *end)) ||
            __builtin_add_overflow(*sum, n, sum)) {
            snprintf(why, room, "\"%.20s\" cannot be added", body);
            return -1;
        }
    }
}

/* handle - one message; its answer is written, or waits for the sync */
static void handle(const char *id, const char *body)
{
    const char *file = getenv("SUMS");
    char why[64], line[64];
    long long sum;
    int n;

    if (add(body, &sum, why, sizeof why) < 0) {
        printf("DEAD %s %s\n", id, why); /* no retry can help */
        return;
    }
    if (sums < 0)
        sums = open(file ? file : "sums", O_WRONLY | O_CREAT | O_APPEND, 0600);
    n = snprintf(line, sizeof line, "%s %lld\n", id, sum);
    if (sums < 0 || write(sums, line, (size_t)n) != n)
        printf("RETRY %s delay=200ms %s\n", id, strerror(errno));
    else
        synced_size += (size_t)snprintf(
            synced + synced_size, sizeof synced - synced_size, "%s\n", id);
}

/* answer_all - the sync, and the answers that waited for it */
static int answer_all(void)
{
    int bad = synced_size > 0 && fdatasync(sums) < 0;
    char *id = synced;

    synced[synced_size] = '\0';
    for (char *end; (end = strchr(id, '\n')) != NULL; id = end + 1)
        printf(bad ? "RETRY %.*s\n" : "OK %.*s\n", (int)(end - id), id);
    synced_size = 0;
    return fflush(stdout);
}

/* take - handle the first message in the buffer; its bytes, 0: it is not
 * whole */
static size_t take(char *at, size_t size)
{
    char *head_end = memchr(at, '\n', size), *body;
    char id[32];
    size_t bytes;
    int id_end = 0;

    if (!head_end)
        return 0;
    *head_end = '\0';
    if (sscanf(at, "MSG %31s %n", id, &id_end) != 1 || !id_end)
        exit(1);
    bytes = strtoull(at + id_end, NULL, 10);
    body = head_end + 1;
    if (size - (size_t)(body - at) < bytes + 1) {
        *head_end = '\n';
        return 0;
    }
    body[bytes] = '\0'; /* in place of the newline behind it */
    handle(id, body);
    return (size_t)(body - at) + bytes + 1;
}

int main(void)
{
    size_t room = 1 << 16, used = 0;
    char *buffer = malloc(room);
    ssize_t got;

    while (buffer && (got = read(0, buffer + used, room - used)) > 0) {
        size_t at = 0, n;

        used += (size_t)got;
        while ((n = take(buffer + at, used - at)) > 0) {
            at += n;
            if (sizeof synced - synced_size < 64 && answer_all() != 0)
                return 1;
        }
        if (answer_all() != 0)
            return 1;
        memmove(buffer, buffer + at, used -= at);
        if (used == room) { /* a large message */
            char *grown = realloc(buffer, room *= 2);

            if (!grown)
                return 1;
            buffer = grown;
        }
    }
    free(buffer);
    return 0;
}
