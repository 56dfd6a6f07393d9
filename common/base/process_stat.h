/* process_stat.h - look processes up
 *
 * WHAT   Reads proc_pid_stat(5), prints what a process used, and counts the
 *        living handlers of a queue, in all PID namespaces.
 * WHO    Any thread.
 * OWNS   The semaphore that counts, from the first handler to alive_remove.
 * FAILS  No such process; without semaphores the count stays 0.
 */
#ifndef COMMON_BASE_PROCESS_STAT_H
#define COMMON_BASE_PROCESS_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process, which may be a zombie, by proc_pid_stat(5). */
struct process_stat {
    char state; /* 'T': stopped by a signal */
    pid_t parent, group;
    uint64_t start; /* clock ticks since boot; with the pid, names a process */
};
/* Look a process up; returns false if there is none. */
bool process_stat(pid_t pid, struct process_stat *out);
/* Return the start of a process; 0 if there is none. */
uint64_t process_start_time(pid_t pid);

/* The resources used by a process and the descendants that it waited for. */
struct usage {
    uint64_t cpu_ns;     /* user and system time of all; 0: not known */
    uint64_t peak_bytes; /* resident memory of the largest; 0: not known */
};
/* Print "cpu 0.012s, 18.4 MiB". Leaves out unknown values; "" for none. */
#define USAGE_TEXT 64
const char *usage_print(const struct usage *usage, char buf[USAGE_TEXT]);

/* ---- living handlers ----
 *
 * A System V semaphore counts the handler processes of a queue. The kernel
 * decrements the count when a process exits for any reason (SEM_UNDO). The
 * semaphore belongs to the IPC namespace, as the queue does, so it is visible
 * to every process that can open the queue, including one in a container that
 * shares the queue but not /proc. Its key comes from the random number that
 * marks the handlers of the queue. alive_enter is called by the new process
 * before its exec, alive_unseen by a starting worker, alive_remove by the
 * process that holds the lock of the state directory.
 */

/* Return the key of the semaphore; never IPC_PRIVATE. */
int alive_key(uint64_t nonce);
/* Count the calling process until it exits, also across execve(2). Makes system
 * calls only, so a vforked child can call it. */
void alive_enter(int key);
/* Return the number of living handlers if this PID namespace does not show
 * them, else 0. */
int alive_unseen(int key);
/* Remove the semaphore if its count is 0. */
void alive_remove(int key);

#endif
