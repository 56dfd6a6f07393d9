/* test_log.c - one event is one valid, whole line, and logging never waits */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/harness/sweep.h"
#include "tests/unit/cli/hidden_fixture.h"

#define LINE_ROOM 8192
#define ROUNDS    20000

/* ---- seam: what write(2) on stderr does ---- */

struct write_step {
    ssize_t take;       /* most bytes that this call takes; or -errno */
    const char *logged; /* event of a line that is logged during this call */
};
static const struct write_step *write_script;
static size_t write_steps, write_calls;

/* Replace write(2) in the whole program: on stderr follow the script while
 * there is one, otherwise ask the kernel. */
ssize_t write(int fd, const void *data, size_t size)
{
    if (fd == STDERR_FILENO)
        write_calls++;
    if (fd == STDERR_FILENO && write_steps > 0) {
        ssize_t take = write_script->take;
        const char *logged = write_script->logged;
        write_script++;
        write_steps--;
        if (logged)
            log_info(logged, F_INT("n", 0));
        if (take < 0) {
            errno = (int)-take;
            return -1;
        }
        size = (size_t)take < size ? (size_t)take : size;
    }
    return syscall(SYS_write, fd, data, size);
}

static void script_set(const struct write_step *steps, size_t n)
{
    write_script = steps;
    write_steps = n;
    write_calls = 0;
}

/* ---- what was written ---- */

static int captured = -1;

/* Send stderr to memory from here on. */
static void capture(void)
{
    captured = memfd_create("stderr", 0);
    cr_assert_geq(captured, 0);
    cr_assert_eq(dup2(captured, STDERR_FILENO), STDERR_FILENO);
}

/* Return what was written since the last call; the caller frees it. */
static char *lines_take(size_t *size)
{
    off_t end = lseek(captured, 0, SEEK_END);
    char *text = calloc(1, (size_t)end + 1);
    cr_assert_eq(pread(captured, text, (size_t)end, 0), end);
    cr_assert_eq(ftruncate(captured, 0), 0);
    lseek(captured, 0, SEEK_SET);
    if (size)
        *size = (size_t)end;
    return text;
}

/* Return a text line from its third field, event=, on. */
static const char *after_event(const char *line)
{
    const char *at = strstr(line, " event=");
    cr_assert_not_null(at, "%s", line);
    return at + 1;
}

/* Parse a line, which must be one JSON object. */
static json_t *json_line(const char *line, size_t size)
{
    json_error_t trouble;
    json_t *object = json_loadb(
        line, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &trouble);
    cr_assert(json_is_object(object), "%s: %s", trouble.text, line);
    return object;
}

/* Return true if jansson takes these bytes for UTF-8. */
static bool utf8_valid(const char *text, size_t size)
{
    json_t *string = json_stringn(text, size);
    json_decref(string);
    return string != NULL;
}

Test(log, text_fields_come_in_order_with_time_and_level, .init = capture)
{
    log_setup(LOG_INFO, LOG_TEXT);
    uint64_t before = clock_wall_ns(), at = 0;
    log_warn("handler_exit", F_STR("msg", "01JD"), F_INT("status", -75),
             F_UINT("seq", UINT64_MAX), F_DURATION("took", 1500 * NS_PER_MS),
             F_BYTES("part", "abcdef", 3));
    uint64_t after = clock_wall_ns();
    char *line = lines_take(NULL);
    char time[TIME_TEXT];
    cr_assert_eq(sscanf(line, "time=%39s level=warn ", time), 1, "%s", line);
    cr_assert_eq(time_parse(time, 0, &at), 0, "%s", time);
    cr_expect_geq(at, before - before % NS_PER_MS);
    cr_expect_leq(at, after);
    cr_expect_not_null(strstr(line, "Z level=warn event="));
    cr_expect_str_eq(after_event(line),
                     "event=handler_exit msg=01JD status=-75 "
                     "seq=18446744073709551615 took=1.5s part=abc\n");
    free(line);
}

