/* fuzz_custody.c - any bytes as a custody file: refused and left as it is, or
 * recovered, with every record either handed out or set aside
 *
 * The first byte says what the rest is: a whole file (0), or slots behind a
 * valid head, whose sizes the next bytes choose. Most random files would fail
 * at the check sum of the head.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/custody/custody.h"
#include "tests/fuzz/fuzz.h"

#define SLOTS_MAX 64
#define FILE_MOST (256u << 10)

static char folder[64], path[128];

/* What a recovery handed out. */
struct visited {
    struct slot *slot[SLOTS_MAX * 64];
    size_t count;
    size_t room; /* of a body */
};

/* Empty the folder; return how many files had that prefix. */
static unsigned files_remove(const char *prefix)
{
    unsigned n = 0;
    DIR *dir = opendir(folder);
    fuzz_must(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
        unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    return n;
}

static void folder_end(void)
{
    files_remove("");
    rmdir(folder);
}

/* Make the folder, in memory if possible, else in /tmp. */
static void folder_make(void)
{
    if (folder[0])
        return;
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/mqw-fuzz-XXXXXX", root);
    fuzz_must(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/custody", folder);
    atexit(folder_end);
}

static void file_write(const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

/* Return whether the file has exactly these bytes. */
static bool file_is(const void *data, size_t size)
{
    static char there[FILE_MOST + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    fuzz_must(fd >= 0);
    ssize_t n = read(fd, there, sizeof there);
    close(fd);
    return n == (ssize_t)size && memcmp(there, data, size) == 0;
}

/* Make the check sum of a slot right, which random bytes never are. */
static void seal(struct slot *slot)
{
    static _Alignas(64) unsigned char bytes[SLOT_HEADER];
    struct slot *copy = (struct slot *)(void *)bytes;
    memcpy(copy, slot, sizeof bytes);
    atomic_store(&copy->word, SLOT_RECEIVING);
    if (copy->priority == SLOT_UNSET ||
        atomic_load(&copy->length) == SLOT_UNSET)
        return;
    slot_resolve(copy, NULL, 0); /* it has a length: only the sum is made */
    slot->sum = copy->sum;
}

/* Make a valid head with the bytes as slots behind it, in *out; return the
 * size. */
static size_t image_make(const uint8_t *data, size_t size, uint8_t **out)
{
    struct custody_head h;
    unsigned slots = data[1] % 9, body = data[2] * 4u;
    custody_head_make(&h, body, slots, data[3], 1 + data[4] % 2);
    struct boot boot;
    boot_now(&boot);
    if (data[5] & 2) /* of another boot, so it counts as torn */
        memset(boot.id, 'x', sizeof boot.id);
    if (!(data[5] & 1))
        custody_head_claim(&h, &boot);
    size_t whole = custody_file_bytes(h.stride, slots);
    size_t cut = data[5] & 4 ? whole / 2 : whole;
    uint8_t *image = calloc(1, whole);
    fuzz_must(image && whole <= FILE_MOST);
    memcpy(image, &h, sizeof h);
    size_t left = size - 6, room = whole - FILE_HEAD;
    memcpy(image + FILE_HEAD, data + 6, left < room ? left : room);
    for (unsigned i = 0; !(data[5] & 8) && i < slots; i++)
        seal((struct slot *)(void *)(image + FILE_HEAD + i * h.stride));
    *out = image;
    return cut;
}

/* Check that the records that were handed out are plausible and in order. */
static void slots_check(const struct visited *v)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct slot *slot = v->slot[i];
        struct slot_word w = slot_word(slot);
        fuzz_must(w.state == SLOT_HELD || w.state == SLOT_RUNNING);
        fuzz_must(!slot_damage(slot, v->room));
        fuzz_must(atomic_load(&slot->length) <= v->room);
        fuzz_must(i == 0 || v->slot[i - 1]->seq <= slot->seq);
    }
}

/* Put a message into every free slot and take it out again; with `visited`,
 * first finish the records that were handed out. */
static void slots_use(struct custody *c, struct visited *visited)
{
    for (size_t i = 0; visited && i < visited->count; i++) {
        slot_retire(visited->slot[i]);
        custody_release(c, visited->slot[i]);
    }
    struct slot *slot, *taken[SLOTS_MAX * 64];
    size_t n = 0, room = custody_body_bytes(c);
    while ((slot = custody_acquire(c))) {
        fuzz_must(slot_word(slot).state == SLOT_FREE);
        slot_arm(slot, custody_fill(c), custody_seq_next(c));
        memset(slot->body, 'a', room);
        slot->priority = 0;
        slot_taken(slot, (uint32_t)room, 1);
        custody_seq_used(c);
        taken[n++] = slot;
    }
    while (n > 0) {
        slot_retire(taken[--n]);
        custody_release(c, taken[n]);
    }
}

/* Recover an open file, use and close it; return how many records were handed
 * out. *at_end: slots_use may run out of numbers, as the next start finds.
 */
static size_t recovered(struct custody *c, bool last, bool *copied,
                        bool *at_end)
{
    static struct visited v;
    struct problem p = {0};
    const char *copy;
    unsigned damaged;
    v.room = custody_body_bytes(c);
    fuzz_must(custody_recover(c, &p) == 0);
    fuzz_must(custody_slots(c) <= sizeof v.slot / sizeof v.slot[0]);
    v.count = custody_busy(c, v.slot);
    slots_check(&v);
    damaged = custody_damaged(c, &copy);
    *copied = copy[0] != '\0';
    fuzz_must(custody_free_slots(c) + v.count == custody_slots(c));
    fuzz_must(damaged <= custody_slots(c) - v.count);
    fuzz_must(damaged == 0 || *copied);
    *at_end = custody_seq_next(c) > SLOT_SEQ_MAX - SLOTS_MAX * 64;
    custody_fix(c);
    if (!last && custody_slots(c) < SLOTS_MAX)
        fuzz_must(custody_grow(c, custody_slots(c) + 1, &p) == 0);
    slots_use(c, last ? &v : NULL);
    custody_close(&c);
    return v.count;
}

/* Check that a file that was accepted loses nothing, and that the next start
 * finds the same records. */
static void opened_check(struct custody *c, const struct custody_spec *spec)
{
    struct problem p = {0};
    bool copied, again, at_end;
    size_t n = recovered(c, false, &copied, &at_end);
    fuzz_must(custody_open(&c, path, spec, &p) == 0);
    fuzz_must(!custody_torn(c));
    bool numbers = at_end;
    fuzz_must(recovered(c, true, &again, &at_end) == n);
    fuzz_must(!again || numbers);
    fuzz_must(files_remove("custody.damaged.") == (unsigned)copied + again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct custody_spec spec = {
        .body_bytes = 256, .slots = 2, .slots_max = SLOTS_MAX};
    struct problem p = {0};
    struct custody *c;
    uint8_t *image = NULL;
    const uint8_t *bytes = data + 1;
    if (size < 6 || size > FILE_MOST)
        return 0;
    folder_make();
    size_t n = size - 1;
    if (data[0]) {
        n = image_make(data, size, &image);
        bytes = image;
    }
    file_write(bytes, n);
    if (custody_open(&c, path, &spec, &p) == 0) {
        opened_check(c, &spec);
    } else {
        fuzz_must(p.status == EX_CONFIG && p.text[0]);
        fuzz_must(file_is(bytes, n));
        fuzz_must(files_remove("") == 1);
    }
    free(image);
    return 0;
}
