/* test_stderr_tail.c - a child's stderr: each line is logged, 4 KiB are kept */
#include <criterion/criterion.h>
#include <bsd/stdlib.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "worker/process/stderr_tail.h"

static struct stderr_tail t;
static struct outcome out;
static int err_copy = -1;
static FILE *logged;

/* Send the log to a file of ours. */
static void setup(void)
{
    logged = tmpfile();
    cr_assert(logged);
    fflush(stderr);
    err_copy = dup(2);
    dup2(fileno(logged), 2);
    log_setup(LOG_INFO, LOG_TEXT);
    stderr_tail_init(&t, "01JD3Z6Q9V0X8N5T2K7B4M1C3F", 0, NULL);
}

/* Make stderr stderr again, so that the log can be read. */
static void quiet_off(void)
{
    if (err_copy < 0)
        return;
    dup2(err_copy, 2);
    close(err_copy);
    err_copy = -1;
    rewind(logged);
}

TestSuite(tail, .init = setup, .fini = quiet_off);

/* Check that the next two lines of the log have these texts. */
static void lines_with(const char *const texts[2])
{
    char got[8192];

    for (size_t i = 0; i < 2; i++) {
        cr_assert(fgets(got, sizeof got, logged), "line %zu is missing", i);
        cr_assert(strstr(got, texts[i]), "\"%s\" is not in %s", texts[i], got);
    }
}

static void add(const char *text)
{
    stderr_tail_add(&t, text, strlen(text));
}

