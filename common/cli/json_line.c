/* json_line.c - JSON, one object a line (see json_line.h) */
#include "common/cli/json_line.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"

static bool without; /* no memory was left */

/* Complain at exit, after mqctl top has restored the terminal. */
static void loss_report(void)
{
    if (without)
        complain_memory();
}

/* Allocate, or end the program. */
static void *memory_take(size_t size)
{
    void *at = malloc(size);

    if (at)
        return at;
    without = true;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): these programs have no threads */
    exit(EX_OSERR);
}

/* jansson 2.14 does not check whether the buffer for a token could grow
 * (lex_save): it drops a byte, and may look for the closing quote behind the
 * end of the buffer. An exit there leaves files as a kill would. */
void json_needs_memory(void)
{
    atexit(loss_report);
    json_set_alloc_funcs(memory_take, free);
}

/* jansson escapes control bytes except DEL, which is escaped here. On a
 * terminal all that is not ASCII is escaped as well. Without memory, json_dumpb
 * of jansson 2.14 may leave out the name of a field (do_dump), so the size is
 * checked. */
int json_print_line(json_t *object, FILE *out)
{
    /* 15 digits print 0.1 as it is, and a time since 1970 to 10 us. */
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(15) |
                   (term_is_terminal(out) ? JSON_ENSURE_ASCII : 0);
    size_t size = json_dumpb(object, NULL, 0, flags);
    char *text = size ? malloc(size + 1) : NULL;
    bool whole = text && json_dumpb(object, text, size, flags) == size;

    json_decref(object);
    if (!whole) {
        free(text);
        return -ENOMEM;
    }
    text[size] = '\0';
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\x7f");

        fwrite(at, 1, n, out);
        at += n;
        if (*at) {
            fputs("\\u007f", out);
            at++;
        }
    }
    fputc('\n', out);
    free(text);
    return 0;
}

json_t *json_known(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

const char *json_as_text(const json_t *value, char buf[JSON_TEXT])
{
    if (!json_is_integer(value))
        return json_string_value(value);
    snprintf(buf, JSON_TEXT, "%" JSON_INTEGER_FORMAT,
             json_integer_value(value));
    return buf;
}

json_t *json_printable(const char *text)
{
    json_t *value = json_string(text);
    char *safe = NULL;
    size_t size;
    FILE *out;

    if (value || !text)
        return value;
    out = open_memstream(&safe, &size);
    if (!out)
        return NULL;
    safe_text(out, text, strlen(text), true);
    if (fclose(out) == 0)
        value = json_string(safe);
    free(safe);
    return value;
}

json_t *json_time(uint64_t wall_ns)
{
    char text[TIME_TEXT];

    return wall_ns ? json_string(time_print(wall_ns, text)) : json_null();
}

/* json_stringn refuses what is not UTF-8. */
int json_put_bytes(json_t *object, const char *name, const void *data,
                   size_t size)
{
    char name64[64], *text64;
    json_t *text = NULL;
    int err;

    errno = 0;
    if (!data)
        text = json_null();
    else if (!memchr(data, '\0', size))
        text = json_stringn(data, size);
    if (!data || text || errno == ENOMEM)
        return json_object_set_new(object, name, text) < 0 ? -ENOMEM : 0;
    text64 = base64_encode(data, size);
    snprintf(name64, sizeof name64, "%s_base64", name);
    err = json_object_set_new(object, name64,
                              text64 ? json_string(text64) : NULL);
    free(text64);
    return err < 0 ? -ENOMEM : 0;
}

int json_put_time(json_t *object, const char *name, uint64_t wall_ns)
{
    char name_ns[64];
    int err = json_object_set_new(object, name, json_time(wall_ns));

    snprintf(name_ns, sizeof name_ns, "%s_ns", name);
    err |=
        json_object_set_new(object, name_ns, json_integer((json_int_t)wall_ns));
    return err < 0 ? -ENOMEM : 0;
}

int json_put_usage(json_t *object, const struct usage *usage)
{
    double seconds = (double)usage->cpu_ns / (double)NS_PER_S;
    int err =
        json_object_set_new(object, "cpu_seconds",
                            usage->cpu_ns ? json_real(seconds) : json_null());

    err |= json_object_set_new(object, "peak_memory_bytes",
                               usage->peak_bytes
                                   ? json_integer((json_int_t)usage->peak_bytes)
                                   : json_null());
    return err < 0 ? -ENOMEM : 0;
}

/* ---- base64 ---- */

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Write four digits for each three bytes; "=" stands for a missing byte. */
char *base64_encode(const void *data, size_t size)
{
    const unsigned char *s = data;
    char *text = malloc((size + 2) / 3 * 4 + 1);
    char *out = text;

    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t three = (uint32_t)s[i] << 16;

        three |= left > 1 ? (uint32_t)s[i + 1] << 8 : 0;
        three |= left > 2 ? s[i + 2] : 0;
        *out++ = digits[three >> 18];
        *out++ = digits[three >> 12 & 63];
        *out++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[three & 63] : '=';
    }
    *out = '\0';
    return text;
}

/* Accept only the one text that base64_encode makes of a value: groups of four
 * digits, where "=" may replace the last one or two digits of the text, and all
 * unused bits are 0. */
void *base64_decode(const char *text, size_t size, size_t *out_size)
{
    size_t pad = 0, at = 0;
    unsigned char *data = malloc(size / 4 * 3 + 1);

    if (!data)
        return NULL;
    while (size >= 4 && pad < 2 && text[size - 1 - pad] == '=')
        pad++;
    for (size_t i = 0; i + 4 <= size; i += 4) {
        size_t missing = i + 4 == size ? pad : 0, k = 0;
        uint32_t value = 0;

        for (; k < 4 - missing; k++) {
            const char *digit =
                text[i + k] ? strchr(digits, text[i + k]) : NULL;

            if (!digit)
                break;
            value = value << 6 | (uint32_t)(digit - digits);
        }
        value <<= 6 * missing;
        if (k < 4 - missing || value & ((1u << 8 * missing) - 1))
            break;
        data[at++] = (unsigned char)(value >> 16);
        data[at++] = (unsigned char)(value >> 8);
        data[at++] = (unsigned char)value;
    }
    if (at != size / 4 * 3 || size % 4 != 0) {
        free(data);
        errno = EINVAL;
        return NULL;
    }
    *out_size = at - pad;
    data[*out_size] = '\0';
    return data;
}
