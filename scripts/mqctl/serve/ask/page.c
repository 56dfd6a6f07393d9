/* page.c - fills the HTML pages from JSON (see ask.h)
 *
 * A page is a file of scripts/mqctl/serve/web. These marks in it are replaced
 * by members of a JSON object:
 *
 *   {name}     the value in readable form, "-" if it is null
 *   {t:name}   the text, nothing if it is null
 *   {a:name}   the text as the value of an attribute
 *   {u:name}   the text in a URL; {g:name}: as a glob for this text only
 *   {q:name}   the queue of that name in a URL
 *   {w:name}   the text as a word of a command
 *   {d:name}   a duration in ns; {m:name}: in ms
 *   {#name} {/name}    a part, once for each element of a list; a name in it is
 *                      a member of the element. If the value is no list: the
 *                      part once, if the value is not empty
 *   {?name} {/?name}   a part that is shown if the value is not empty
 *   {^name} {/name}    a part that is shown if the value is empty
 *   {>page}            another page
 *
 * A name is NAME or NAME.NAME, "." an element itself, and page.NAME a member of
 * the whole page. No part contains another part of the same kind and name.
 * Every value is escaped, because senders and handlers wrote the text.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/message/error_text.h"
#include "scripts/mqctl/serve/ask/ask.h"

/* ---- escaping values for HTML ---- */

/* Print text escaped for HTML and otherwise unchanged: scripts read it and
 * forms send it back. */
static void html_attribute(FILE *out, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "&<>\"'");

        fwrite(text, 1, n, out);
        text += n;
        if (*text)
            fprintf(out, "&#%d;", (unsigned char)*text++);
    }
}

/* Print text for reading: control and invisible characters become visible
 * escapes. */
static void html_text(FILE *out, const char *text)
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

/* Print a segment of a path, or a value of a query. With `glob`, also escape
 * the special characters of a glob. */
static void html_url(FILE *out, const char *text, bool glob)
{
    for (; *text; text++) {
        if (glob && strchr("\\*?[", *text))
            fputs("%5C", out);
        if (isalnum((unsigned char)*text) || strchr("-._~", *text))
            fputc(*text, out);
        else
            fprintf(out, "%%%02X", (unsigned char)*text);
    }
}

/* Print a queue as a segment of a path, without the slash that its name begins
 * with. The name of a queue on a broker has more slashes, so it is encoded
 * twice (path.c). */
static void html_queue_url(FILE *out, const char *queue)
{
    char *once = NULL;
    size_t size = 0;
    FILE *in = *queue == '/' ? NULL : open_memstream(&once, &size);

    if (!in) {
        html_url(out, queue + (*queue == '/'), false);
        return;
    }
    html_url(in, queue, false);
    if (fclose(in) == 0)
        html_url(out, once, false);
    free(once);
}

/* Print "820 us" or "1.2 s"; "-" below 0. */
static void html_duration(FILE *out, double ns)
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

/* Print a value in readable form; "-" if it is null. */
static void html_value(FILE *out, const json_t *v)
{
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

/* ---- filling a page ---- */

/* Return a text member; "" if it is missing. */
static const char *member_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

/* Find the value that a name in a page stands for. `here` is the element of the
 * list around it, or the page. */
static const json_t *name_resolve(const char *name, const json_t *page,
                                  const json_t *here)
{
    const char *dot = strchr(name, '.');
    char first[32];

    if (strcmp(name, ".") == 0)
        return here;
    if (strncmp(name, "page.", 5) == 0)
        return json_object_get(page, name + 5);
    if (!dot)
        return json_object_get(here, name);
    snprintf(first, sizeof first, "%.*s", (int)(dot - name), name);
    return json_object_get(json_object_get(here, first), dot + 1);
}

/* Return true if a value is true, positive or not empty. */
static bool value_has_content(const json_t *v)
{
    return json_is_true(v) || json_number_value(v) > 0 ||
           json_string_length(v) > 0 || json_array_size(v) > 0;
}

/* Print a value in the form that `kind` asks for. */
static void placeholder_print(FILE *out, char kind, const json_t *v)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    double number = json_is_number(v) ? json_number_value(v) : -1;

    switch (kind) {
    case 't':
        html_text(out, text);
        break;
    case 'a':
        html_attribute(out, text);
        break;
    case 'u':
    case 'g':
        html_url(out, text, kind == 'g');
        break;
    case 'q':
        html_queue_url(out, text);
        break;
    case 'w':
        html_text(out, SHELL_QUEUE(text));
        break;
    case 'd':
    case 'm':
        html_duration(out, kind == 'm' ? number * 1e6 : number);
        break;
    default:
        html_value(out, v);
    }
}

