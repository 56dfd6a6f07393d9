/* html.c - see html.h */
#include "scripts/mqctl/serve/ask/html.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"

void html_attribute(FILE *out, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "&<>\"'");

        fwrite(text, 1, n, out);
        text += n;
        if (*text)
            fprintf(out, "&#%d;", (unsigned char)*text++);
    }
}

void html_text(FILE *out, const char *text)
{
    char *safe = NULL;
    size_t size = 0;
    FILE *shown = open_memstream(&safe, &size);

    if (!shown)
        return;
    safe_text(shown, text, strlen(text), false);
    if (fclose(shown) == 0)
        html_attribute(out, safe);
    free(safe);
}

void html_url(FILE *out, const char *text)
{
    for (; *text; text++)
        if (isalnum((unsigned char)*text) || strchr("-._~", *text))
            fputc(*text, out);
        else
            fprintf(out, "%%%02X", (unsigned char)*text);
}

/* Encode the name of a queue twice, because that of a queue on a broker has
 * slashes (path.c). */
void html_queue_url(FILE *out, const char *queue)
{
    char *once = NULL;
    size_t size = 0;
    FILE *in;

    fputs("/q/", out);
    if (*queue == '/') {
        html_url(out, queue + 1);
        return;
    }
    in = open_memstream(&once, &size);
    if (!in)
        return;
    html_url(in, queue);
    if (fclose(in) == 0)
        html_url(out, once);
    free(once);
}

void html_duration(FILE *out, double ns)
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {
        {3600e9, 3600e9, "h"}, {60e9, 60e9, "min"},   {1e9, 1e9, "s"},
        {1e6, 1e6, "ms"},      {0, 1e3, "\302\265s"},
    };
    size_t i = 0;

    if (ns < 0) {
        fputs("-", out);
        return;
    }
    while (ns < units[i].from)
        i++;
    fprintf(out, "%.*f %s", ns / units[i].unit < 10 ? 1 : 0, ns / units[i].unit,
            units[i].name);
}

const char *member_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

double member_number(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);

    return json_is_number(v) ? json_number_value(v) : -1;
}

void html_value(FILE *out, const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);

    if (json_is_string(v))
        html_text(out, json_string_value(v));
    else if (json_is_integer(v))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        fprintf(out, "%.1f", json_real_value(v));
    else if (json_is_boolean(v))
        fputs(json_is_true(v) ? "yes" : "no", out);
    else
        fputs("-", out);
}

void html_command(FILE *out, const char *what, const char *queue,
                  const char *rest)
{
    fputs("<code class=\"command\">", out);
    html_text(out, what);
    fputc(' ', out);
    html_text(out, SHELL_QUEUE(queue));
    if (*rest) {
        fputc(' ', out);
        html_text(out, SHELL_QUEUE(rest));
    }
    fputs("</code>", out);
}

void html_troubles(FILE *out, const json_t *data)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(data, "troubles"), i, one)
    {
        fputs("<p class=\"finding warn\">", out);
        html_text(out, json_string_value(one));
        fputs("</p>", out);
    }
}

void html_fact(FILE *out, const char *name, const json_t *o, const char *field)
{
    size_t n = strlen(field);
    const char *kind = strcmp(field, "last_error") == 0 ||
                               strcmp(field, "error_line") == 0 ||
                               strcmp(field, "message_id") == 0
                           ? " class=\"full\""
                           : "";
    const char *time =
        n > 3 && strcmp(field + n - 3, "_at") == 0 ? " class=\"time\"" : "";

    fprintf(out, "<div%s><dt>%s</dt><dd data-f=\"%s\"%s>", kind, name, field,
            time);
    html_value(out, o, field);
    fputs("</dd></div>", out);
}
