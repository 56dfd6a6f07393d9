/* json_line.c - see json_line.h */
#include "common/text/json_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/text/base64.h"
#include "common/text/complain.h"
#include "common/text/term.h"

static bool without;

/* told - the last thing of all, when a screen is a terminal again */
static void told(void)
{
    if (without)
        complain_memory();
}

/* alloc - or the end of the program */
static void *alloc(size_t size)
{
    void *at = malloc(size);

    if (at)
        return at;
    without = true;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): these programs have no threads */
    exit(EX_OSERR);
}

/* json_needs_memory - jansson 2.14 does not look whether the buffer for a token
 * could grow (lex_save): a byte is left out, and the search for the closing
 * quote may go on behind the end.
 * Crash: as after a kill at that place. */
void json_needs_memory(void)
{
    atexit(told);
    json_set_alloc_funcs(alloc, free);
}

/* text_of - what json_dumps gives, which without memory may leave out the name
 * of a field (do_dump of jansson 2.14 does not look) */
static char *text_of(const json_t *object, size_t flags)
{
    size_t size = json_dumpb(object, NULL, 0, flags);
    char *text = size ? malloc(size + 1) : NULL;

    if (!text)
        return NULL;
    if (json_dumpb(object, text, size, flags) == size) {
        text[size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

/* json_print_line - JSON text. jansson escapes control bytes but DEL; on a
 * terminal everything else that could hide something is escaped, too. */
int json_print_line(json_t *object, FILE *out)
{
    char *text = text_of(
        object, JSON_COMPACT | (term_is_terminal(out) ? JSON_ENSURE_ASCII : 0));

    json_decref(object);
    if (!text)
        return -ENOMEM;
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

/* json_put_bytes - json_stringn refuses what is not UTF-8 */
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
    if (text || errno == ENOMEM)
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
