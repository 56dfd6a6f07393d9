/* test_header.c - the header against examples, and against a dumb model
 *
 * The model shares no code with header.c: it splits lines by hand, checks UTF-8
 * with iconv(3), finds hidden characters in a list of its own, compares numbers
 * as text, and has the field names of docs/formats/header.md. MQW_SEED=N
 * repeats a random run.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <iconv.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/message/header.h"
#include "tests/unit/cli/hidden_fixture.h"

#define ID "01JD3Z6Q9V0X8N5T2K7B4M1C3F"

/* The result of a parse, which model and header.c must agree on. */
struct verdict {
    bool good;
    size_t bytes;
    unsigned fields, x_count;
    uint64_t number[6]; /* sent size not-before expires timeout letter */
    char group[HEADER_VALUE_MAX + 1], id[ULID_TEXT], token[ULID_TEXT];
};

/* ---- the model ---- */

static bool model_text_ok(const char *text, size_t size)
{
    uint32_t points[1024];
    char *in = (char *)text, *out = (char *)points;
    size_t in_left = size, out_left = sizeof points;
    if (size < 1 || size > 256 || text[0] == ' ' || text[size - 1] == ' ')
        return false;
    iconv_t cd = iconv_open("WCHAR_T", "UTF-8");
    size_t r = iconv(cd, &in, &in_left, &out, &out_left);
    iconv_close(cd);
    if (r == (size_t)-1 || in_left)
        return false;
    /* iconv accepts code points past the end of Unicode. */
    for (uint32_t *c = points; c < (uint32_t *)(void *)out; c++) {
        if (*c > 0x10ffff || (*c & 0xfffe) == 0xfffe)
            return false;
        for (size_t i = 0; i < HIDDEN_RANGES; i++)
            if (*c >= hidden_ranges[i].first && *c <= hidden_ranges[i].last)
                return false;
    }
    return true;
}

static bool model_number(const char *v, const char *least, const char *most,
                         uint64_t *out)
{
    size_t n = strlen(v);
    if (n == 0 || strspn(v, "0123456789") != n || (v[0] == '0' && n > 1))
        return false;
    if (n < strlen(least) || (n == strlen(least) && strcmp(v, least) < 0))
        return false;
    if (n > strlen(most) || (n == strlen(most) && strcmp(v, most) > 0))
        return false;
    return sscanf(v, "%" SCNu64, out) == 1;
}

static bool model_id(const char *v, char out[ULID_TEXT])
{
    if (strlen(v) != 26 || v[0] > '7')
        return false;
    for (int i = 0; i < 27; i++)
        out[i] = (char)(v[i] >= 'a' && v[i] <= 'z' ? v[i] - 32 : v[i]);
    return strspn(out, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == 26;
}

static bool model_field(const char *name, const char *value,
                        struct verdict *out)
{
    static const char all[] = "18446744073709551615";
    static const struct {
        const char *name, *least, *most;
        unsigned bit;
        int number;
    } known[] = {
        {"id", NULL, NULL, HEADER_ID, -1},
        {"sent", "0", all, HEADER_SENT, 0},
        {"size", "0", all, HEADER_SIZE, 1},
        {"group", NULL, NULL, HEADER_GROUP, -1},
        {"not-before", "0", all, HEADER_NOT_BEFORE, 2},
        {"expires", "0", all, HEADER_EXPIRES, 3},
        {"timeout", "1", "9007199254740992", HEADER_TIMEOUT, 4},
        {"letter", "1", "9223372036854775807", HEADER_LETTER, 5},
        {"letter-token", NULL, NULL, HEADER_LETTER_TOKEN, -1},
    };
    for (int i = 0; i < 9; i++) {
        if (strcmp(name, known[i].name) != 0)
            continue;
        if (out->fields & known[i].bit)
            return false;
        out->fields |= known[i].bit;
        if (known[i].number >= 0)
            return model_number(value, known[i].least, known[i].most,
                                &out->number[known[i].number]);
        if (known[i].bit == HEADER_ID)
            return model_id(value, out->id);
        if (known[i].bit == HEADER_LETTER_TOKEN)
            return model_id(value, out->token);
        strcpy(out->group, value);
        return true;
    }
    if (strncmp(name, "x-", 2) == 0 && name[2])
        out->x_count++;
    return true;
}

static bool model_line(const char *line, size_t size, struct verdict *out)
{
    char name[33] = "", value[257] = "";
    size_t cut = 0;
    while (cut + 1 < size && (line[cut] != ':' || line[cut + 1] != ' '))
        cut++;
    if (cut + 1 >= size || cut < 1 || cut > 32)
        return false;
    memcpy(name, line, cut);
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != cut)
        return false;
    if (!model_text_ok(line + cut + 2, size - cut - 2))
        return false;
    memcpy(value, line + cut + 2, size - cut - 2);
    return model_field(name, value, out);
}