Test(log, json_has_the_same_fields_with_their_types, .init = capture)
{
    log_setup(LOG_INFO, LOG_JSON);
    log_error("x", F_STR("msg", "a \"b\"\n\\"), F_INT("i", INT64_MIN),
              F_UINT("u", 7), F_DURATION("took", 250 * NS_PER_MS));
    size_t size;
    char *line = lines_take(&size);
    json_t *o = json_line(line, size);
    cr_expect_eq(json_object_size(o), 7);
    cr_expect_str_eq(json_string_value(json_object_get(o, "level")), "error");
    cr_expect_str_eq(json_string_value(json_object_get(o, "event")), "x");
    cr_expect_str_eq(json_string_value(json_object_get(o, "msg")),
                     "a \"b\"\n\\");
    cr_expect_eq(json_integer_value(json_object_get(o, "i")), INT64_MIN);
    cr_expect_eq(json_integer_value(json_object_get(o, "u")), 7);
    cr_expect(json_is_number(json_object_get(o, "took")));
    cr_expect_eq(json_number_value(json_object_get(o, "took")), 0.25);
    cr_expect_eq(strlen(json_string_value(json_object_get(o, "time"))),
                 strlen("2026-11-20T19:22:59.123Z"));
    json_decref(o);
    free(line);
}

Test(log, text_values_are_quoted_only_where_it_is_needed, .init = capture)
{
    static const struct {
        const char *value, *shown;
    } cases[] = {
        {"plain", "plain"},
        {"caf\u00e9", "caf\u00e9"},
        {"a/b:c,d", "a/b:c,d"},
        {"", "\"\""},
        {"two words", "\"two words\""},
        {"a=b", "\"a=b\""},
        {"say \"hi\"", "\"say \\\"hi\\\"\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"a\nb\tc\rd", "\"a\\nb\\tc\\rd\""},
        {"\x1b[2J\x7f", "\"\\x1b[2J\\x7f\""},
        {"bad\xff\xc3", "\"bad\\xff\\xc3\""},
        {"\xc0\xaf\xed\xa0\x80", "\"\\xc0\\xaf\\xed\\xa0\\x80\""},
        {"\xc2\x9b"
         "2J",
         "\"\\u{009b}2J\""},
        {"\u202egnp.exe", "\"\\u{202e}gnp.exe\""},
        {"a\u2028b", "\"a\\u{2028}b\""},
    };
    log_setup(LOG_INFO, LOG_TEXT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[128];
        snprintf(want, sizeof want, "event=e v=%s\n", cases[i].shown);
        log_info("e", F_STR("v", cases[i].value));
        char *line = lines_take(NULL);
        cr_expect_str_eq(after_event(line), want);
        free(line);
    }
}

Test(log, a_null_string_leaves_its_field_out, .init = capture)
{
    log_setup(LOG_INFO, LOG_TEXT);
    log_info("e", F_STR("a", NULL), F_BYTES("b", NULL, 0), F_INT("c", 1));
    char *line = lines_take(NULL);
    cr_expect_str_eq(after_event(line), "event=e c=1\n");
    free(line);
}

Test(log, lines_below_the_level_cost_no_evaluation, .init = capture)
{
    int evaluated = 0;
    log_setup(LOG_WARN, LOG_TEXT);
    log_info("no", F_INT("n", ++evaluated));
    log_write(LOG_DEBUG, "no", NULL, 0);
    cr_expect_not(log_enabled(LOG_INFO));
    cr_expect(log_enabled(LOG_WARN));
    cr_expect_eq(evaluated, 0);
    log_warn("yes", F_INT("n", ++evaluated));
    log_write(LOG_ERROR, "bare", NULL, 0);
    char *lines = lines_take(NULL);
    cr_expect_null(strstr(lines, "event=no"));
    cr_expect_not_null(strstr(lines, "event=yes n=1\n"));
    cr_expect_not_null(strstr(lines, "event=bare\n"));
    free(lines);
}

Test(log, errno_stays_as_it_was, .init = capture)
{
    static const struct write_step steps[] = {{-EIO, NULL}};
    log_setup(LOG_INFO, LOG_TEXT);
    script_set(steps, 1);
    errno = ENOTEMPTY;
    log_info("e", F_INT("n", 1));
    cr_assert_eq(errno, ENOTEMPTY);
    log_flush();
    cr_assert_eq(write_steps, 0);
}

/* Fill `buf` with a string of n letters. */
static const char *fill_to(char *buf, size_t n)
{
    memset(buf, 'y', n);
    buf[n] = '\0';
    return buf;
}