/* Check that these lines were logged, in this order, and no more. */
static void lines_are(const char *const *lines, size_t n)
{
    char got[8192], want[8192];

    quiet_off();
    for (size_t i = 0; i < n; i++) {
        cr_assert(fgets(got, sizeof got, logged), "line %zu is missing", i);
        snprintf(want, sizeof want, "line=%s\n", lines[i]);
        cr_assert(strstr(got, want), "\"%s\" is not in %s", lines[i], got);
        cr_assert(strstr(got, "event=handler_stderr"), "%s", got);
        cr_assert(strstr(got, "msg=01JD3Z6Q9V0X8N5T2K7B4M1C3F"), "%s", got);
    }
    cr_assert_null(fgets(got, sizeof got, logged), "one too many: %s", got);
}
#define LINES_ARE(...)                            \
    lines_are((const char *const[]){__VA_ARGS__}, \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Check what goes to the store. */
static void kept_is(const char *text, size_t size)
{
    stderr_tail_end(&t, &out);
    cr_assert_eq(out.tail_size, size, "%zu instead of %zu", out.tail_size,
                 size);
    cr_assert_arr_eq(out.tail, text, size);
}

Test(tail, lines_are_logged_one_by_one)
{
    add("one\ntwo\nthree\n");
    kept_is("one\ntwo\nthree\n", 14);
    LINES_ARE("one", "two", "three");
}

Test(tail, line_that_comes_in_pieces_is_one_line)
{
    for (const char *c = "hello\nworld\n"; *c; c++)
        stderr_tail_add(&t, c, 1);
    stderr_tail_end(&t, &out);
    LINES_ARE("hello", "world");
}

Test(tail, last_line_needs_no_newline)
{
    add("first\nlast");
    kept_is("first\nlast", 10);
    LINES_ARE("first", "last");
}

Test(tail, nothing_written_is_nothing_logged_and_nothing_kept)
{
    add("");
    kept_is("", 0);
    quiet_off();
    cr_assert_eq(fgetc(logged), EOF);
}

Test(tail, line_over_the_limit_comes_in_pieces)
{
    char line[TAIL_LINE + 4], first[TAIL_LINE + 1];

    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    memset(first, 'x', TAIL_LINE);
    first[TAIL_LINE] = '\0';
    stderr_tail_add(&t, line, sizeof line);
    stderr_tail_end(&t, &out);
    LINES_ARE(first, "xxx");
}

Test(tail, line_of_exactly_the_limit_has_no_empty_line_behind_it)
{
    char line[TAIL_LINE + 1];

    memset(line, 'y', TAIL_LINE);
    line[TAIL_LINE] = '\0';
    add(line);
    add("\nnext\n");
    stderr_tail_end(&t, &out);
    quiet_off();
    LINES_ARE(line, "next");
}

Test(tail, exactly_the_last_bytes_are_kept)
{
    unsigned seed = arc4random();
    char all[40000], size[32];
    size_t used = 0;

    snprintf(size, sizeof size, "seed %u", seed);
    srandom(seed);
    quiet_off();
    log_setup(LOG_ERROR, LOG_TEXT);
    for (int round = 0; round < 300; round++) {
        stderr_tail_init(&t, "x", 0, NULL);
        used = 0;
        for (int i = (int)(random() % 12); i > 0; i--) {
            size_t n = (size_t)random() % (random() % 4 ? 300 : 9000);

            if (used + n > sizeof all)
                break;
            for (size_t k = 0; k < n; k++)
                all[used + k] = (char)random();
            stderr_tail_add(&t, all + used, n);
            used += n;
        }
        size_t want = used < OUTCOME_TAIL ? used : OUTCOME_TAIL;

        stderr_tail_end(&t, &out);
        cr_assert_eq(out.tail_size, want, "%s", size);
        cr_assert_arr_eq(out.tail, all + used - want, want, "%s", size);
    }
}

Test(tail, bytes_that_are_no_text_stay_one_line_of_the_log)
{
    char got[256];

    stderr_tail_add(&t, "a\0b\x1b[31m\xff\n", 10);
    kept_is("a\0b\x1b[31m\xff\n", 10);
    quiet_off();
    cr_assert(fgets(got, sizeof got, logged));
    cr_assert_null(strchr(got, '\x1b'), "an escape sequence got through");
    cr_assert_null(fgets(got, sizeof got, logged));
}

Test(tail, reading_takes_what_is_there_and_tells_the_end)
{
    int fds[2];

    cr_assert_eq(pipe2(fds, O_NONBLOCK), 0);
    cr_assert(stderr_tail_read(&t, fds[0]),
              "an empty pipe is taken for the end");
    cr_assert_eq(write(fds[1], "abc\n", 4), 4);
    cr_assert(stderr_tail_read(&t, fds[0]));
    close(fds[1]);
    cr_assert_not(stderr_tail_read(&t, fds[0]));
    kept_is("abc\n", 4);
}

static void *chatter(void *arg)
{
    const int *fd = arg;

    while (write(*fd, "chatter chatter\n", 16) == 16)
        ;
    return NULL;
}

/* A grandchild that goes on writing must not keep the worker. */
Test(tail, draining_ends_although_somebody_goes_on_writing)
{
    int fds[2];
    pthread_t thread;

    quiet_off();
    log_setup(LOG_ERROR, LOG_TEXT);
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe(fds), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    pthread_create(&thread, NULL, chatter, &fds[1]);
    while (t.kept_size < OUTCOME_TAIL)
        stderr_tail_drain(&t, fds[0]);
    close(fds[0]);
    pthread_join(thread, NULL);
    stderr_tail_end(&t, &out);
    cr_assert_eq(out.tail_size, OUTCOME_TAIL);
}

Test(tail, lines_of_a_child_that_lasts_name_it_and_a_message_if_one_is_meant)
{
    stderr_tail_init(&t, NULL, 4711, NULL);
    add("starting\n");
    t.id = "01JD3Z6Q9V0X8N5T2K7B4M1C3F";
    add("busy\n");
    quiet_off();
    lines_with((const char *const[]){
        "event=handler_stderr pid=4711 line=starting",
        "msg=01JD3Z6Q9V0X8N5T2K7B4M1C3F pid=4711 line=busy"});
}

Test(tail, what_was_forgotten_is_not_kept)
{
    add("of the last message\nhalf");
    stderr_tail_forget(&t);
    stderr_tail_copy(&t, &out);
    cr_assert_eq(out.tail_size, 0);
    add(" a line");
    stderr_tail_copy(&t, &out);
    cr_assert_eq(out.tail_size, 7);
    stderr_tail_end(&t, &out);
    cr_assert_eq(memcmp(out.tail, " a line", 7), 0);
    lines_are(
        (const char *const[]){"\"of the last message\"", "\"half a line\""}, 2);
}

/* Check the last line of a message; NULL: it has none. */
static void last_is(const char *id, const char *line)
{
    char text[ERROR_TEXT];
    bool has = stderr_tail_last(&t, id, text);

    cr_assert_eq(has, line != NULL);
    if (line)
        cr_assert_str_eq(text, line);
}

Test(tail, the_last_line_belongs_to_the_message_that_wrote_it)
{
    static const char a[] = "01JD3Z6Q9V0X8N5T2K7B4M1C3F",
                      b[] = "01JD3Z6Q9V0X8N5T2K7B4M1C3G";

    last_is(a, NULL);
    add("first\n\033[31m40 %\033[0m \xff\n\n");
    last_is(a, "40 % \\xff");
    last_is(b, NULL);
    t.id = NULL; /* several are open */
    add("of somebody\n");
    last_is(a, NULL);
    last_is(b, NULL);
    t.id = b;
    add("half a l");
    last_is(a, NULL);
    last_is(b, "half a l");
    stderr_tail_forget(&t);
    last_is(b, NULL);
    add(" \n");
    last_is(b, NULL);
}
