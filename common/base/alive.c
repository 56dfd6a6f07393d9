/* alive.c - count the living handlers of a queue (see alive.h) */
#include "common/base/alive.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/sem.h>

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