static struct verdict model_parse(const char *data, size_t size)
{
    struct verdict v = {.good = true};
    size_t start = 6;
    if (size < 6 || strncmp(data, "MQW/1\n", 6) != 0)
        return v;
    v.good = false;
    for (size_t i = 6; i < size && i < 1024; i++) {
        if (data[i] != '\n')
            continue;
        if (i == start) {
            v.bytes = i + 1;
            v.good = !(v.fields & HEADER_SIZE) || v.number[1] == size - i - 1;
            return v;
        }
        if (!model_line(data + start, i - start, &v))
            return v;
        start = i + 1;
    }
    return v;
}

/* ---- comparison ---- */

static struct verdict real_parse(const char *data, size_t size,
                                 char why[HEADER_WHY])
{
    struct header h;
    struct verdict v = {0};
    int err = header_parse(data, size, &h, why);
    cr_assert(err == 0 || err == -EBADMSG);
    v.good = err == 0;
    if (err)
        return v;
    v.bytes = h.bytes;
    v.fields = h.fields;
    v.x_count = h.x_count;
    const struct {
        unsigned bit; /* without it in `fields`, `value` is not set */
        uint64_t value;
    } numbers[] = {
        {HEADER_SENT, h.sent_ns},
        {HEADER_SIZE, h.size},
        {HEADER_NOT_BEFORE, h.not_before_ns},
        {HEADER_EXPIRES, h.expires_ns},
        {HEADER_TIMEOUT, h.timeout_ms},
        {HEADER_LETTER, h.letter},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (h.fields & numbers[i].bit)
            v.number[i] = numbers[i].value;
    if (h.fields & HEADER_GROUP)
        memcpy(v.group, h.group.at, h.group.size);
    if (h.fields & HEADER_ID)
        ulid_print(h.id, v.id);
    if (h.fields & HEADER_LETTER_TOKEN)
        ulid_print(h.letter_token, v.token);
    return v;
}

static void dump(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        fprintf(stderr, data[i] >= ' ' && data[i] <= '~' ? "%c" : "\\x%02x",
                (unsigned char)data[i]);
    fprintf(stderr, "\n");
}

static bool same(const struct verdict *a, const struct verdict *b)
{
    if (a->good != b->good || !a->good)
        return a->good == b->good;
    if (a->bytes == 0) /* the rest is not set where there is no header */
        return b->bytes == 0 && b->fields == 0 && b->x_count == 0;
    return a->bytes == b->bytes && a->fields == b->fields &&
           a->x_count == b->x_count && !strcmp(a->group, b->group) &&
           !strcmp(a->id, b->id) && !strcmp(a->token, b->token) &&
           !memcmp(a->number, b->number, sizeof a->number);
}

/* Parse with the model and with header.c; true if they agree. The text is in a
 * heap block of its size, so that the address sanitizer sees a read past it. */
static bool both(const char *text, size_t size, bool *good)
{
    char why[HEADER_WHY] = "";
    char *data = malloc(size ? size : 1);
    memcpy(data, text, size);
    struct verdict model = model_parse(data, size);
    struct verdict real = real_parse(data, size, why);
    size_t whole = header_message_size(data, size);
    bool ok = same(&model, &real);
    if (ok && model.good)
        ok = whole == (model.fields & HEADER_SIZE ? size : 0);
    if (ok && !model.good) /* every refusal says where, and is not cut */
        ok = strncmp(why, "line ", 5) == 0 && strlen(why) < HEADER_WHY - 1;
    if (!ok) {
        fprintf(stderr, "model %d, header.c %d (%s): ", model.good, real.good,
                why);
        dump(data, size);
    }
    free(data);
    *good = model.good;
    return ok;
}

/* ---- random messages ---- */

static uint64_t seed;

static uint64_t rnd(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 11) % below;
}