Test(log, a_line_over_the_limit_is_cut_and_says_so_and_stays_valid,
     .init = capture)
{
    char big[2 * LINE_ROOM];
    for (size_t n = LINE_ROOM - 200; n < LINE_ROOM + 20; n++) {
        size_t size;
        log_setup(LOG_INFO, LOG_JSON);
        log_info("e", F_STR("s", fill_to(big, n)), F_INT("n", 12345),
                 F_STR("q", "\"\n"), F_STR("z", ""));
        char *line = lines_take(&size);
        cr_assert_leq(size, LINE_ROOM);
        cr_assert_eq(strchr(line, '\n'), line + size - 1);
        json_t *o = json_line(line, size);
        bool cut = json_is_true(json_object_get(o, "cut"));
        json_t *number = json_object_get(o, "n");
        cr_assert_eq(cut, json_object_get(o, "z") == NULL, "n %zu", n);
        cr_assert(!number || json_integer_value(number) == 12345);
        json_decref(o);
        free(line);

        log_setup(LOG_INFO, LOG_TEXT);
        log_info("e", F_STR("s", big), F_INT("n", 12345), F_STR("z", ""));
        line = lines_take(&size);
        cr_assert_leq(size, LINE_ROOM);
        cr_assert_eq(strchr(line, '\n'), line + size - 1);
        bool whole = strcmp(line + size - 14, " n=12345 z=\"\"\n") == 0;
        bool marked = strcmp(line + size - 10, " cut=true\n") == 0;
        cr_assert_neq(whole, marked, "n %zu", n);
        free(line);
    }
}

