/* test_pid_file.c - the lock lets one worker in, and never two */
#include "tests/fixtures/passing_clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/state/worker_lock.h"
#include "tests/harness/sweep.h"
#include "worker/files/pid_file.h"

static char dir[64], path[128];

static void setup(void)
{
    strcpy(dir, "/tmp/mqw-lock-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/worker.pid", dir);
}

static void teardown(void)
{
    unlink(path);
    rmdir(dir);
}

TestSuite(lock, .init = setup, .fini = teardown);

static struct pid_file *taken(void)
{
    struct pid_file *lock;
    struct problem p = {0};

    cr_assert(pid_file_open(&lock, path, "/orders", &p) == 0, "%s", p.text);
    return lock;
}

/* Skip each wait, and let a second pass besides. */
static bool a_second(void)
{
    clock_pass(NS_PER_S);
    return true;
}

/* Start a process that takes the lock, tells us, and waits until our end of its
 * pipe is closed. */
struct owner {
    pid_t pid;
    int go;
};

static struct owner owner_start(void (*then)(int go))
{
    struct owner o;
    int ready[2], go[2];
    char byte;

    cr_assert(pipe(ready) == 0 && pipe(go) == 0);
    o.pid = fork();
    if (o.pid == 0) {
        close(go[1]);
        taken();
        if (then)
            then(go[0]);
        (void)!write(ready[1], "x", 1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    close(ready[1]);
    close(go[0]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    o.go = go[1];
    return o;
}

static void owner_kill(const struct owner *o)
{
    kill(o->pid, SIGKILL);
    waitpid(o->pid, NULL, 0);
}

/* Return the pid in the pidfile; 0 if there is none. */
static int pid_there(void)
{
    char text[32] = "";
    FILE *f = fopen(path, "r");

    if (!f)
        return 0;
    (void)!fgets(text, sizeof text, f);
    fclose(f);
    return atoi(text);
}

Test(lock, a_start_that_comes_to_nothing_leaves_who_was_killed)
{
    struct owner o = owner_start(NULL);
    struct pid_file *lock;

    owner_kill(&o);
    lock = taken();
    cr_assert_eq(pid_there(), (int)getpid());
    pid_file_give_back(lock);
    cr_assert_eq(pid_there(), (int)o.pid);
    pid_file_close(&lock);
    cr_assert_eq(pid_there(), (int)o.pid);
    lock = taken();
    pid_file_close(&lock);
    cr_assert_eq(pid_there(), 0, "a pid is left after an end in good order");
    lock = taken();
    pid_file_give_back(lock);
    pid_file_close(&lock);
    cr_assert_eq(pid_there(), 0, "a pid is left, but nobody was killed");
}

Test(lock, file_names_the_owner_and_goes_with_the_lock)
{
    struct pid_file *lock = taken();
    char text[32] = "";
    FILE *f = fopen(path, "r");
    struct stat st;

    cr_assert(f && fgets(text, sizeof text, f));
    fclose(f);
    cr_assert_eq(atoi(text), (int)getpid());
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 077, 0, "others could hold the lock");
    pid_file_close(&lock);
    cr_assert_null(lock);
    cr_assert_lt(stat(path, &st), 0);
    pid_file_close(&lock);
}

Test(lock, living_owner_is_refused_with_69_and_its_pid)
{
    struct owner o = owner_start(NULL);
    struct pid_file *lock = (struct pid_file *)1;
    struct problem p = {0};
    char pid[32];

    snprintf(pid, sizeof pid, "pid %d", (int)o.pid);
    cr_assert_lt(pid_file_open(&lock, path, "/orders", &p), 0);
    cr_assert_null(lock);
    cr_assert_eq(p.status, EX_UNAVAILABLE);
    cr_assert(strstr(p.text, pid), "%s", p.text);
    cr_assert(strstr(p.text, "/orders"), "%s", p.text);
    cr_assert(strstr(p.text, "max-concurrency"), "%s", p.text);
    cr_assert(strstr(p.text, "mqctl stop --state-dir /tmp /orders,"), "%s",
              p.text);
    cr_assert_null(strstr(p.text, "another --state-dir"),
                   "with this advice the queue would have two consumers: %s",
                   p.text);
    owner_kill(&o);
}

Test(lock, refused_one_leaves_the_owners_file_alone)
{
    struct owner o = owner_start(NULL);
    struct pid_file *lock;
    struct stat before, after;

    cr_assert_eq(stat(path, &before), 0);
    cr_assert_lt(pid_file_open(&lock, path, "/orders", NULL), 0);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_eq(before.st_ino, after.st_ino);
    cr_assert_gt(after.st_size, 0, "the pid is gone");
    owner_kill(&o);
}

Test(lock, lock_of_a_killed_owner_is_taken)
{
    for (int i = 0; i < 50; i++) {
        struct owner o = owner_start(NULL);
        struct pid_file *lock;

        owner_kill(&o);
        lock = taken();
        pid_file_close(&lock);
    }
}

/* A killed owner may still be exiting. A worker that is started right after the
 * kill must wait for it, not be refused. */
Test(lock, owner_that_is_just_dying_is_waited_for)
{
    for (int i = 0; i < 100; i++) {
        struct owner o = owner_start(NULL);
        struct pid_file *lock;

        kill(o.pid, SIGKILL);
        lock = taken();
        pid_file_close(&lock);
        waitpid(o.pid, NULL, 0);
    }
}

/* Fork a child that has the lock, as a handler has it before execve, and that
 * outlives the owner. */
static void heir(int go)
{
    char byte;

    if (fork() == 0) {
        (void)!read(go, &byte, 1);
        _exit(0);
    }
}

static atomic_uint *waits; /* waits of a child for the lock */

static bool count_wait(void)
{
    atomic_fetch_add(waits, 1);
    return false;
}

static void *shared(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(at, MAP_FAILED);
    return at;
}

static void pidfile_names(pid_t pid)
{
    FILE *f = fopen(path, "w");

    cr_assert(f && fprintf(f, "%d", (int)pid) > 0 && fclose(f) == 0);
}

/* Check that a worker started after the owner's death waits until `o->go` is
 * closed. */
static void heir_is_waited_for(const struct owner *o)
{
    int done[2];
    struct pollfd p;
    pid_t pid;

    waits = shared(sizeof *waits);
    cr_assert_eq(pipe(done), 0);
    pid = fork();
    if (pid == 0) {
        close(o->go);
        clock_passes = count_wait;
        taken();
        (void)!write(done[1], "x", 1);
        _exit(0);
    }
    p = (struct pollfd){.fd = done[0], .events = POLLIN};
    while (atomic_load(waits) < 10)
        sched_yield();
    cr_assert_eq(poll(&p, 1, 0), 0, "taken while the child held it");
    close(o->go); /* the child reaches its program */
    cr_assert_eq(poll(&p, 1, -1), 1);
    waitpid(pid, NULL, 0);
}

Test(lock, child_of_a_dead_owner_that_is_not_in_its_program_yet_is_waited_for)
{
    struct owner o = owner_start(heir);

    owner_kill(&o);
    heir_is_waited_for(&o);
}

/* Start a process that has nothing to do with the lock. */
static pid_t stranger(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    cr_assert_gt(pid, 0);
    return pid;
}

/* Where many processes start, the dead owner's number is another's in seconds.
 */
Test(lock, number_that_is_another_processs_by_now_refuses_nobody)
{
    pid_t other = stranger();
    struct owner o = owner_start(heir);

    owner_kill(&o);
    pidfile_names(other);
    heir_is_waited_for(&o);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

Test(lock, what_holds_the_lock_of_a_dead_owner_for_long_is_told_as_that)
{
    struct owner o = owner_start(heir);
    uint64_t start = clock_mono_ns();
    struct problem p = {0};
    struct pid_file *lock;

    owner_kill(&o);
    clock_passes = a_second;
    cr_assert_lt(pid_file_open(&lock, path, "/orders", &p), 0);
    clock_passes = (bool (*)(void))0;
    cr_assert_geq(clock_mono_ns() - start, 29 * NS_PER_S);
    cr_assert_eq(p.status, EX_UNAVAILABLE);
    cr_assert(strstr(p.text, "or it has exited"), "%s", p.text);
    cr_assert(strstr(p.text, "fuser"), "%s", p.text);
    cr_assert_null(strstr(p.text, "with kill"), "%s", p.text);
    close(o.go);
}

/* Return the highest descriptor that /proc names so; -1 if there is none. */
static int descriptor(const char *named)
{
    char link[64], target[256];
    int found = -1;

    for (int fd = 0; fd < 256; fd++) {
        ssize_t n;

        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strcmp(target, named) == 0)
            found = fd;
    }
    return found;
}

/* After a kill, a process that the worker was just starting holds the locks
 * until execve(2) closes them, the highest number first: so before what is slow
 * to close. */
Test(lock, is_given_up_before_what_is_slow_to_close)
{
    struct pid_file *lock = taken();
    int slow = inotify_init1(IN_CLOEXEC);

    cr_assert_geq(slow, 0);
    cr_assert_gt(descriptor(path), slow);
    cr_assert_gt(descriptor(dir), slow);
    close(slow);
    pid_file_close(&lock);
}

Test(lock, is_taken_where_no_high_number_is_to_be_had)
{
    const struct rlimit few = {32, 32};
    struct pid_file *lock;

    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    lock = taken();
    cr_assert_geq(descriptor(path), 0);
    pid_file_close(&lock);
}

/* Start a process that looks all the time, and counts its looks. */
static pid_t looker(atomic_uint *looks)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves none */
        for (;;) {
            (void)worker_lock_look(path, NULL);
            atomic_fetch_add(looks, 1);
        }
    }
    cr_assert_gt(pid, 0);
    return pid;
}

