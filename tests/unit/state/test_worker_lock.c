/* test_worker_lock.c - whether a worker runs: ask the lock, not the pid */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/state/worker_lock.h"

static char dir[64], folder[80], path[128], text[WORKER_CLAUSE];

static void setup(void)
{
    strcpy(dir, "/tmp/mqw-look-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(folder, sizeof folder, "%s/q", dir);
    snprintf(path, sizeof path, "%s/worker.pid", folder);
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
    rmdir(dir);
}

TestSuite(worker_lock, .init = setup, .fini = teardown);

/* Start a process that holds the lock, with its pid in the file. */
static pid_t owner_start(void)
{
    int ready[2];
    char byte;
    pid_t pid;

    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        flock(fd, LOCK_EX);
        dprintf(fd, "%d", (int)getpid());
        (void)!write(ready[1], "x", 1);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

Test(worker_lock, one_that_holds_the_lock_runs)
{
    pid_t owner = owner_start(), pid = 0;

    for (int i = 0; i < 100; i++)
        cr_assert_eq(worker_lock_look(path, &pid), WORKER_RUNS);
    cr_assert_eq(pid, owner);
    worker_lock_clause(dir, "/q", text);
    cr_assert(strstr(text, "worker ") && strstr(text, " is running"), "%s",
              text);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
}

/* WNOWAIT waits for its death and leaves the zombie. */
Test(worker_lock, a_zombie_is_gone)
{
    pid_t owner = owner_start(), pid;
    siginfo_t info;

    kill(owner, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)owner, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(worker_lock_look(path, &pid), WORKER_GONE);
    cr_assert_eq(pid, owner, "not the pid of the dead owner");
    cr_assert_eq(kill(owner, 0), 0, "its number is free");
    worker_lock_clause(dir, "/q", text);
    cr_assert(strstr(text, "no worker is running with state directory"), "%s",
              text);
    cr_assert(strstr(text, dir), "%s", text);
    waitpid(owner, NULL, 0);
}

Test(worker_lock, without_a_pidfile_none_runs)
{
    pid_t pid = 1;

    cr_assert_eq(worker_lock_find(dir, "/q", &pid, NULL), WORKER_NONE);
    cr_assert_eq(pid, 0);
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(worker_lock_find(dir, "/q", NULL, NULL), WORKER_NONE);
}

/* An empty or foreign file says nothing of a pid. */
Test(worker_lock, what_is_no_number_is_no_pid)
{
    static const char *const texts[] = {"", "x", "-5", "0", "99999999999"};
    pid_t pid;

    cr_assert_eq(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *f = fopen(path, "w");

        cr_assert(f && fputs(texts[i], f) >= 0 && fclose(f) == 0);
        pid = 1;
        cr_assert_eq(worker_lock_look(path, &pid), WORKER_GONE);
        cr_assert_eq(pid, 0, "\"%s\"", texts[i]);
    }
}

Test(worker_lock, what_we_may_not_look_at_is_not_seen)
{
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(worker_lock_look(path, NULL), WORKER_UNSEEN);
    worker_lock_clause(dir, "/q", text);
    cr_assert_str_eq(text,
                     "it is not visible from here whether a worker is running");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("elsewhere", path), 0);
    cr_assert_eq(worker_lock_look(path, NULL), WORKER_UNSEEN);
}

/* Somebody removed the pidfile; it cannot be told whose the lock is. */
Test(worker_lock, one_that_holds_only_the_folder_runs)
{
    pid_t pid = 1;
    int fd;

    cr_assert_eq(mkdir(folder, 0700), 0);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_assert_eq(worker_lock_look(path, &pid), WORKER_RUNS);
    cr_assert_eq(pid, 0);
    close(fd);
    cr_assert_eq(worker_lock_look(path, &pid), WORKER_NONE);
}

/* A look leaves nothing behind. */
Test(worker_lock, a_look_keeps_no_lock_and_changes_no_file)
{
    struct stat before, after;
    int fd;

    cr_assert_eq(mkdir(folder, 0700), 0);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(dprintf(fd, "123"), 3);
    cr_assert_eq(fstat(fd, &before), 0);
    cr_assert_eq(worker_lock_look(path, NULL), WORKER_GONE);
    cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    cr_assert_eq(fstat(fd, &after), 0);
    cr_assert_eq(before.st_size, after.st_size);
    cr_assert_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    close(fd);
}