/* ---- random bytes ---- */

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t seed_take(void)
{
    const char *given = getenv("TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : clock_wall_ns();
    fprintf(stderr, "TEST_SEED=%ju\n", (uintmax_t)seed);
    return seed;
}

/* Fill `buf` with any bytes, with ASCII, or with ASCII and long characters. */
static size_t random_bytes(uint64_t *state, char *buf, size_t most)
{
    static const char *const whole[] = {"\u00e9",   "\u20ac", "\U0001F600",
                                        "\xc2\x9b", "\u2028", "\U0010FFFF"};
    size_t size = (size_t)(random_next(state) % most), at = 0;
    uint64_t kind = random_next(state) % 3;
    while (at + 4 < size) {
        uint64_t r = random_next(state);
        if (kind == 0)
            buf[at++] = (char)r;
        else if (kind == 1 || r % 3)
            buf[at++] = (char)(r >> 8 & 0x7f);
        else
            at += strlen(strcpy(buf + at, whole[(r >> 8) % 6]));
    }
    return at;
}

/* Decode a text value into the bytes that it stands for; count them. */
static size_t value_undo(const char *at, char *out)
{
    size_t n = 0;
    bool quoted = *at == '"';
    unsigned code = 0;
    for (at += quoted; *at != (quoted ? '"' : '\n');) {
        if (*at != '\\') {
            out[n++] = *at++;
        } else if (at[1] == 'x') {
            cr_assert_eq(sscanf(at, "\\x%2x", &code), 1);
            out[n++] = (char)code;
            at += 4;
        } else if (at[1] == 'u') {
            cr_assert_eq(sscanf(at, "\\u{%6x}", &code), 1);
            n += hidden_put(out + n, code);
            at = strchr(at, '}') + 1;
        } else {
            static const char names[] = "nrt\"\\";
            const char *from = strchr(names, at[1]);
            cr_assert_not_null(from);
            out[n++] = "\n\r\t\"\\"[from - names];
            at += 2;
        }
    }
    return n;
}

Test(log, a_cut_never_splits_a_character_or_an_escape, .init = capture)
{
    static const char *const units[] = {"\U0001F600", "\"", "\x01", "\xff",
                                        "\u202e"};
    char big[2 * LINE_ROOM], undone[2 * LINE_ROOM];
    for (size_t u = 0; u < 5; u++) {
        for (size_t lead = 0; lead < 16; lead++) {
            size_t at = lead, unit = strlen(units[u]), size;
            fill_to(big, lead);
            for (; at + unit < sizeof big; at += unit)
                memcpy(big + at, units[u], unit);
            log_setup(LOG_INFO, LOG_JSON);
            log_info("e", F_BYTES("s", big, at));
            char *line = lines_take(&size);
            json_t *o = json_line(line, size);
            cr_assert(json_is_true(json_object_get(o, "cut")));
            json_decref(o);
            free(line);
            log_setup(LOG_INFO, LOG_TEXT);
            log_info("e", F_BYTES("s", big, at));
            line = lines_take(&size);
            cr_assert(utf8_valid(line, size));
            char *mark = line + size - strlen(" cut=true\n");
            cr_assert_str_eq(mark, " cut=true\n");
            *mark = '\n';
            const char *value = after_event(line) + strlen("event=e s=");
            size_t said = value_undo(value, undone);
            cr_assert_gt(said, LINE_ROOM / 9);
            cr_assert_eq(memcmp(undone, big, said), 0);
            free(line);
        }
    }
}

/* Check that this is one line of valid UTF-8, without a control byte in it. */
static void line_check(const char *line, size_t size)
{
    cr_assert(utf8_valid(line, size), "not UTF-8");
    for (size_t i = 0; i + 1 < size; i++)
        cr_assert((unsigned char)line[i] >= 0x20 && line[i] != 0x7f,
                  "byte %zu is %02x", i, (unsigned)line[i]);
    cr_assert_eq(line[size - 1], '\n');
}

Test(log, any_bytes_give_one_valid_line_that_says_them_all)
{
    uint64_t state = seed_take();
    unsigned rounds = sweep_share("random values", ROUNDS);
    char bytes[512], undone[512];
    capture();
    for (; rounds > 0; rounds--) {
        size_t n = random_bytes(&state, bytes, sizeof bytes), size;
        log_setup(LOG_INFO, LOG_TEXT);
        log_info("e", F_BYTES("v", bytes, n));
        char *line = lines_take(&size);
        line_check(line, size);
        size_t back =
            value_undo(after_event(line) + strlen("event=e v="), undone);
        cr_assert_eq(back, n);
        cr_assert_eq(memcmp(undone, bytes, n), 0);
        free(line);

        log_setup(LOG_INFO, LOG_JSON);
        log_info("e", F_BYTES("v", bytes, n));
        line = lines_take(&size);
        line_check(line, size);
        json_t *o = json_line(line, size);
        json_t *v = json_object_get(o, "v");
        bool same = json_string_length(v) == n &&
                    memcmp(json_string_value(v), bytes, n) == 0;
        bool replaced = strstr(json_string_value(v), "\uFFFD") ||
                        memchr(json_string_value(v), 0, json_string_length(v));
        cr_assert(same || (replaced && !utf8_valid(bytes, n)));
        json_decref(o);
        free(line);
    }
}

/* Log "a", the character and "b", and store the value of the text line. In JSON
 * all bytes must be there, hidden characters as escapes. */
static void logged(uint32_t point, char value[64])
{
    char text[8] = "a";
    size_t size, n = 1 + hidden_put(text + 1, point);
    text[n++] = 'b';
    log_setup(LOG_INFO, LOG_TEXT);
    log_info("e", F_BYTES("v", text, n));
    char *line = lines_take(&size);
    cr_assert_eq(sscanf(after_event(line), "event=e v=%63[^\n]", value), 1);
    free(line);

    log_setup(LOG_INFO, LOG_JSON); /* all bytes come, hidden ones escaped */
    log_info("e", F_BYTES("v", text, n));
    line = lines_take(&size);
    json_t *o = json_line(line, size), *v = json_object_get(o, "v");
    cr_assert_eq(json_string_length(v), n, "U+%04X: %s", point, line);
    cr_assert_eq(memcmp(json_string_value(v), text, n), 0);
    bool shown = memmem(line, size, text, n) != NULL;
    cr_assert_eq(shown, value[0] == 'a' && !strpbrk(value, "\\"), "U+%04X",
                 point);
    json_decref(o);
    free(line);
}

static void is_escaped(uint32_t point, const char *what)
{
    char value[64], want[64];
    logged(point, value);
    snprintf(want, sizeof want,
             point < 0x80 ? "\"a\\x%02xb\"" : "\"a\\u{%04x}b\"", point);
    if (point != '\n' && point != '\r' && point != '\t') /* short escapes */
        cr_assert_str_eq(value, want, "U+%04X, %s", point, what);
}

static void is_shown(uint32_t point, const char *what)
{
    char value[64], want[8] = "a";
    if (point == ' ' || (point >= 0xD800 && point <= 0xDFFF))
        return;
    strcpy(want + 1 + hidden_put(want + 1, point), "b");
    logged(point, value);
    cr_assert_str_eq(value, want, "U+%04X, beside %s", point, what);
}

Test(log, both_ends_of_each_hidden_range_are_escaped, .init = capture)
{
    hidden_each(is_escaped, is_shown);
}

/* ---- write(2) ---- */

Test(log, a_line_is_one_write, .init = capture)
{
    log_setup(LOG_INFO, LOG_TEXT);
    script_set(NULL, 0);
    log_info("e", F_INT("n", 1));
    cr_assert_eq(write_calls, 1);
}

Test(log, interrupted_and_short_writes_are_finished, .init = capture)
{
    static const struct write_step steps[] = {
        {-EINTR, NULL}, {3, NULL}, {-EINTR, NULL}, {1, NULL}, {-EINTR, NULL}};
    log_setup(LOG_INFO, LOG_TEXT);
    script_set(steps, 5);
    log_info("e", F_INT("n", 1));
    log_flush();
    char *line = lines_take(NULL);
    cr_expect_eq(strncmp(line, "time=", 5), 0, "%s", line);
    cr_expect_str_eq(after_event(line), "event=e n=1\n");
    cr_expect_eq(write_calls, 6);
    free(line);
}

Test(log, a_line_that_finds_no_room_is_written_before_later_ones,
     .init = capture)
{
    static const struct write_step steps[] = {
        {-EAGAIN, NULL}, {-EAGAIN, NULL}, {9, NULL}};
    log_setup(LOG_INFO, LOG_TEXT);
    script_set(steps, 3);
    log_info("first", F_INT("n", 1));
    log_info("second", F_INT("n", 2));
    log_flush();
    char *lines = lines_take(NULL);
    cr_expect_eq(strncmp(after_event(lines), "event=first n=1\ntime=", 21), 0,
                 "%s", lines);
    cr_expect_not_null(strstr(lines, "event=second n=2\n"), "%s", lines);
    free(lines);
}

Test(log, half_a_line_is_ended_by_the_next_one_and_lost_lines_are_counted,
     .init = capture)
{
    static const struct write_step steps[] = {
        {10, NULL},   {-EIO, NULL}, /* torn */
        {-EIO, NULL},               /* dropped: still torn */
        {1, NULL},    {-EIO, NULL}, /* its newline only: whole */
        {7, NULL},    {-EIO, NULL}, /* torn again */
    };
    log_setup(LOG_INFO, LOG_TEXT);
    script_set(steps, 7);
    for (int i = 0; i < 4; i++) {
        log_info("lost", F_INT("n", i));
        log_flush();
    }
    cr_assert_eq(write_steps, 0);
    log_info("kept", F_INT("n", 4));
    log_flush();
    log_info("kept", F_INT("n", 5));
    char *lines = lines_take(NULL);
    cr_expect_eq(strncmp(lines, "time=20", 7), 0);
    const char *second = strchr(lines, '\n') + 1;
    cr_expect_eq(second - lines, 11, "ten bytes and a newline");
    cr_expect_eq(strncmp(second, "time=20\ntime=", 13), 0, "%s", second);
    const char *gap = strstr(second, "event=log_lines_dropped count=4 next=");
    cr_expect_not_null(strstr(second, "event=kept n=4\ntime="));
    cr_expect_not_null(gap, "%s", second);
    cr_expect_not_null(strstr(gap ? gap : "", "event=kept n=5\n"), "%s",
                       second);
    free(lines);
}

Test(log, a_line_during_the_last_write_before_a_gap_belongs_to_the_gap,
     .init = capture)
{
    static const struct write_step steps[] = {
        {10, NULL},
        {-EIO, NULL},         /* Torn: the next line is the writer's. */
        {LINE_ROOM, "during"} /* Takes all; another line comes. */
    };
    log_setup(LOG_INFO, LOG_TEXT);
    script_set(steps, 3);
    log_info("lost", F_INT("n", 1));
    log_flush();
    log_info("before", F_INT("n", 2));
    log_flush();
    log_info("behind", F_INT("n", 3));
    char *lines = lines_take(NULL);
    const char *gap = strstr(lines, "event=log_lines_dropped count=2 ");
    cr_assert_not_null(gap, "%s", lines);
    cr_expect_null(strstr(lines, "event=during"), "%s", lines);
    cr_expect_lt(strstr(lines, "event=before"), gap, "%s", lines);
    cr_expect_not_null(strstr(gap, "event=behind n=3\n"), "%s", lines);
    free(lines);
}

/* ---- a reader that stops, and comes back ---- */

#define STUCK_LINES 3000

/* Read `fd` into `text` until `last` is in it. */
static void read_until(int fd, char *text, size_t room, const char *last)
{
    size_t size = 0;
    while (!strstr(text, last)) {
        ssize_t n = read(fd, text + size, room - 1 - size);
        cr_assert_gt(n, 0, "%s", strerror(errno));
        size += (size_t)n;
        text[size] = '\0';
    }
}

/* Log lines into `theirs` while nobody reads `ours`; then read them: each line
 * came, in order, or was counted as dropped. */
static void stuck_reader(int ours, int theirs)
{
    static char text[2 << 20];
    char big[1001];
    unsigned long lines = 0, next = 0, n, dropped;
    cr_assert_eq(dup2(theirs, STDERR_FILENO), STDERR_FILENO);
    log_setup(LOG_INFO, LOG_TEXT);
    for (unsigned i = 0; i < STUCK_LINES; i++)
        log_info("e", F_UINT("n", i), F_STR("s", fill_to(big, 1000)));
    read_until(ours, text, sizeof text, "event=log_lines_dropped");
    log_flush();
    log_info("last", F_INT("n", 1));
    read_until(ours, text + strlen(text), sizeof text - strlen(text),
               "event=last");
    for (const char *at = text; (at = strstr(at, "event=e n=")) != NULL; at++) {
        cr_assert_eq(sscanf(at, "event=e n=%lu", &n), 1);
        cr_assert_eq(n, next++, "%.40s", at);
        lines++;
    }
    const char *gap = strstr(text, "event=log_lines_dropped count=");
    cr_assert_not_null(gap);
    cr_assert_eq(sscanf(gap, "event=log_lines_dropped count=%lu", &dropped), 1);
    cr_expect_eq(lines + dropped, STUCK_LINES, "%lu and %lu", lines, dropped);
    cr_expect_gt(lines, 200, "buffered lines are lost");
    cr_expect_null(strstr(gap, "event=e "),
                   "lines stand behind the count of dropped lines");
}

Test(log, a_pipe_that_nobody_reads_stops_no_thread)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    stuck_reader(ends[0], ends[1]);
}