/* Return the text of a page. */
static const char *page_find(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < serve_file_count; i++)
        if (strncmp(serve_files[i].name, name, n) == 0 &&
            strcmp(serve_files[i].name + n, ".html") == 0)
            return (const char *)serve_files[i].bytes;
    return "";
}

/* Print the part of a page up to `end`. */
static void page_fill(FILE *out, const char *html, const char *end,
                      const json_t *page, const json_t *here)
{
    while (html < end) {
        size_t n = strcspn(html, "{");
        char kind = '\0', name[32], close[40];
        const char *part, *other;
        const json_t *v, *one;
        size_t i;

        if (html + n >= end)
            n = (size_t)(end - html);
        fwrite(html, 1, n, out);
        html += n;
        if (html == end)
            return;
        html++;
        if (strchr("#?^>", *html)) {
            kind = *html++;
        } else if (html[1] == ':') {
            kind = *html;
            html += 2;
        }
        n = strcspn(html, "}");
        snprintf(name, sizeof name, "%.*s", (int)n, html);
        html += n + 1;
        v = name_resolve(name, page, here);
        if (kind == '>') {
            other = page_find(name);
            page_fill(out, other, other + strlen(other), page, page);
            continue;
        }
        if (!kind || !strchr("#?^", kind)) {
            placeholder_print(out, kind, v);
            continue;
        }
        snprintf(close, sizeof close, "{/%s%s}", kind == '?' ? "?" : "", name);
        part = html;
        html = strstr(part, close);
        if (kind == '#' && json_is_array(v)) {
            json_array_foreach(v, i, one)
            {
                page_fill(out, part, html, page, one);
            }
        } else if (value_has_content(v) == (kind != '^')) {
            page_fill(out, part, html, page, here);
        }
        html += strlen(close);
    }
}

/* Fill a page from a JSON object and print it. Frees the object. */
static void page_put(FILE *out, const char *name, json_t *page)
{
    const char *html = page_find(name);

    page_fill(out, html, html + strlen(html), page, page);
    json_decref(page);
}

/* ---- what pages show in addition to the API's data ---- */

/* Add the warnings of mqctl doctor for a queue. NULL: for all queues. */
static void findings_add(const struct serve_ask *a, json_t *page,
                         const char *queue)
{
    struct serve_ask one = *a;
    json_t *warnings = json_array(), *all, *f;
    struct problem p;
    size_t i;

    one.query[QUERY_QUEUE] = queue;
    all = ask_doctor(&one, &p);
    json_array_foreach(json_object_get(all, "findings"), i, f)
    {
        const char *level = member_text(f, "level");

        if ((strcmp(level, "warn") == 0 || strcmp(level, "bad") == 0) &&
            (!queue || strcmp(queue, member_text(f, "queue")) == 0))
            json_array_append(warnings, f);
    }
    json_object_set_new(page, "findings", warnings);
    json_decref(all);
}

static void queues_prepare(const struct serve_ask *a, json_t *page)
{
    json_t *q;
    size_t i;

    findings_add(a, page, NULL);
    json_array_foreach(json_object_get(page, "queues"), i, q)
    {
        const json_t *waiting = json_object_get(q, "waiting");
        const json_t *spooled = json_object_get(q, "spooled");

        json_object_set_new(q, "all_waiting",
                            json_is_integer(waiting)
                                ? json_integer(json_integer_value(waiting) +
                                               json_integer_value(spooled))
                                : json_null());
    }
}