static void seed_start(void)
{
    const char *given = getenv("MQW_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 10)
                 : (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)now.tv_sec;
    seed += seed == 0;
    fprintf(stderr, "MQW_SEED=%" PRIu64 "\n", seed);
}

static const char *const pieces[] = {
    "id: " ID "\n",
    "id: 01jd3z6q9v0x8n5t2k7b4m1c3f\n",
    "sent: 1732126091123456789\n",
    "size: 5\n",
    "group: account-7\n",
    "group: \xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8c\n",
    "not-before: 0\n",
    "expires: 18446744073709551615\n",
    "timeout: 9007199254740992\n",
    "letter: 9223372036854775807\n",
    "letter-token: 7ZZZZZZZZZZZZZZZZZZZZZZZZZ\n",
    "x-trace: a: b  c\n",
    "x-: not an x line\n",
    "new-field: 17\n",
};

static const char *const nasty[] = {
    "\n",
    "\n\n",
    ": ",
    ":",
    " ",
    "\r",
    "\t",
    "\x7f",
    "0",
    "9",
    "-",
    "+",
    "\xc2\x80",
    "\xc2\xa0",
    "\xe2\x80\xa8",
    "\xe2\x80\xa9",
    "\xe2\x80\x8e",
    "\xef\xb8\x8f",
    "\xf3\xa0\x81\x81",
    "\xe2\x80\xae",
    "\xe2\x81\xa6",
    "\xe2\x81\xaa",
    "\xed\xa0\x80",
    "\xc0\xaf",
    "\xe0\x80\xaf",
    "\xf0\x80\x80",
    "\xf4\x8f\xbf\xbf",
    "\xf4\x90\x80",
    "\xff",
    "\xef\xbf\xbf",
    "\x1b[2J",
    "size: 5\n",
    "18446744073709551616",
};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct text {
    char at[4096];
    size_t size;
};

static void splice(struct text *t, size_t at, size_t cut, const char *in,
                   size_t n)
{
    if (cut > t->size - at)
        cut = t->size - at;
    if (t->size - cut + n > sizeof t->at)
        return;
    memmove(t->at + at + n, t->at + at + cut, t->size - at - cut);
    memcpy(t->at + at, in, n);
    t->size = t->size - cut + n;
}

static void append(struct text *t, const char *text)
{
    splice(t, t->size, 0, text, strlen(text));
}

static void message_make(struct text *t)
{
    t->size = 0;
    append(t, "MQW/1\n");
    for (uint64_t n = rnd(9); n > 0; n--)
        append(t, pieces[rnd(COUNT(pieces))]);
    if (rnd(8) == 0) { /* near the limits of a value and of the whole */
        append(t, "x-long: ");
        for (uint64_t n = 250 + rnd(10); n > 0; n--)
            append(t, "v");
        append(t, "\n");
    }
    while (rnd(64) == 0 || (t->size > 700 && t->size < 1010 + rnd(20)))
        append(t, "x-pad: 123\n");
    append(t, "\nhello");
}

static void message_mutate(struct text *t)
{
    size_t at = (size_t)rnd(t->size + 1);
    const char *bad = nasty[rnd(COUNT(nasty))];
    char byte = (char)rnd(256);
    switch (rnd(6)) {
    case 0:
        splice(t, at, 1, &byte, 1);
        break;
    case 1:
        splice(t, at, 1 + (size_t)rnd(4), "", 0);
        break;
    case 2:
        splice(t, at, 0, bad, strlen(bad));
        break;
    case 3:
        splice(t, at, (size_t)rnd(4), bad, strlen(bad));
        break;
    case 4:
        t->size = at;
        break;
    default: /* a longer run of one byte: names and values over their limit */
        for (uint64_t n = rnd(300); n > 0; n--)
            splice(t, at, 0, "7", 1);
    }
}

Test(header, agrees_with_a_dumb_model_on_mutated_headers)
{
    struct text t;
    bool good;
    size_t goods = 0, rounds = 60000;
    seed_start();
    for (size_t i = 0; i < rounds; i++) {
        message_make(&t);
        for (uint64_t n = rnd(4); n > 0; n--)
            message_mutate(&t);
        cr_assert(both(t.at, t.size, &good), "round %zu", i);
        goods += good;
    }
    /* Both outcomes must be common, or the comparison proves little. */
    cr_assert(goods > rounds / 10 && goods < rounds * 9 / 10, "%zu", goods);
}

Test(header, every_code_point_is_judged_as_the_model_does)
{
    for (uint32_t c = 0; c < 0x120000; c += c < 0x3000 ? 1 : 37) {
        unsigned char u[4] = {(unsigned char)(0xf0 | c >> 18),
                              (unsigned char)(0x80 | (c >> 12 & 63)),
                              (unsigned char)(0x80 | (c >> 6 & 63)),
                              (unsigned char)(0x80 | (c & 63))};
        char value[6] = "a";
        size_t skip = c < 0x80 ? 3 : c < 0x800 ? 2 : c < 0x10000 ? 1 : 0;
        for (size_t less = 0; less <= skip; less++) { /* overlong forms too */
            memcpy(value + 1, u + less, 4 - less);
            if (less == 3)
                value[1] = (char)c;
            else if (less == 2)
                value[1] = (char)(0xc0 | c >> 6);
            else if (less == 1)
                value[1] = (char)(0xe0 | c >> 12);
            size_t size = 5 - less;
            cr_assert(header_value_ok(value, size) ==
                          model_text_ok(value, size),
                      "U+%04X in %zu bytes", c, size - 1);
        }
    }
}

/* Return true if a value with this character is accepted: alone, as a group in
 * a header, and as an x- value in a header, which must all agree. */
static bool accepts(uint32_t point)
{
    char value[8] = "a", message[64], why[HEADER_WHY];
    size_t n = 1 + hidden_put(value + 1, point), size = 0;
    bool ok = header_value_ok(value, n), parsed[2];
    struct header h;
    for (int i = 0; i < 2; i++) {
        size = (size_t)sprintf(message, "MQW/1\n%s: ", i ? "x-a" : "group");
        memcpy(message + size, value, n);
        memcpy(message + size + n, "\n\n", 2);
        parsed[i] = header_parse(message, size + n + 2, &h, why) == 0;
        if (point != '\n') /* a newline breaks the header for another reason */
            cr_assert(parsed[i] || strstr(why, "is not printable UTF-8"), "%s",
                      why);
    }
    cr_assert_eq(parsed[0], ok, "U+%04X", point);
    cr_assert_eq(parsed[1], ok, "U+%04X", point);
    return ok;
}

static void is_refused(uint32_t point, const char *what)
{
    cr_assert_not(accepts(point), "U+%04X, %s", point, what);
}

static void is_accepted(uint32_t point, const char *what)
{
    if (point != ' ' && !(point >= 0xD800 && point <= 0xDFFF))
        cr_assert(accepts(point), "U+%04X, beside %s", point, what);
}

Test(header, both_ends_of_each_hidden_range_are_refused)
{
    hidden_each(is_refused, is_accepted);
}

Test(header, a_character_that_the_size_cuts_is_no_character)
{
    cr_assert(header_value_ok("a\xe2\x82\xac", 4));
    cr_assert(!header_value_ok("a\xe2\x82\xac", 3));
    cr_assert(!header_value_ok("a\xe2\x82\xac", 2));
}

/* ---- examples ---- */

static int parse(const char *text, struct header *h, char why[HEADER_WHY])
{
    return header_parse(text, strlen(text), h, why);
}

Test(header, the_example_of_the_contract_is_read)
{
    static const char text[] = "MQW/1\n"
                               "id: " ID "\n"
                               "sent: 1732126091123456789\n"
                               "size: 12\n"
                               "group: account-7\n"
                               "not-before: 1732126121000000000\n"
                               "expires: 1732129691000000000\n"
                               "timeout: 5000\n"
                               "letter: 17\n"
                               "letter-token: 7zzzzzzzzzzzzzzzzzzzzzzzz0\n"
                               "x-trace: abc\n"
                               "\n"
                               "hello world!";
    struct header h;
    char why[HEADER_WHY], id[ULID_TEXT];
    cr_assert(parse(text, &h, why) == 0);
    cr_assert(strcmp(text + h.bytes, "hello world!") == 0);
    cr_assert(strcmp(ulid_print(h.id, id), ID) == 0);
    cr_assert(h.sent_ns == UINT64_C(1732126091123456789) && h.size == 12);
    cr_assert(h.group.size == 9 && memcmp(h.group.at, "account-7", 9) == 0);
    cr_assert(h.not_before_ns == UINT64_C(1732126121000000000));
    cr_assert(h.expires_ns == UINT64_C(1732129691000000000));
    cr_assert(h.timeout_ms == 5000 && h.letter == 17 && h.x_count == 1);
    cr_assert(strcmp(ulid_print(h.letter_token, id),
                     "7ZZZZZZZZZZZZZZZZZZZZZZZZ0") == 0);
    cr_assert(h.fields == 0x1ff);
}

Test(header, bytes_without_the_magic_line_are_a_body)
{
    static const char *const bodies[] = {
        "", "M", "MQW/1", "mqw/1\n", "MQW/2\n", "MQW/1\r\n\n", " MQW/1\n\n"};
    struct header h;
    for (size_t i = 0; i < COUNT(bodies); i++) {
        memset(&h, 0xff, sizeof h);
        cr_assert(parse(bodies[i], &h, NULL) == 0, "%zu", i);
        cr_assert(h.bytes == 0 && h.fields == 0 && h.x_count == 0, "%zu", i);
    }
    cr_assert(header_parse("", 0, &h, NULL) == 0);
}

Test(header, an_empty_header_is_a_header_and_binary_bodies_are_left_alone)
{
    static const char text[] = "MQW/1\n\n\0\xff\n\nid: x\n";
    struct header h;
    cr_assert(header_parse(text, sizeof text - 1, &h, NULL) == 0);
    cr_assert(h.bytes == 7 && h.fields == 0);
}

Test(header, refusals_name_line_field_value_and_what_is_allowed)
{
    static const struct {
        const char *text, *says[4];
    } cases[] = {
        {"MQW/1\nsize: x\n\n",
         {"line 2", "size", "\"x\"", "0 to 18446744073709551615"}},
        {"MQW/1\nx-a: b\nsize: 3\n\nfour", {"line 3", "size", "\"3\"", "4"}},
        {"MQW/1\ntimeout: 0\n\n",
         {"line 2", "timeout", "\"0\"", "1 to 9007199254740992"}},
        {"MQW/1\nletter: 9223372036854775808\n\n",
         {"line 2", "letter", "9223372036854775808",
          "1 to 9223372036854775807"}},
        {"MQW/1\nletter-token: 17\n\n",
         {"line 2", "letter-token", "\"17\"", "ULID"}},
        {"MQW/1\nid: 8ZZZZZZZZZZZZZZZZZZZZZZZZZ\n\n",
         {"line 2", "id", "8ZZZ", "ULID"}},
        {"MQW/1\ngroup: a\ngroup: b\n\n", {"line 3", "group", "\"b\"", "once"}},
        {"MQW/1\nGroup: a\n\n", {"line 2", "\"Group\"", "a-z", "32"}},
        {"MQW/1\nnonsense\n\n", {"line 2", "nonsense", "name: value", ""}},
        {"MQW/1\ngroup: \n\n", {"line 2", "group", "empty", "1 to 256"}},
        {"MQW/1\ngroup:  a\n\n", {"line 2", "group", "\" a\"", "space"}},
        {"MQW/1\nx-a: b\x1b[2J\n\n", {"line 2", "x-a", "\"b", "printable"}},
        {"MQW/1\nx-a: b\n", {"line 3", "empty line", "13", "1024"}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct header h;
        char why[HEADER_WHY] = "";
        cr_assert(parse(cases[i].text, &h, why) == -EBADMSG, "case %zu", i);
        for (size_t j = 0; j < 4; j++)
            cr_assert(strstr(why, cases[i].says[j]), "case %zu: \"%s\" in: %s",
                      i, cases[i].says[j], why);
        cr_assert(!strchr(why, '\x1b') && !strchr(why, '\n'), "case %zu", i);
    }
}

Test(header, numbers_are_plain_decimal)
{
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "01",
                                      "00",
                                      "1 2",
                                      "0x1",
                                      "1e3",
                                      "1.",
                                      "18446744073709551616",
                                      "99999999999999999999",
                                      "100000000000000000000"};
    struct header h;
    char text[128];
    for (size_t i = 0; i < COUNT(bad); i++) {
        snprintf(text, sizeof text, "MQW/1\nsent: %s\n\n", bad[i]);
        cr_assert(parse(text, &h, NULL) == -EBADMSG, "%s", bad[i]);
    }
    cr_assert(parse("MQW/1\nsent: 0\n\n", &h, NULL) == 0 && h.sent_ns == 0);
    cr_assert(parse("MQW/1\nsent: 18446744073709551615\n\n", &h, NULL) == 0 &&
              h.sent_ns == UINT64_MAX);
}

/* Write a header of exactly `bytes` bytes, then `body`. Returns the size. */
static size_t padded(char *buf, size_t bytes, const char *body)
{
    size_t at = (size_t)sprintf(buf, "MQW/1\n");
    while (bytes - at > 300)
        at += (size_t)sprintf(buf + at, "x-p: %0200d\n", 1);
    at += (size_t)sprintf(buf + at, "x-p: %0*d\n\n", (int)(bytes - at - 7), 1);
    cr_assert(at == bytes);
    strcpy(buf + at, body);
    return at + strlen(body);
}

Test(header, the_limit_is_1024_bytes_with_the_empty_line)
{
    char buf[2048];
    struct header h;
    size_t size = padded(buf, HEADER_MAX, "body\n\n");
    cr_assert(header_parse(buf, size, &h, NULL) == 0 && h.bytes == HEADER_MAX);
    size = padded(buf, HEADER_MAX + 1, "body\n\n");
    cr_assert(header_parse(buf, size, &h, NULL) == -EBADMSG);
}

Test(header, the_size_of_a_message_of_unknown_length_comes_from_its_header)
{
    char room[64];
    memset(room, 0xff, sizeof room); /* like the fill of a slot */
    memcpy(room, "MQW/1\nsize: 4\n\nbody", 19);
    cr_assert(header_message_size(room, sizeof room) == 19);
    cr_assert(header_message_size(room, 19) == 19);
    cr_assert(header_message_size(room, 18) == 0);
    memcpy(room, "MQW/1\nsize: 0\n\n", 15);
    cr_assert(header_message_size(room, sizeof room) == 15);
    memcpy(room, "MQW/1\nsize: 18446744073709551615\n\n", 34);
    cr_assert(header_message_size(room, sizeof room) == 0);
    memcpy(room, "MQW/1\nx-a: b\n\n", 14);
    cr_assert(header_message_size(room, sizeof room) == 0);
    memcpy(room, "MQW/1\nsize: 4\nsize: 4\n\n", 23);
    cr_assert(header_message_size(room, sizeof room) == 0);
    cr_assert(header_message_size("hello", 5) == 0);
    cr_assert(header_message_size(room, 0) == 0);
}

Test(header, x_lines_come_in_order_and_only_they)
{
    static const char text[] = "MQW/1\nx-a: 1\nid: " ID "\nx-: no\nxy: no\n"
                               "x-b: 2: 3\nx-a: 4\n\nx-body: 5\n";
    static const char *const want[] = {"x-a=1", "x-b=2: 3", "x-a=4"};
    struct header h;
    struct header_text name, value;
    size_t cursor = 0, n = 0;
    char got[64];
    cr_assert(parse(text, &h, NULL) == 0 && h.x_count == 3);
    while (header_next_x(text, &h, &cursor, &name, &value)) {
        snprintf(got, sizeof got, "%.*s=%.*s", (int)name.size, name.at,
                 (int)value.size, value.at);
        cr_assert(n < 3 && strcmp(got, want[n++]) == 0, "%s", got);
    }
    cr_assert(n == 3 && !header_next_x(text, &h, &cursor, &name, &value));
    h.bytes = 0; /* a message without a header */
    cursor = 0;
    cr_assert(!header_next_x("body", &h, &cursor, &name, &value));
}

Test(header, all_lines_come_in_order)
{
    static const char text[] = "MQW/1\nx-a: 1\nid: " ID "\nother: 2: 3\n"
                               "x-: 4\n\nbody: 5\n";
    static const char *const want[] = {"x-a=1", ("id=" ID), "other=2: 3",
                                       "x-=4"};
    struct header h;
    struct header_text name, value;
    size_t cursor = 0, n = 0;
    char got[64];
    cr_assert(parse(text, &h, NULL) == 0);
    while (header_next(text, &h, &cursor, &name, &value)) {
        snprintf(got, sizeof got, "%.*s=%.*s", (int)name.size, name.at,
                 (int)value.size, value.at);
        cr_assert(n < 4 && strcmp(got, want[n++]) == 0, "%s", got);
    }
    cr_assert(n == 4 && !header_next(text, &h, &cursor, &name, &value));
    h.bytes = 0; /* a message without a header */
    cursor = 0;
    cr_assert(!header_next("body", &h, &cursor, &name, &value));
}

static struct header_text text_of(const char *text)
{
    return (struct header_text){text, strlen(text)};
}

Test(header, what_is_written_is_read_back)
{
    struct header h = {.fields = 0x1ff,
                       .sent_ns = UINT64_MAX,
                       .size = 4,
                       .expires_ns = 1,
                       .timeout_ms = 1,
                       .letter = INT64_MAX,
                       .group = text_of("g 1")};
    struct header_x x[] = {{text_of("x-a"), text_of("1")},
                           {text_of("x-b"), text_of("\xe2\x82\xac")}};
    struct header back;
    char buf[HEADER_MAX + 4];
    cr_assert(ulid_parse(ID, 26, &h.id) == 0);
    memset(&h.letter_token, 0xff, sizeof h.letter_token);
    int n = header_write(buf, HEADER_MAX, &h, x, 2);
    cr_assert(n > 0);
    memcpy(buf + n, "body", 4);
    cr_assert(header_parse(buf, (size_t)n + 4, &back, NULL) == 0);
    cr_assert(back.bytes == (size_t)n && back.fields == 0x1ff);
    cr_assert(memcmp(&back.id, &h.id, sizeof h.id) == 0);
    cr_assert(memcmp(&back.letter_token, &h.letter_token, sizeof h.id) == 0);
    cr_assert(back.sent_ns == h.sent_ns && back.expires_ns == 1);
    cr_assert(back.not_before_ns == 0 && back.timeout_ms == 1);
    cr_assert(back.letter == INT64_MAX && back.x_count == 2);
    cr_assert(back.group.size == 3);
}

Test(header, the_id_before_an_edit_is_written_and_read)
{
    static const char text[] = "MQW/1\nedited-from: " ID "\n\n";
    struct header h;
    char buf[HEADER_MAX], why[HEADER_WHY];
    cr_assert(parse(text, &h, NULL) == 0);
    cr_assert(h.fields == HEADER_EDITED_FROM);
    cr_assert(header_write(buf, sizeof buf, &h, NULL, 0) == sizeof text - 1);
    cr_assert(memcmp(buf, text, sizeof text - 1) == 0);
    cr_assert(parse("MQW/1\nedited-from: me\n\n", &h, why) == -EBADMSG);
}

Test(header, writing_needs_room_and_good_values)
{
    struct header h = {.fields = HEADER_GROUP, .group = text_of("g")};
    struct header_x x = {text_of("x-a"), text_of("1")};
    char buf[HEADER_MAX * 2];
    int n = header_write(buf, sizeof buf, &h, &x, 1);
    for (int room = 0; room < n; room++) {
        char *exact = malloc((size_t)room + 1);
        cr_assert(header_write(exact, (size_t)room, &h, &x, 1) == -EMSGSIZE);
        free(exact);
    }
    cr_assert(header_write(buf, (size_t)n, &h, &x, 1) == n);
    h.group = text_of("two\nlines");
    cr_assert(header_write(buf, sizeof buf, &h, NULL, 0) == -EINVAL);
    h = (struct header){.fields = HEADER_TIMEOUT};
    cr_assert(header_write(buf, sizeof buf, &h, NULL, 0) == -EINVAL);
    h = (struct header){.fields = HEADER_LETTER, .letter = UINT64_MAX};
    cr_assert(header_write(buf, sizeof buf, &h, NULL, 0) == -EINVAL);
    h.fields = 0;
    x.value = text_of(" 1");
    cr_assert(header_write(buf, sizeof buf, &h, &x, 1) == -EINVAL);
}

Test(header, writing_never_passes_1024_bytes)
{
    struct header h = {0};
    struct header_x x[8];
    char value[HEADER_VALUE_MAX], buf[4096];
    memset(value, 'v', sizeof value);
    for (size_t i = 0; i < 8; i++)
        x[i] = (struct header_x){text_of("x-a"), {value, sizeof value}};
    cr_assert(header_write(buf, sizeof buf, &h, x, 3) > 0);
    cr_assert(header_write(buf, sizeof buf, &h, x, 4) == -EMSGSIZE);
    x[3].value.size = HEADER_MAX - (7 + 3 * 262) - 6;
    cr_assert(header_write(buf, sizeof buf, &h, x, 4) == HEADER_MAX);
    x[3].value.size++;
    cr_assert(header_write(buf, sizeof buf, &h, x, 4) == -EMSGSIZE);
}

Test(header, names_of_x_lines)
{
    static const char *const good[] = {"x-a", "x--", "x-0",
                                       "x-345678901234567890123456789012"};
    static const char *const bad[] = {
        "",    "x",     "x-",   "xa", "X-a",
        "x-A", "x-a b", "x-\n", "id", "x-3456789012345678901234567890123"};
    for (size_t i = 0; i < COUNT(good); i++)
        cr_assert(header_x_name_ok(good[i], strlen(good[i])), "%s", good[i]);
    for (size_t i = 0; i < COUNT(bad); i++)
        cr_assert(!header_x_name_ok(bad[i], strlen(bad[i])), "%s", bad[i]);
}

/* ---- settings of one message, in its header ---- */

static int read_line(const char *line, struct header *h)
{
    char text[512];
    int n = snprintf(text, sizeof text, "MQW/1\n%s\n\nbody", line);
    return header_parse(text, (size_t)n, h, (char[HEADER_WHY]){0});
}

Test(header, attempts_backoff_and_key_of_one_message)
{
    static const char all[] = "MQW/1\nmax-attempts: 3\nbackoff: exp:1s,5m\n"
                              "unique: order-17\nunique-for: 60000\n\n";
    struct header h, back;
    struct backoff b;
    char buf[HEADER_MAX];
    cr_assert(header_parse(all, sizeof all - 1, &h, NULL) == 0);
    cr_assert(h.max_attempts == 3 && h.unique_for_ms == 60000);
    cr_assert(h.unique.size == 8 && !memcmp(h.unique.at, "order-17", 8));
    cr_assert(header_backoff(h.backoff, &b) && b.exponential);
    int n = header_write(buf, sizeof buf, &h, NULL, 0);
    cr_assert(n > 0 && header_parse(buf, (size_t)n, &back, NULL) == 0);
    cr_assert(back.fields == h.fields && back.unique.size == 8);
    cr_assert(read_line("backoff: 1s,5s,30s", &h) == 0);
}

Test(header, attempts_backoff_and_key_that_are_none)
{
    static const char *const bad[] = {
        "max-attempts: 0", "max-attempts: 1000001", "backoff: exp:5m,1s",
        "backoff: ,",      "unique-for: 0",         "unique: ",
    };
    struct header h;
    for (size_t i = 0; i < COUNT(bad); i++)
        cr_assert(read_line(bad[i], &h) == -EBADMSG, "%s", bad[i]);
}
