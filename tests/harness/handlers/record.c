/* record.c - a handler that notes each run in $TEST_DIR/runs
 *
 * record [STATUS]: exit with STATUS. Each run appends one line in one write, so
 * that lines never mix: ID ATTEMPT REDELIVERED PRIORITY GROUP BODY, with "-"
 * for an empty field, '?' for control bytes, and at most 200 bytes of the body.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BODY_MAX = 200 };

/* Return the value of a variable; "-" if it is missing or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : "-";
}

/* Read the start of stdin as printable text. */
static void body_read(char body[BODY_MAX + 1])
{
    size_t used = 0;
    ssize_t got;
    while (used < BODY_MAX && (got = read(0, body + used, BODY_MAX - used)) > 0)
        used += (size_t)got;
    body[used] = '\0';
    for (size_t i = 0; i < used; i++) {
        if ((unsigned char)body[i] < ' ')
            body[i] = '?';
    }
}

int main(int argc, char **argv)
{
    char path[4096], body[BODY_MAX + 1], line[1024];
    snprintf(path, sizeof path, "%s/runs", variable("TEST_DIR"));
    body_read(body);
    int size =
        snprintf(line, sizeof line, "%s %s %s %s %s %s\n", variable("MQW_ID"),
                 variable("MQW_ATTEMPT"), variable("MQW_REDELIVERED"),
                 variable("MQW_PRIORITY"), variable("MQW_GROUP"), body);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)size) != size)
        return 1;
    return argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
}