static void queue_prepare(const struct serve_ask *a, json_t *page)
{
    json_t *settings = json_array(), *data, *m, *value;
    struct problem p = {0};
    const char *name;
    char line[512];
    size_t i;

    findings_add(a, page, a->path.queue);
    json_object_foreach(json_object_get(page, "settings"), name, value)
    {
        json_array_append_new(
            settings, json_pack("{s:s, s:O}", "name", name, "value", value));
    }
    json_object_set_new(page, "settings", settings);
    json_object_set_new(page, "local", json_boolean(a->path.queue[0] == '/'));
    data = ask_messages(a, &p);
    json_array_foreach(json_object_get(data, "messages"), i, m)
    {
        bool spooled = strncmp(member_text(m, "cursor"), "spool-", 6) == 0;

        /* Choose the name by which a form refers to the message. A message in
         * the spool has neither an id nor a row, so its cursor, which has its
         * key, is used. */
        name = *member_text(m, "id") ? "id" : spooled ? "cursor" : "row";
        json_object_set(m, "name", json_object_get(m, name));
        error_text_join(line, sizeof line, member_text(m, "error"),
                        member_text(m, "error_text"));
        json_object_set_new(m, "error_line", json_string(line));
    }
    json_object_update_missing(page, data);
    json_decref(data);
}

/* Add the letters grouped by error, beginning with the first letter of the
 * list. */
static void letters_prepare(const struct serve_ask *a, json_t *page)
{
    const json_t *letters = json_object_get(page, "letters");
    const json_t *first = json_array_get(letters, 0);
    struct serve_ask same = *a;
    struct problem p;
    char from[64];
    json_t *errors;
    uint64_t ns;
    int64_t row;

    json_object_set_new(page, "looked_at", json_integer(LOOKED_AT));
    json_object_set_new(page, "total", json_integer(0));
    if (!ask_cursor(member_text(first, "cursor"), &ns, &row))
        return;
    snprintf(from, sizeof from, "%" PRIu64 ".%" PRId64, ns, row + 1);
    same.query[QUERY_AFTER] = from;
    errors = ask_by_error(&same, &p);
    json_object_set(page, "groups", json_object_get(errors, "groups"));
    json_object_set(page, "total", json_object_get(errors, "total"));
    json_decref(errors);
}

static void find_prepare(const struct serve_ask *a, json_t *page)
{
    json_t *unseen = json_array(), *f;
    size_t i;

    (void)a;
    json_array_foreach(json_object_get(page, "all"), i, f)
    {
        const char *where = member_text(f, "where");

        if (strcmp(where, "unseen") == 0)
            json_array_append(unseen, f);
        if (strcmp(where, "dead") == 0 || strcmp(where, "replayed") == 0)
            json_object_set(f, "letter", json_object_get(f, "row"));
    }
    json_object_set_new(page, "unseen", unseen);
}

void page_print(FILE *out, const struct serve_ask *a, json_t *data)
{
    static const struct {
        const char *name, *title; /* title: NULL for a page of one queue */
        void (*prepare)(const struct serve_ask *a, json_t *page);
    } pages[] = {
        [SERVE_QUEUES] = {"queues", "Queues", queues_prepare},
        [SERVE_QUEUE] = {"queue", NULL, queue_prepare},
        [SERVE_LETTERS] = {"letters", NULL, letters_prepare},
        [SERVE_LETTER] = {"letter", NULL, NULL},
        [SERVE_GROUPS] = {"groups", NULL, NULL},
        [SERVE_ALL_DEAD] = {"all-dead", "Dead letters", NULL},
        [SERVE_EXPLAIN] = {"find", "Find a message", find_prepare},
    };
    enum serve_what what = a->path.route->what;
    const char *title = pages[what].title;
    json_t *query = json_object();

    for (int i = 0; i < QUERY_COUNT; i++)
        if (a->query[i])
            json_object_set_new(query, serve_query_names[i],
                                json_string_nocheck(a->query[i]));
    json_object_set_new(data, "query", query);
    json_object_set_new(data, "page", json_string(pages[what].name));
    json_object_set_new(data, "write", json_boolean(a->o->allow_write));
    json_object_set_new(data, "several", json_boolean(what == SERVE_ALL_DEAD));
    if (!title)
        json_object_set_new(data, "queue", json_string_nocheck(a->path.queue));
    json_object_set_new(data, "title",
                        json_string_nocheck(title ? title : a->path.queue));
    if (pages[what].prepare)
        pages[what].prepare(a, data);
    page_put(out, pages[what].name, data);
}

void page_message(FILE *out, const char *title, const char *text,
                  const char *login)
{
    page_put(out, "message",
             json_pack("{s:s, s:s, s:o, s:o}", "page",
                       login ? "login" : "message", "title", title, "text",
                       json_string_nocheck(text), "login",
                       json_string_nocheck(login ? login : "")));
}
