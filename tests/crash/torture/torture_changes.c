/* torture_changes.c - see torture_changes.h */
#include "tests/crash/torture/torture_changes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/torture/torture.h"

static void view_add(struct changes *c, const void *now, size_t size,
                     bool mapped)
{
    struct changes_view *v = &c->views[c->count++];

    *v = (struct changes_view){
        .now = now, .before = malloc(size), .size = size, .mapped = mapped};
    if (!v->before)
        torture_die("out of memory");
    memcpy(v->before, now, size);
}

/* Add a file that the worker maps. Without a spool the file of ends is
 * missing. */
static void file_add(struct changes *c, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *now;

    if (fd < 0 && errno == ENOENT && c->count > 0)
        return;
    if (fd < 0 || fstat(fd, &st) < 0)
        torture_die("%s: %s", path, strerror(errno));
    now = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (now == MAP_FAILED)
        torture_die("%s: %s", path, strerror(errno));
    close(fd);
    view_add(c, now, (size_t)st.st_size, true);
}

void changes_open(struct changes *c, const struct torture *t, uint64_t first,
                  unsigned n)
{
    struct torture_world *w = t->world;
    const unsigned char *notes = (const unsigned char *)&w->first_ns;
    _Atomic uint64_t *records = torture_record_of(w, first);

    c->count = 0;
    file_add(c, place_runtime(t, "custody"));
    file_add(c, place_runtime(t, "ends"));
    view_add(c, notes, (size_t)((const unsigned char *)w->records - notes),
             false);
    if (!records)
        torture_die("no message has the number %llu",
                    (unsigned long long)first);
    view_add(c, records, n * sizeof *records, false);
}

bool changes_seen(void *changes)
{
    struct changes *c = changes;
    bool seen = false;

    for (unsigned i = 0; i < c->count; i++) {
        struct changes_view *v = &c->views[i];

        if (memcmp(v->before, v->now, v->size) == 0)
            continue;
        memcpy(v->before, v->now, v->size);
        seen = true;
    }
    return seen;
}

void changes_close(struct changes *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        free(c->views[i].before);
        if (c->views[i].mapped)
            munmap((void *)(uintptr_t)c->views[i].now, c->views[i].size);
    }
    c->count = 0;
}
