/* store_wal: commits that were damaged are told from those that a kill or a
 * power cut left unfinished, whatever part of the -wal it is */
#include <fcntl.h>
#include <sysexits.h>
#include <time.h>

#include "common/store/store_wal.h"
#include "tests/unit/storage/store_fixture.h"

TestSuite(store_wal, .init = fixture_init, .fini = fixture_fini, .timeout = 60);

#define LETTERS    8
#define FRAME_HEAD 24
#define FRAME      (FRAME_HEAD + 4096)
#define ROOM       (4 << 20)

struct image {
    unsigned char data[ROOM];
    size_t size;
};
static struct image db, wal, work;

static const char *path_of(const char *tail)
{
    static char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", fixture_db, tail);
    return path;
}

static void image_read(struct image *m, const char *tail)
{
    int fd = open(path_of(tail), O_RDONLY);
    ssize_t size = fd < 0 ? 0 : read(fd, m->data, sizeof m->data);
    cr_assert(size >= 0 && (size_t)size < sizeof m->data);
    m->size = (size_t)size;
    close(fd);
}

static void image_write(const struct image *m, const char *tail)
{
    int fd = open(path_of(tail), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(write(fd, m->data, m->size) == (ssize_t)m->size);
    close(fd);
}

/* put_back - the files as the kill left them, the -wal as `m` */
static void put_back(const struct image *m)
{
    image_write(&db, "");
    image_write(m, "-wal");
    unlink(path_of("-shm"));
}

static void letters_put(struct store *s, int n)
{
    char body[200];
    struct store_row row = fixture_row(STORE_DEAD, "");
    row.data = body;
    row.size = sizeof body;
    for (int i = 0; i < n; i++) {
        memset(body, 'a' + i, sizeof body);
        fixture_put(s, &row);
    }
}

/* killed - what a kill after `n` letters leaves; `before` were copied back */
static void killed(int before, int n)
{
    struct store *s = fixture_open();
    letters_put(s, before);
    if (before)
        fixture_sql("PRAGMA wal_checkpoint");
    letters_put(s, n);
    image_read(&db, "");
    image_read(&wal, "-wal");
    store_close(&s);
    put_back(&wal);
    work = wal;
}

static uint32_t number(const struct image *m, size_t at)
{
    const unsigned char *p = m->data + at;
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static size_t frame_at(size_t n)
{
    return STORE_WAL_HEAD + (n - 1) * FRAME;
}

static size_t frames(void)
{
    return (wal.size - STORE_WAL_HEAD) / FRAME;
}

/* last - the last frame of this age of the file */
static size_t last(void)
{
    size_t n = 0;
    while (n < frames() &&
           !memcmp(wal.data + 16, wal.data + frame_at(n + 1) + 8, 8))
        n++;
    return n;
}

/* start_of_last - the first frame of the last commit */
static size_t start_of_last(void)
{
    size_t n = last();
    while (n > 1 && !number(&wal, frame_at(n - 1) + 4))
        n--;
    return n;
}

static struct store_wal judged(const struct image *m)
{
    struct store_wal out;
    put_back(m);
    cr_assert(store_wal_read(&out, path_of("-wal")) == 0);
    return out;
}

/* opened - status of opening, 0 or that of the problem; how many letters */
static int opened(int64_t *letters)
{
    struct store *s;
    struct problem p = {0};
    if (store_open(&s, fixture_db, true, &p) < 0) {
        cr_assert(strstr(p.text, fixture_db), "%s", p.text);
        return p.status;
    }
    *letters = store_count(s, STORE_DEAD);
    store_close(&s);
    return 0;
}

/* refused - it is damage, told, and nothing is changed; going on as the text
 * says keeps exactly what SQLite would have kept */
static void refused(size_t at)
{
    static struct image after;
    int64_t kept, none;
    struct store_wal out = judged(&work);
    cr_assert(out.damaged, "byte %zu of %zu", at, work.size);
    cr_assert(opened(&none) == EX_CANTCREAT);
    image_read(&after, "-wal");
    cr_assert(after.size == work.size &&
              !memcmp(after.data, work.data, work.size));
    image_read(&after, "");
    cr_assert(after.size == db.size && !memcmp(after.data, db.data, db.size));
    cr_assert(truncate(path_of("-wal"), (off_t)out.keep) == 0);
    cr_assert(opened(&kept) == 0);
    put_back(&work);
    cr_assert(kept == fixture_sql("SELECT count(*) FROM messages"),
              "byte %zu: kept %d", at, (int)kept);
}

/* flipped - damage at one byte is refused */
static void flipped(size_t at)
{
    work.data[at] ^= (unsigned char)(1u << at % 8);
    refused(at);
    work.data[at] = wal.data[at];
}

/* Of a frame: page number, pages, salts, checksums, page. */
static const size_t places[] = {0,  3,  7,  8,  11,   12,   15,
                                16, 19, 20, 24, 1000, 4119, 4100};
#define PLACES (sizeof places / sizeof places[0])

Test(store_wal, a_bit_of_the_header_is_told)
{
    killed(0, LETTERS);
    for (size_t at = 0; at < STORE_WAL_HEAD; at++) {
        flipped(at);
        cr_assert(judged(&wal).damaged == false);
    }
}

Test(store_wal, a_bit_of_any_frame_before_the_last_is_told)
{
    killed(0, LETTERS);
    cr_assert(number(&wal, 12) == 0 && frames() > 2 * LETTERS);
    for (size_t n = 1; n < frames(); n++)
        for (size_t i = 0; i < PLACES; i++)
            flipped(frame_at(n) + places[i]);
}

Test(store_wal, a_bit_of_the_last_frame_of_a_file_that_only_grew_is_told)
{
    killed(0, LETTERS);
    for (size_t i = 0; i < PLACES; i++)
        flipped(frame_at(frames()) + places[i]);
}

/* A kill between the two writes of a frame leaves that, over an older page. */
Test(store_wal, a_last_frame_over_an_older_one_is_taken_for_a_kill)
{
    int64_t letters;
    killed(LETTERS, 3);
    size_t n = last(), at = frame_at(n);
    cr_assert(number(&wal, 12) == 1 && n < frames());
    for (size_t i = 0; i < PLACES; i++) {
        size_t byte = at + places[i];
        bool salt = places[i] >= 8 && places[i] < 16;
        work.data[byte] ^= 1;
        cr_assert(judged(&work).damaged == salt, "byte %zu", places[i]);
        work.data[byte] = wal.data[byte];
    }
    for (size_t k = 1; k < n; k++)
        for (size_t i = 0; i < PLACES; i++)
            flipped(frame_at(k) + places[i]);
    work.size = frame_at(n + 1); /* nor does it help that the file ends there */
    work.data[at + 1000] ^= 1;
    cr_assert(!judged(&work).damaged);
    /* the header of one more frame, in front of the page of an old one */
    for (int commit = 0; commit < 2; commit++) {
        unsigned char *head = work.data + frame_at(n + 1);
        work = wal;
        memcpy(head + 8, wal.data + 16, 8);
        head[7] = (unsigned char)(commit ? 30 : 0);
        head[16] ^= 0x55;
        cr_assert(!judged(&work).damaged);
        cr_assert(opened(&letters) == 0 && letters == LETTERS + 3);
    }
}

Test(store_wal, wherever_a_kill_cuts_the_file_is_no_damage)
{
    killed(0, LETTERS);
    int64_t letters = 0, before = 0;
    for (work.size = 0; work.size < wal.size; work.size += 77)
        cr_assert(!judged(&work).damaged, "%zu bytes", work.size);
    for (size_t n = 1; n <= frames() + 1; n++)
        for (int off = -8; off <= 24; off += 8) {
            work.size = frame_at(n) + (size_t)off;
            if (work.size > wal.size)
                continue;
            cr_assert(!judged(&work).damaged, "%zu bytes", work.size);
            cr_assert(opened(&letters) == 0 && letters >= before);
            before = letters;
        }
    cr_assert(letters == LETTERS);
}

Test(store_wal, nothing_or_a_header_alone_or_none_says_nothing)
{
    int64_t letters;
    killed(0, 1);
    for (work.size = 0; work.size <= STORE_WAL_HEAD; work.size++) {
        cr_assert(!judged(&work).damaged);
        cr_assert(opened(&letters) == 0 && letters == 0);
    }
    put_back(&wal);
    unlink(path_of("-wal"));
    cr_assert(opened(&letters) == 0 && letters == 0);
}

Test(store_wal, garbage_in_place_of_it_or_of_a_part_is_told)
{
    killed(0, LETTERS);
    unsigned seed = (unsigned)clock_wall_ns();
    printf("seed %u\n", seed);
    srandom(seed);
    const size_t from[] = {0, frame_at(1), frame_at(4) + 30, frame_at(7) + 9};
    const size_t sizes[] = {512, 4096, 3 * 4096, ROOM};
    for (int zero = 0; zero < 2; zero++)
        for (size_t i = 0; i < 16; i++) {
            size_t at = from[i / 4], end = at + sizes[i % 4];
            work = wal;
            for (size_t k = at; k < end && k < work.size; k++)
                work.data[k] = zero ? 0 : (unsigned char)(0x80 | random());
            refused(at);
        }
}

/* before_boot - as if the machine had been started since */
static void before_boot(void)
{
    struct timespec up, times[2] = {{0, 0}, {0, 0}};
    clock_gettime(CLOCK_REALTIME, &times[1]);
    clock_gettime(CLOCK_BOOTTIME, &up);
    times[0].tv_sec = times[1].tv_sec -= up.tv_sec + 60;
    cr_assert(utimensat(AT_FDCWD, path_of("-wal"), times, 0) == 0);
}

Test(store_wal, what_a_power_cut_tears_of_the_last_commit_is_no_damage)
{
    struct store_wal out;
    int64_t letters;
    killed(0, LETTERS);
    for (size_t n = start_of_last(); n <= last(); n++)
        for (int zero = 0; zero < 2; zero++) {
            work = wal;
            memset(work.data + frame_at(n) + (zero ? 0 : 100), zero ? 0 : 7,
                   FRAME - 100);
            put_back(&work);
            before_boot();
            cr_assert(opened(&letters) == 0 && letters == LETTERS - 1);
        }
    /* The commit before it was synced. */
    for (size_t n = 1; n < start_of_last(); n++) {
        work = wal;
        work.data[frame_at(n) + 100] ^= 1;
        put_back(&work);
        before_boot();
        cr_assert(store_wal_read(&out, path_of("-wal")) == 0);
        cr_assert(out.damaged && out.bad == n && out.commits >= 2);
        cr_assert(opened(&letters) == EX_CANTCREAT);
    }
}

/* What never ended lies behind the commits that come after, with their
 * salts. */
Test(store_wal, after_a_power_cut_the_file_is_begun_anew)
{
    static struct image now;
    killed(0, LETTERS);
    work.data[frame_at(start_of_last()) + 100] ^= 1;
    put_back(&work);
    before_boot();
    struct store *s = fixture_open();
    image_read(&now, "-wal");
    cr_assert(now.size == 0, "%zu bytes", now.size);
    letters_put(s, 1);
    image_read(&db, "");
    image_read(&now, "-wal");
    store_close(&s);
    cr_assert(!judged(&now).damaged);
    int64_t letters;
    cr_assert(opened(&letters) == 0 && letters == LETTERS);
}

/* SQLite writes the checksums of such a commit last: a kill can come before. */
Test(store_wal, of_a_commit_that_did_not_fit_the_cache_less_is_told)
{
    static char body[400 * 4096];
    struct store *s = fixture_open();
    struct store_row row = fixture_row(STORE_DEAD, "");
    memset(body, 'x', sizeof body);
    row.data = body;
    row.size = sizeof body;
    fixture_put(s, &row);
    image_read(&db, "");
    image_read(&wal, "-wal");
    letters_put(s, 1);
    image_read(&work, "-wal");
    store_close(&s);
    wal.data[frame_at(5) + 100] ^= 1;
    struct store_wal out = judged(&wal);
    cr_assert(!out.damaged && out.commits == 1 && out.bad == 5);
    work.data[frame_at(5) + 100] ^= 1;
    refused(frame_at(5)); /* one more commit: it was at its end */
}
