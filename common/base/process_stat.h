/* process_stat.h - look a process up
 *
 * WHAT   What proc_pid_stat(5) tells of a process.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  By saying so: there is no such process.
 */
#ifndef COMMON_BASE_PROCESS_STAT_H
#define COMMON_BASE_PROCESS_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What proc_pid_stat(5) tells of a process, a zombie too. */
struct process_stat {
    char state; /* 'T': stopped by a signal */
    pid_t parent, group;
    uint64_t start; /* clock ticks since boot; with the pid, names a process */
};
/* False if there is no such process. */
bool process_stat(pid_t pid, struct process_stat *out);
/* Its start; 0 if there is no such process. */
uint64_t process_start_time(pid_t pid);

#endif