/* Start a worker and kill it; return 0, or the status of its refusal. */
static int start_once(void)
{
    int ready[2], status = -1;
    pid_t pid;

    cr_assert_eq(pipe(ready), 0);
    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        struct problem p = {0};
        struct pid_file *lock;

        (void)pid_file_open(&lock, path, "/orders", &p);
        (void)!write(ready[1], &p.status, sizeof p.status);
        pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &status, sizeof status), sizeof status);
    close(ready[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return status;
}

Test(lock, whoever_looks_refuses_no_start)
{
    atomic_uint *looks = shared(sizeof *looks);
    unsigned least = sweep_share("starts beside programs that look", 200);
    unsigned starts = 0, refused = 0;
    pid_t pid[2];

    pidfile_names(getpid()); /* as if the killed worker's number were reused */
    pid[0] = looker(looks);
    pid[1] = looker(looks);
    for (; starts < least || atomic_load(looks) < 5 * least; starts++) {
        refused += start_once() != 0;
        pidfile_names(getpid());
    }
    for (int i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    cr_assert_eq(refused, 0, "%u of %u starts, at %u looks", refused, starts,
                 atomic_load(looks));
}

Test(lock, does_not_reach_a_program_that_is_started)
{
    struct pid_file *lock = taken();
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        execlp("sh", "sh", "-c", "ls -l /proc/self/fd | grep -q worker.pid",
               NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    pid_file_close(&lock);
}

Test(lock, missing_folder_is_refused_with_73)
{
    struct pid_file *lock;
    struct problem p = {0};
    char nowhere[160];

    snprintf(nowhere, sizeof nowhere, "%s/none/worker.pid", dir);
    cr_assert_lt(pid_file_open(&lock, nowhere, "/orders", &p), 0);
    cr_assert_null(lock);
    cr_assert_eq(p.status, EX_CANTCREAT);
    cr_assert(strstr(p.text, nowhere), "%s", p.text);
}

Test(lock, a_removed_pidfile_lets_nobody_in)
{
    struct owner o = owner_start(NULL);
    int made = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    uint64_t start = clock_mono_ns();
    struct pid_file *lock;
    struct problem p = {0};
    struct inotify_event event;

    cr_assert_eq(unlink(path), 0);
    cr_assert_geq(inotify_add_watch(made, dir, IN_CREATE), 0);
    clock_passes = a_second; /* which is what a dying owner is given */
    cr_assert_lt(pid_file_open(&lock, path, "/orders", &p), 0);
    clock_passes = (bool (*)(void))0;
    cr_assert_geq(clock_mono_ns() - start, 9 * NS_PER_S);
    cr_assert_eq(p.status, EX_UNAVAILABLE);
    cr_assert(strstr(p.text, "mqctl move"), "%s", p.text);
    cr_assert(strstr(p.text, "fuser"), "%s", p.text);
    cr_assert_lt(read(made, &event, sizeof event), 0,
                 "it put a pidfile in the owner's place");
    cr_assert_eq(errno, EAGAIN);
    close(made);
    owner_kill(&o);
    lock = taken();
    pid_file_close(&lock);
}

Test(lock, a_locked_folder_that_has_lost_its_name_is_known)
{
    struct pid_file *lock = taken(), *again;
    struct problem p = {0};

    cr_assert_eq(unlink(path), 0);
    cr_assert(pid_file_has_folder(lock));
    cr_assert_eq(rmdir(dir), 0);
    cr_assert(!pid_file_has_folder(lock));
    cr_assert_eq(mkdir(dir, 0700), 0);
    cr_assert(!pid_file_has_folder(lock), "another folder is taken for ours");
    cr_assert_eq(pid_file_open(&again, path, "/orders", &p), 0, "%s", p.text);
    pid_file_close(&lock);
    cr_assert_eq(access(path, F_OK), 0,
                 "the pidfile of another owner was removed");
    pid_file_close(&again);
}

/* Many at once, as a supervisor gone wild would start them. */
Test(lock, of_many_at_once_one_gets_it)
{
    int go[2], won[2], wins = 0;
    pid_t pid[16], winner = 0;
    char byte;

    cr_assert(pipe(go) == 0 && pipe(won) == 0);
    for (int i = 0; i < 16; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            struct pid_file *lock;

            close(go[1]);
            close(won[0]);
            (void)!read(go[0], &byte, 1);
            if (pid_file_open(&lock, path, "/orders", NULL) < 0)
                _exit(0);
            (void)!write(won[1], "x", 1);
            pause();
        }
    }
    close(won[1]);
    close(go[1]);
    for (int left = 16; left > 1; left--) /* the losers have ended */
        cr_assert_gt(wait(NULL), 0);
    fcntl(won[0], F_SETFL, O_NONBLOCK);
    while (read(won[0], &byte, 1) == 1)
        wins++;
    cr_assert_eq(wins, 1);
    for (int i = 0; i < 16; i++)
        if (kill(pid[i], 0) == 0)
            winner = pid[i];
    cr_assert_gt(winner, 0);
    kill(winner, SIGKILL);
    waitpid(winner, NULL, 0);
}
