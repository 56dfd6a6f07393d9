/* process_stat.c - look a process up (see process_stat.h) */
#include "common/base/process_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"

/* Read fields 3, 4, 5 and 22. The name in field 2 may hold any byte. */
bool process_stat(pid_t pid, struct process_stat *out)
{
    char path[32], text[512], *at;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    at = strrchr(text, ')');
    if (!at || strlen(at) < 4)
        return false;
    out->state = at[2];
    out->parent = (pid_t)strtol(at + 4, &at, 10); /* after ") S " */
    out->group = (pid_t)strtol(at, &at, 10);
    for (int field = 6; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    out->start = at ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
}

uint64_t process_start_time(pid_t pid)
{
    struct process_stat st;

    return process_stat(pid, &st) ? st.start : 0;
}

const char *usage_print(const struct usage *usage, char buf[USAGE_TEXT])
{
    double cpu_s = (double)usage->cpu_ns / (double)NS_PER_S;
    double peak = (double)usage->peak_bytes / (1 << 20);

    buf[0] = '\0';
    if (usage->cpu_ns)
        text_append(buf, USAGE_TEXT, "cpu %.3fs", cpu_s);
    if (usage->peak_bytes)
        text_append(buf, USAGE_TEXT, "%s%.1f MiB", *buf ? ", " : "", peak);
    return buf;
}

/* ---- living handlers ---- */

#define TRIES 8 /* attempts while other processes remove the semaphore */

int alive_key(uint64_t nonce)
{
    return (int)((nonce ^ nonce >> 32) & 0x7ffffffe) | 1;
}

/* execve(2) keeps the semadj value of semop(2), and a child does not inherit
 * the value. A handler can lose a lock by closing descriptors, but cannot lose
 * semadj. */
void alive_enter(int key)
{
    struct sembuf one = {.sem_op = 1, .sem_flg = SEM_UNDO};
    bool removed = true;

    for (int i = 0; removed && i < TRIES; i++) {
        int id = semget(key, 1, IPC_CREAT | 0600);

        removed = id >= 0 && semop(id, &one, 1) < 0 &&
                  (errno == EIDRM || errno == EINVAL);
    }
}

/* The last process to change the count was a handler that started or exited.
 * GETPID returns that handler's pid in our PID namespace, or 0 if the handler
 * is not visible there (pid_vnr in ipc/sem.c). */
int alive_unseen(int key)
{
    int id = semget(key, 1, 0);
    int count = id < 0 ? 0 : semctl(id, 0, GETVAL);

    return count > 0 && semctl(id, 0, GETPID) == 0 ? count : 0;
}

void alive_remove(int key)
{
    int id = semget(key, 1, 0);

    if (id >= 0 && semctl(id, 0, GETVAL) == 0)
        (void)semctl(id, 0, IPC_RMID);
}