Test(log, a_nonblocking_pipe_that_nobody_reads_stops_no_thread)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    stuck_reader(ends[0], ends[1]);
}

Test(log, a_socket_that_nobody_reads_stops_no_thread)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    stuck_reader(ends[0], ends[1]);
}

Test(log, a_terminal_that_nobody_reads_stops_no_thread)
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert_geq(ours, 0);
    cr_assert_eq(grantpt(ours), 0);
    cr_assert_eq(unlockpt(ours), 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
    cr_assert_geq(theirs, 0);
    stuck_reader(ours, theirs);
}

Test(log, a_stderr_that_is_closed_or_full_or_has_no_reader_is_no_trouble)
{
    int ends[2];
    log_setup(LOG_INFO, LOG_TEXT);
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[0]);
    log_info("e", F_STR("stderr", "without a reader"));
    log_flush();
    cr_assert_eq(dup2(open("/dev/full", O_WRONLY), STDERR_FILENO),
                 STDERR_FILENO);
    log_info("e", F_STR("stderr", "full"));
    log_flush();
    close(STDERR_FILENO);
    log_info("e", F_STR("stderr", "closed"));
    log_flush();
    capture();
    log_info("e", F_STR("stderr", "well"));
    log_flush();
    char *lines = lines_take(NULL);
    cr_expect_not_null(strstr(lines, "event=e stderr=well\n"), "%s", lines);
    cr_expect_not_null(strstr(lines, "event=log_lines_dropped count=3 "), "%s",
                       lines);
    free(lines);
}

