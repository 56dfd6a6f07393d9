/* harness.c - the fixture, paths, files, waiting */
#include "tests/harness/internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* State of the running test: Criterion runs each test in its own process. */
static struct {
    char dir[PATH_MAX / 2];
    char state[PATH_MAX / 2 + 16];
    char runtime[64];
    struct janitor janitor;
    void **kept; /* freed by harness_fini */
    size_t kept_count;
    const char *file; /* place of the caller */
    int line;
    unsigned slow; /* factor for all limits */
} rig;

/* A limit only ends tests that hang. It is more than an idle machine ever
 * needs, and PATIENCE times that is enough beside a load of ten on two
 * processors. */
enum { LAST_WORDS = 3500, PATIENCE = 6 };

/* Remember the caller's place, for messages. */
void harness_here(const char *file, int line)
{
    rig.file = file;
    rig.line = line;
}

/* End the test with a message. */
void harness_fail(const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    cr_assert_fail("%s:%d: %s", rig.file ? rig.file : "harness", rig.line,
                   text);
    abort();
}

/* Free `memory` in harness_fini; return it. */
void *harness_keep(void *memory)
{
    void **kept = reallocarray(rig.kept, rig.kept_count + 1, sizeof *rig.kept);
    if (!memory || !kept)
        harness_fail("out of memory");
    rig.kept = kept;
    rig.kept[rig.kept_count++] = memory;
    return memory;
}

const char *harness_queue_name(void)
{
    /* The janitor sees this counter. */
    char name[64];
    janitor_queue_name(rig.dir, ++*rig.janitor.queues, name, sizeof name);
    return harness_keep(strdup(name));
}

/* Make a scratch directory and start the janitor that will remove it. */
void harness_init(void)
{
    const char *tmp = getenv("TMPDIR"), *slow = getenv("MQW_TEST_SLOW");
    memset(&rig, 0, sizeof rig);
    rig.slow = PATIENCE * (slow && atoi(slow) > 0 ? (unsigned)atoi(slow) : 1);
    snprintf(rig.dir, sizeof rig.dir, "%s/mqwt-XXXXXX",
             tmp && tmp[0] == '/' ? tmp : "/tmp");
    if (!mkdtemp(rig.dir))
        harness_fail("%s: %s", rig.dir, strerror(errno));
    snprintf(rig.state, sizeof rig.state, "%s/state", rig.dir);
    snprintf(rig.runtime, sizeof rig.runtime, "/dev/shm%.48s",
             strrchr(rig.dir, '/'));
    /* Workers that a test runs in its own process read it, too. */
    setenv("RUNTIME_DIRECTORY", rig.runtime, 1);
    int err = janitor_start(&rig.janitor, rig.dir, rig.runtime);
    if (err < 0)
        harness_fail("janitor: %s", strerror(-err));
}

void janitor_leave(void)
{
    close(rig.janitor.fd);
}

/* End and remove everything that the test has started or made. */
void harness_fini(void)
{
    processes_end();
    const char *report = processes_report();
    janitor_finish(&rig.janitor);
    char *text = report ? strdup(report) : NULL;
    for (size_t i = 0; i < rig.kept_count; i++)
        free(rig.kept[i]);
    free(rig.kept);
    rig.kept = NULL;
    rig.kept_count = 0;
    if (!text)
        return;
    /* Criterion 2.4 does not count an assertion that fails here, but it does
     * count a crash. */
    fprintf(stderr, "%s:%d: a sanitizer's report: %s\n",
            rig.file ? rig.file : "harness", rig.line, text);
    abort();
}

/* ---- paths ---- */

const char *harness_dir(void)
{
    return rig.dir;
}

const char *harness_state_dir(void)
{
    return rig.state;
}

void harness_state_on_tmpfs(void)
{
    if (mkdir(rig.runtime, 0700) < 0)
        harness_fail("%s: %s", rig.runtime, strerror(errno));
    snprintf(rig.state, sizeof rig.state, "%s/state", rig.runtime);
}

const char *harness_runtime_dir(void)
{
    return rig.runtime;
}

