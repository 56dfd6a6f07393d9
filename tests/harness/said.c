/* said.c - describe processes, for the report of a failed test */
#include "tests/harness/internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read the start of a file of /proc. Return false if it cannot be read. */
bool said_text(const char *path, char *out, size_t room)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, room - 1, f) : 0;

    if (f)
        fclose(f);
    out[n] = '\0';
    return n > 0;
}

/* Print where each thread waits in the kernel. */
size_t said_threads(pid_t pid, char *out, size_t room)
{
    char path[64], where[64];
    size_t used = 0;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/wchan", (int)pid,
                 e->d_name);
        if (said_text(path, where, sizeof where) && used < room)
            used += (size_t)snprintf(out + used, room - used, " %s", where);
    }
    if (dir)
        closedir(dir);
    return used < room ? used : room - 1;
}

/* Print the name and the state letter of a process. */
static size_t stat_said(pid_t pid, char *out, size_t room)
{
    char path[64], stat[512];
    const char *name, *end;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!said_text(path, stat, sizeof stat) || !(name = strchr(stat, '(')) ||
        !(end = strrchr(name, ')')) || !end[1])
        return 0;
    return (size_t)snprintf(out, room, "\n%d %.*s %c", (int)pid,
                            (int)(end + 1 - name), name, end[2]);
}

/* A handler that has not called exec yet is included, because it still has the
 * memory of its worker and so this environment. */
void said_others(char *out, size_t room)
{
    DIR *proc = opendir("/proc");
    char wanted[512];
    size_t used = 0;

    snprintf(wanted, sizeof wanted, "TEST_DIR=%s", harness_dir());
    out[0] = '\0';
    for (struct dirent *e; proc && (e = readdir(proc));) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

        if (pid <= 1 || pid == getpid() || processes_know(pid) ||
            !environment_has(e->d_name, wanted))
            continue;
        if (used + 100 < room)
            used += stat_said(pid, out + used, room - used);
        if (used + 100 < room)
            used += said_threads(pid, out + used, room - used);
    }
    if (proc)
        closedir(proc);
}

const char *harness_said(void)
{
    enum { ROOM = 3500 };
    char *text = harness_keep(malloc(ROOM));

    processes_said(text, ROOM);
    return text;
}
