/* keep.c - a handler that saves stdin byte for byte
 *
 * It writes to the first free name of $TEST_DIR/body.0, body.1, ..., and
 * appends a line "N SIZE" to $TEST_DIR/kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Copy stdin to `to`; return the size, or -1. */
static long copy(int to)
{
    char buf[65536];
    long size = 0;
    ssize_t got;
    while ((got = read(0, buf, sizeof buf)) > 0) {
        if (write(to, buf, (size_t)got) != got)
            return -1;
        size += got;
    }
    return got < 0 ? -1 : size;
}

int main(void)
{
    const char *dir = getenv("TEST_DIR");
    char path[4096], line[64];
    int number = -1, fd;
    do {
        number++;
        snprintf(path, sizeof path, "%s/body.%d", dir ? dir : ".", number);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EEXIST);
    long size = fd < 0 ? -1 : copy(fd);
    if (size < 0)
        return 1;
    snprintf(path, sizeof path, "%s/kept", dir ? dir : ".");
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int used = snprintf(line, sizeof line, "%d %ld\n", number, size);
    return fd >= 0 && write(fd, line, (size_t)used) == used ? 0 : 1;
}
