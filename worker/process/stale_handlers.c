/* stale_handlers.c - handlers that outlived their worker (see stale_handlers.h)
 *  */
#include "worker/process/stale_handlers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/log.h"
#include "worker/process/process_scan.h"
#include "worker/process/process.h"

#define WARN_MS 1000 /* a process that does not go is named each second */

/* environ_readable - ours is read by the rule that goes for others of our
 * user, too (proc(5), hidepid and ptrace access mode) */
static bool environ_readable(void)
{
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    char byte;
    bool ok = fd >= 0 && read(fd, &byte, 1) >= 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* leftover_blind - judged by ourselves: a process that is there for sure
 * In another container or chroot an empty folder is an ordinary /proc to
 * opendir(3), and nothing in it looks like nobody there. The procfs of another
 * PID namespace knows us by another number or not at all, as it does handlers.
 */
const char *leftover_blind(void)
{
    char self[32] = "";
    struct statfs fs;
    struct process_stat stat;

    if (statfs("/proc", &fs) < 0)
        return strerror(errno);
    if (fs.f_type != PROC_SUPER_MAGIC)
        return "no procfs is mounted there";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 ||
        strtol(self, NULL, 10) != getpid() || !process_stat(getpid(), &stat))
        return "it is of another PID namespace and does not show this process";
    if (!environ_readable())
        return "it does not let us read /proc/self/environ";
    return NULL;
}

/* wait_gone - until the process has ended; says so when that takes long */
static void wait_gone(int pidfd, pid_t pid)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    while (poll(&p, 1, WARN_MS) <= 0)
        log_warn("leftover_stays", F_INT("pid", pid),
                 F_STR("next", "its message waits until it has ended; see "
                               "what it waits for in /proc/PID/stack"));
}

/* kill_group - a process group whose leader is the one we knew: it keeps its
 * number from anybody else. The leader is gone on return; the others of it
 * carry the mark and are waited for one by one.
 */
static bool kill_group(const struct stale_handler *l)
{
    int fd = l->pgid > 1 && l->start != 0 ? pidfd_open(l->pgid, 0) : -1;
    bool same = fd >= 0 && process_start_time(l->pgid) == l->start;

    if (same) {
        kill(-l->pgid, SIGKILL);
        wait_gone(fd, l->pgid);
    }
    if (fd >= 0)
        close(fd);
    return same;
}

/* is_known - a long-lived child is named by each message that it had */
static bool is_known(const struct stale_handler *list, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (list[k].pgid == list[i].pgid && list[k].start == list[i].start)
            return true;
    return false;
}

/* stale_handlers_kill - groups first, then all that carries a mark */
int stale_handlers_kill(uint64_t nonce, const struct stale_handler *list,
                        size_t n)
{
    struct process_scan_delivery *of = reallocarray(NULL, n + 1, sizeof *of);
    struct process_scan_choice choice = {.nonce = nonce, .of = of, .count = n};
    struct process_scan *m = NULL;
    int groups = 0, killed = 0, err = of ? process_scan_open(&m) : -ENOMEM;

    for (size_t i = 0; i < n && !err; i++) {
        of[i] = (struct process_scan_delivery){.seq = list[i].mark};
        if (!is_known(list, i))
            groups += kill_group(&list[i]);
    }
    if (!err && n > 0)
        killed = process_scan_end(m, &choice);
    process_scan_close(&m);
    free(of);
    return err ? err : killed < 0 ? killed : groups + killed;
}
