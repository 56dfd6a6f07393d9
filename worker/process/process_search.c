/* process_search.c - the processes of deliveries (see process_search.h)
 *
 * A search is one walk over all of /proc. The kernel's lists of children would
 * be shorter, but are exact only for processes that are stopped
 * (proc_pid_task(5)), and are not there in every kernel.
 */
#include "worker/process/process_search.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/process/environment.h"
#include "worker/process/process.h"

#define STEPS_MAX  256  /* of a chain of parents; more is a torn snapshot */
#define WARN_MS    1000 /* a process that does not go is named each second */
#define EVENTS     32
#define EXEC_LOOKS 1000 /* at a process in execve(2), 1 ms apart */

/* One process of the walk. */
struct seen {
    pid_t pid;
    struct process_stat stat;
    bool chosen;
};

/* One that was found; fd < 0: it has ended. */
struct found {
    pid_t pid;
    int fd;
};

struct process_search {
    int epoll; /* all pidfds */
    struct seen *seen;
    size_t seen_count, seen_room;
    struct found *found;
    size_t found_count, found_room, living;
    char *env; /* one environment, read whole */
    size_t env_room;
};

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

/* process_search_blind - judged by ourselves: a process that is there for sure
 * In another container or chroot an empty folder is an ordinary /proc to
 * opendir(3), and nothing in it looks like nobody there. The procfs of another
 * PID namespace knows us by another number or not at all, as it does handlers.
 */
const char *process_search_blind(void)
{
    char self[32] = "";
    struct statfs fs;
    struct process_stat stat;

    if (statfs("/proc", &fs) < 0)
        return errno_text(errno);
    if (fs.f_type != PROC_SUPER_MAGIC)
        return "no procfs is mounted there";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 ||
        strtol(self, NULL, 10) != getpid() || !process_stat(getpid(), &stat))
        return "it is of another PID namespace and does not show this process";
    if (!environ_readable())
        return "it does not let us read /proc/self/environ";
    return NULL;
}

int process_search_open(struct process_search **out)
{
    struct process_search *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return -ENOMEM;
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (m->epoll < 0) {
        int err = -errno;

        free(m);
        return err;
    }
    *out = m;
    return 0;
}

/* let_go - out of the epoll set by hand: a child that another thread starts now
 * has the descriptor, too, until its execve, and closing ours would leave the
 * entry there, which tells of its end again and again */
static void let_go(struct process_search *m, struct found *f)
{
    (void)epoll_ctl(m->epoll, EPOLL_CTL_DEL, f->fd, NULL);
    close(f->fd);
    f->fd = -1;
}

/* forget - what the last search found */
static void forget(struct process_search *m)
{
    for (size_t i = 0; i < m->found_count; i++)
        if (m->found[i].fd >= 0)
            let_go(m, &m->found[i]);
    m->found_count = m->seen_count = m->living = 0;
}

void process_search_close(struct process_search **marked)
{
    struct process_search *m = *marked;

    if (!m)
        return;
    *marked = NULL;
    forget(m);
    close(m->epoll);
    free(m->seen);
    free(m->found);
    free(m->env);
    free(m);
}

/* env_read - its environment to m->env; its size, 0: gone, not ours to read */
static size_t env_read(struct process_search *m, pid_t pid)
{
    char path[32];
    size_t size = 0;
    ssize_t n = 0;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    do {
        size_t room = m->env_room ? m->env_room * 2 : 16384;

        size += (size_t)n;
        if (m->env_room - size < 4096) {
            char *more = realloc(m->env, room);

            if (!more)
                break;
            m->env = more;
            m->env_room = room;
        }
        n = read(fd, m->env + size, m->env_room - size - 1);
    } while (n > 0);
    close(fd);
    if (size > 0)
        m->env[size] = '\0';
    return size;
}

