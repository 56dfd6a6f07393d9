/* alive.c - how many handlers of a queue are alive (see alive.h) */
#include "common/base/alive.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/sem.h>

#define TRIES 8 /* while others remove it */

int alive_key(uint64_t nonce)
{
    return (int)((nonce ^ nonce >> 32) & 0x7ffffffe) | 1;
}

/* semadj of semop(2) is kept by execve(2), and no handler can drop it, as one
 * drops a lock by closing descriptors. A child does not inherit it. */
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

/* The last process that changed the count was a handler, at its start or at its
 * end. GETPID is its number in our PID namespace, which is 0 where the
 * namespace does not show it (pid_vnr in ipc/sem.c). */
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