const char *harness_folder_in(const char *runtime, const char *state,
                              const char *queue)
{
    char dir[PATH_MAX], above[PATH_MAX], home[PATH_MAX + 300];
    const char *name = strrchr(state, '/');
    uint32_t hash = 2166136261u; /* FNV-1a */

    /* The state directory need not exist yet. */
    snprintf(dir, sizeof dir, "%.*s", (int)(name - state), state);
    cr_assert(realpath(dir, above) != NULL, "%s", dir);
    snprintf(home, sizeof home, "%s%s%s", above, name, queue);
    for (const char *c = home; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return harness_path("%s%.201s.%08x", runtime, queue, hash);
}

const char *harness_runtime_folder(const char *queue)
{
    return harness_folder_in(rig.runtime, rig.state, queue);
}

const char *harness_custody(const char *queue)
{
    return harness_path("%s/custody", harness_runtime_folder(queue));
}

const char *harness_path(const char *fmt, ...)
{
    char name[PATH_MAX / 2], path[PATH_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    snprintf(path, sizeof path, "%s%s%s", name[0] == '/' ? "" : rig.dir,
             name[0] == '/' ? "" : "/", name);
    return harness_keep(strdup(path));
}

/* Return the path of `name` in the directory that `variable` names, or in
 * `preset`. */
static const char *built(const char *variable, const char *preset,
                         const char *name, const char *suffix)
{
    char path[PATH_MAX], full[PATH_MAX];
    const char *dir = getenv(variable);
    snprintf(path, sizeof path, "%s/%s%s", dir ? dir : preset, name, suffix);
    if (!realpath(path, full))
        return harness_keep(strdup(path));
    return harness_keep(strdup(full));
}

const char *harness_bin(const char *name)
{
    return built("MQW_BIN", "build/bin", name, "");
}

const char *harness_handler(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "handlers/%s", name);
    return built("MQW_HANDLERS", "build/tests", path, "");
}

const char *harness_plugin(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "plugins/%s", name);
    return built("MQW_HANDLERS", "build/tests", path, ".so");
}

/* ---- files ---- */

/* Write a file with exactly these bytes. */
void harness_write(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(harness_path("%s", path), "we");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        harness_fail("%s: %s", path, strerror(errno));
}

const char *harness_script(const char *name, const char *body)
{
    char *text;
    if (asprintf(&text, "#!/bin/sh\n%s\n", body) < 0)
        harness_fail("out of memory");
    /* Rename a new file: a worker that is being killed may still start the old
     * one. */
    const char *path = harness_path("%s", name);
    const char *fresh = harness_path("%s.new", name);
    harness_write(fresh, text, strlen(text));
    free(text);
    if (chmod(fresh, 0755) < 0 || rename(fresh, path) < 0)
        harness_fail("%s: %s", path, strerror(errno));
    return path;
}

/* Read the file as it is now. */
const char *harness_read(const char *path, size_t *size)
{
    FILE *f = fopen(harness_path("%s", path), "re");
    size_t used = 0, room = 4096, got;
    char *data = malloc(room + 1);
    while (f && data && (got = fread(data + used, 1, room - used, f)) > 0) {
        used += got;
        if (used < room)
            continue;
        char *more = realloc(data, (room *= 2) + 1);
        if (!more)
            free(data);
        data = more;
    }
    if (f)
        fclose(f);
    if (data)
        data[used] = '\0';
    if (size)
        *size = used;
    return harness_keep(data);
}

bool harness_exists(const char *path)
{
    return access(harness_path("%s", path), F_OK) == 0;
}

/* Count the complete lines that contain `text`; "" is in every line. */
size_t harness_lines_with(const char *path, const char *text)
{
    FILE *f = fopen(harness_path("%s", path), "re");
    char *line = NULL;
    size_t room = 0, lines = 0;
    ssize_t size;
    while (f && (size = getline(&line, &room, f)) > 0)
        lines += line[size - 1] == '\n' &&
                 memmem(line, (size_t)size, text, strlen(text)) != NULL;
    free(line);
    if (f)
        fclose(f);
    return lines;
}

size_t harness_lines(const char *path)
{
    return harness_lines_with(path, "");
}

bool harness_next_line(const char *path, long *at, char *line, size_t room)
{
    FILE *f = fopen(harness_path("%s", path), "re");
    bool whole = false;

    if (!f)
        return false;
    if (fseek(f, *at, SEEK_SET) == 0 && fgets(line, (int)room, f))
        whole = strchr(line, '\n') != NULL;
    if (whole)
        *at = ftell(f);
    fclose(f);
    return whole;
}

/* ---- waiting ---- */

uint64_t harness_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t harness_deadline(unsigned limit_ms)
{
    return harness_now_ms() + (uint64_t)limit_ms * rig.slow;
}

uint64_t harness_patience(unsigned limit_ms)
{
    enum { LEAST_MS = 30000 };

    return harness_deadline(limit_ms == 0 || limit_ms > LEAST_MS ? limit_ms
                                                                 : LEAST_MS);
}

void harness_nap(uint64_t deadline, const char *what)
{
    if (harness_now_ms() >= deadline) {
        char said[LAST_WORDS];
        processes_said(said, sizeof said);
        harness_fail("not within the limit: %s%s", what, said);
    }
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}