/* ---- threads ---- */

static void *log_many(void *letter)
{
    char big[6001];
    memset(big, *(char *)letter, 6000);
    big[6000] = '\0';
    for (int i = 0; i < 40; i++)
        log_info("e", F_STR("s", big));
    return NULL;
}

/* Check that a line holds the letter of one thread only; return the number of
 * lines that it stands for. */
static int letters_check(const char *line)
{
    const char *value = after_event(line) + strlen("event=e s=");
    int dropped;
    if (sscanf(after_event(line), "event=log_lines_dropped count=%d",
               &dropped) == 1)
        return dropped;
    cr_assert_eq(strspn(value, (char[]){*value, '\0'}), 6000);
    cr_assert_eq(value[6000], '\n');
    return 1;
}

Test(log, lines_over_pipe_buf_of_many_threads_do_not_mix_in_a_full_pipe)
{
    int ends[2];
    pthread_t threads[4];
    char letters[] = "abcd", line[LINE_ROOM];
    cr_assert_eq(pipe(ends), 0);
    cr_assert_geq(fcntl(ends[1], F_SETPIPE_SZ, 8192), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    log_setup(LOG_INFO, LOG_TEXT);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, log_many, &letters[i]);
    FILE *reader = fdopen(ends[0], "r");
    for (int i = 0; i < 4 * 40;) {
        cr_assert_not_null(fgets(line, sizeof line, reader));
        i += letters_check(line);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    fclose(reader);
}