/* see - note one process */
static int see(struct process_search *m, pid_t pid)
{
    struct seen s = {.pid = pid}, *seen;

    if (pid == getpid() || !process_stat(pid, &s.stat))
        return 0;
    seen = array_grow(m->seen, m->seen_count, &m->seen_room, sizeof s);
    if (!seen)
        return -ENOMEM;
    m->seen = seen;
    m->seen[m->seen_count++] = s;
    return 0;
}

/* walk - see all processes but ourselves */
static int walk(struct process_search *m)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int err = 0;

    if (!proc)
        return -errno;
    while (!err && (entry = readdir(proc)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            err = see(m, (pid_t)strtol(entry->d_name, NULL, 10));
    closedir(proc);
    return err;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct seen *)a)->pid, y = ((const struct seen *)b)->pid;

    return (x > y) - (x < y);
}

static struct seen *seen_find(const struct process_search *m, pid_t pid)
{
    struct seen key = {.pid = pid};

    return bsearch(&key, m->seen, m->seen_count, sizeof key, by_pid);
}

/* is_ours - whether we are among its parents */
static bool is_ours(const struct process_search *m, const struct seen *s)
{
    for (int i = 0; s && i < STEPS_MAX; i++) {
        if (s->stat.parent == getpid())
            return true;
        s = seen_find(m, s->stat.parent);
    }
    return false;
}

/* has_chosen - whether one of its parents was chosen */
static bool has_chosen(const struct process_search *m, const struct seen *s)
{
    for (int i = 0; s && i < STEPS_MAX; i++) {
        s = seen_find(m, s->stat.parent);
        if (s && s->chosen)
            return true;
    }
    return false;
}

/* is_leader - of one of the groups; those who started it wait for it */
static bool is_leader(const struct process_search_choice *c, pid_t pid)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].group == pid)
            return true;
    return false;
}

/* bare - whether it shows no arguments; *gone: it has ended, or is the
 * kernel's own */
static bool bare(pid_t pid, bool *gone)
{
    char path[32], byte;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    *gone = readlink(path, &byte, 1) < 0;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    fd = *gone ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, &byte, 1);
    if (fd >= 0)
        close(fd);
    return n == 0;
}

/* env_settled - env_read, once it is out of execve(2)
 * There it has its new memory first, and arguments and environment in it later.
 * By then it has let go of our lock, which it had from the dead worker, so that
 * it must be waited for here. Not for ever: some have no environment at all.
 */
static size_t env_settled(struct process_search *m, pid_t pid)
{
    size_t size = env_read(m, pid);
    int looks = EXEC_LOOKS;
    bool gone = false;

    while (size == 0 && looks > 0) {
        looks -= bare(pid, &gone) ? 1 : EXEC_LOOKS / 4;
        if (gone)
            break;
        poll(NULL, 0, 1);
        size = env_read(m, pid);
    }
    return size;
}

/* is_meant - by its group or its mark */
static bool is_meant(struct process_search *m,
                     const struct process_search_choice *c,
                     const struct seen *s)
{
    uint64_t seq;
    size_t size;

    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].group && c->of[i].group == s->stat.group)
            return true;
    if (c->groups_only || (c->ours && !is_ours(m, s)))
        return false;
    size = env_settled(m, s->pid);
    if (size == 0 || !environment_marked(m->env, size, c->nonce, &seq))
        return false;
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].seq == seq)
            return true;
    return false;
}

/* drop - no longer of interest */
static void drop(struct process_search *m, struct found *f)
{
    let_go(m, f);
    m->living--;
}

/* over - one that was found has ended; take its status if it is our child */
static void over(struct process_search *m, struct found *f)
{
    siginfo_t info;

    (void)waitid(P_PIDFD, (id_t)f->fd, &info, WEXITED | WNOHANG);
    drop(m, f);
}

/* errno_or_gone - a process that is gone is no error, nor is one whose number a
 * thread has by now (ENOENT, or EINVAL before 6.9) */
static int errno_or_gone(void)
{
    return errno == ESRCH || errno == EINVAL || errno == ENOENT ? 0 : -errno;
}

/* hold - a descriptor for it, if it is still the one that was looked at */
static int hold(struct process_search *m, const struct seen *s)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct pollfd ended = {.events = POLLIN};
    struct found *f =
        array_grow(m->found, m->found_count, &m->found_room, sizeof *f);
    int fd = pidfd_open(s->pid, 0);

    if (f)
        m->found = f;
    if (fd < 0)
        return errno_or_gone();
    if (!f) {
        close(fd);
        return -ENOMEM;
    }
    if (process_start_time(s->pid) != s->stat.start) {
        close(fd);
        return 0;
    }
    f = &m->found[m->found_count];
    *f = (struct found){.pid = s->pid, .fd = fd};
    ev.data.u64 = m->found_count++;
    m->living++;
    ended.fd = fd;
    if (poll(&ended, 1, 0) > 0)
        over(m, f);
    else if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return -errno;
    return 0;
}

/* process_search_find - look, choose, choose what those started, hold */
int process_search_find(struct process_search *m,
                        const struct process_search_choice *c)
{
    int err;

    forget(m);
    err = walk(m);
    if (err || m->seen_count == 0) /* /proc may show no process at all */
        return err;
    qsort(m->seen, m->seen_count, sizeof *m->seen, by_pid);
    for (size_t i = 0; i < m->seen_count; i++)
        m->seen[i].chosen = is_meant(m, c, &m->seen[i]);
    for (size_t i = 0; i < m->seen_count && !err; i++) {
        struct seen *s = &m->seen[i];

        if (is_leader(c, s->pid))
            continue;
        if (s->chosen || (!c->groups_only && has_chosen(m, s)))
            err = hold(m, s);
    }
    return err ? err : (int)m->living;
}

/* process_search_living - see who has ended */
size_t process_search_living(struct process_search *m)
{
    struct epoll_event events[EVENTS];
    int n = EVENTS;

    while (n == EVENTS) {
        n = epoll_wait(m->epoll, events, EVENTS, 0);
        for (int i = 0; i < n; i++)
            over(m, &m->found[events[i].data.u64]);
    }
    return m->living;
}

int process_search_fd(const struct process_search *m)
{
    return m->epoll;
}

/* warn_living - a process that stays is stuck in the kernel */
static void warn_living(const struct process_search *m)
{
    for (size_t i = 0; i < m->found_count; i++)
        if (m->found[i].fd >= 0)
            log_warn("process_stays", F_INT("pid", m->found[i].pid),
                     F_STR("next", "it was killed and has not ended; its "
                                   "message waits for it; see what it waits "
                                   "for in /proc/PID/stack"));
}

/* kill_found - on return all of them are gone; how many
 * A process that we may not kill (it changed its user) does not keep us here.
 */
static int kill_found(struct process_search *m)
{
    struct pollfd p = {.fd = m->epoll, .events = POLLIN};
    int killed = 0;

    for (size_t i = 0; i < m->found_count; i++) {
        struct found *f = &m->found[i];

        if (f->fd < 0)
            continue;
        if (pidfd_send_signal(f->fd, SIGKILL, NULL, 0) == 0) {
            killed++;
        } else if (errno == ESRCH) {
            over(m, f);
        } else {
            log_warn("process_not_killed", F_INT("pid", f->pid),
                     F_STR("error", errno_text(errno)));
            drop(m, f);
        }
    }
    while (process_search_living(m) > 0)
        if (poll(&p, 1, WARN_MS) == 0)
            warn_living(m);
    return killed;
}

/* process_search_end - until nothing is found any more
 * A process that is killed cannot fork; one that was not reached yet can, so
 * the walk is repeated until it finds none.
 */
int process_search_end(struct process_search *m,
                       const struct process_search_choice *choice)
{
    int sum = 0, killed;

    do {
        int living = process_search_find(m, choice);

        if (living < 0)
            return living;
        killed = kill_found(m);
        sum += killed;
    } while (killed > 0);
    return sum;
}
