/* page_letters.c - pages of letters (see page.h) */
#include "scripts/mqctl/serve/ask/page.h"

#include <inttypes.h>
#include <string.h>

#include "scripts/mqctl/serve/ask/html.h"
#include "scripts/mqctl/serve/ask/letters.h"
#include "scripts/mqctl/serve/ask/window.h"

/* glob_url - an error text as a glob that matches it and nothing else */
static void glob_url(FILE *out, const char *text)
{
    char one[2] = "";

    for (; *text; text++) {
        if (strchr("\\*?[", *text))
            html_url(out, "\\");
        one[0] = *text;
        html_url(out, one);
    }
}

/* none - whether a page has no letter */
static bool none(const json_t *data)
{
    return json_array_size(json_object_get(data, "letters")) == 0;
}

/* cut_note - what was not looked at, so that no number is taken for another */
static void cut_note(FILE *out, const json_t *data)
{
    const char *since = member_text(data, "since");

    if (!*since)
        return;
    fprintf(out, "<p id=\"cut\" data-since=\"%s\">", since);
    if (none(data)) {
        fputs("Nothing matches down to ", out);
        html_value(out, data, "looked_to");
        fputs(". <em>Look further back</em> goes on", out);
    } else {
        fprintf(out,
                "This page looked at %d letters, from the newest that matches "
                "on, and at no more. <em>Older letters</em> goes on",
                LOOKED_AT);
    }
    fputs("; <code>mqdlq list</code> looks at all.</p>", out);
}

static void groups_table(FILE *out, const json_t *list, bool queues)
{
    const json_t *g;
    size_t i;

    fprintf(out,
            "<table id=\"groups\"><caption>By error</caption><thead><tr>"
            "<th scope=\"col\" class=\"n\">Letters</th>%s"
            "<th scope=\"col\">Error</th><th scope=\"col\">Newest</th></tr>"
            "</thead><tbody>\n",
            queues ? "<th scope=\"col\">Queue</th>" : "");
    json_array_foreach(list, i, g)
    {
        const char *queue = member_text(g, "queue");
        const char *error = member_text(g, "error_line");

        fputs("<tr><td class=\"n\">", out);
        html_value(out, g, "count");
        fputs("</td>", out);
        if (queues) {
            fputs("<th scope=\"row\"><a href=\"", out);
            html_queue_url(out, queue);
            fputs("\">", out);
            html_text(out, queue);
            fputs("</a></th>", out);
        }
        fputs("<td class=\"text\"><a href=\"", out);
        html_queue_url(out, queue);
        fputs("/dead?error=", out);
        glob_url(out, error);
        fputs("\">", out);
        html_text(out, *error ? error : "no error");
        fputs("</a></td><td class=\"time\">", out);
        html_value(out, g, "newest");
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table>", out);
}

static void field(FILE *out, const struct serve_ask *a, enum serve_query q,
                  const char *label, const char *hint)
{
    fprintf(out, "<label>%s <input name=\"%s\" placeholder=\"%s\" value=\"",
            label, serve_query_names[q], hint);
    html_attribute(out, a->query[q] ? a->query[q] : "");
    fputs("\"></label>", out);
}

static void filter_form(FILE *out, const struct serve_ask *a)
{
    fputs("<form class=\"filter\" aria-label=\"Filter\">", out);
    field(out, a, QUERY_ERROR, "Error", "no such account");
    field(out, a, QUERY_REASON, "Reason", "exhausted");
    field(out, a, QUERY_GROUP, "Group", "");
    if (!a->o->no_bodies)
        field(out, a, QUERY_MATCH, "In the body", "");
    field(out, a, QUERY_SINCE, "Since", "2h");
    fputs("<button>Filter</button></form>", out);
}

static void letter_row(FILE *out, const char *queue, const json_t *l)
{
    fputs("<tr data-row=\"", out);
    html_attribute(out, member_text(l, "row"));
    fputs("\" data-cursor=\"", out);
    html_attribute(out, member_text(l, "cursor"));
    fputs("\"><th scope=\"row\" class=\"n\"><a href=\"", out);
    html_queue_url(out, queue);
    fprintf(out, "/dead/%s\">", member_text(l, "row"));
    html_text(out, member_text(l, "row"));
    fputs("</a></th><td class=\"time\">", out);
    html_value(out, l, "died_at");
    fputs("</td><td class=\"n wide\">", out);
    html_value(out, l, "attempts");
    fputs("</td><td class=\"wide\">", out);
    html_value(out, l, "reason");
    fputs("</td><td class=\"text\">", out);
    html_value(out, l, "error_line");
    fputs("</td><td class=\"wide text\">", out);
    html_text(out, member_text(l, "group"));
    fputs("</td><td class=\"n wide\">", out);
    html_value(out, l, "size");
    fputs("</td><td class=\"wide text body\">", out);
    html_text(out, member_text(l, "preview"));
    fputs("</td></tr>\n", out);
}

/* older_link - the same filter, from the last letter on */
static void older_link(FILE *out, const struct serve_ask *a, const json_t *data)
{
    const char *next = member_text(data, "next");

    if (!*next)
        return;
    fputs("<p><a rel=\"next\" href=\"?after=", out);
    html_url(out, next);
    for (int i = QUERY_LIMIT; i <= QUERY_UNTIL; i++) {
        if (!a->query[i] || !*a->query[i])
            continue;
        fprintf(out, "&amp;%s=", serve_query_names[i]);
        html_url(out, a->query[i]);
    }
    fprintf(out, "\">%s</a></p>",
            none(data) ? "Look further back" : "Older letters");
}

/* groups_of - by error, the letters that a list looked at: from its first on */
static json_t *groups_of(const struct serve_ask *a, const json_t *data)
{
    const json_t *first = json_array_get(json_object_get(data, "letters"), 0);
    struct serve_ask same = *a;
    struct problem p;
    uint64_t ns;
    int64_t row;
    char from[64];

    if (!first || !ask_cursor(member_text(first, "cursor"), &ns, &row))
        return json_pack("{s:[], s:i}", "groups", "total", 0);
    snprintf(from, sizeof from, "%" PRIu64 ".%" PRId64, ns, row + 1);
    same.query[QUERY_AFTER] = from;
    return ask_by_error(&same, &p);
}

void letters_page(FILE *out, const struct serve_ask *a, const json_t *data)
{
    const char *queue = a->path.queue;
    json_t *groups = groups_of(a, data);
    const json_t *l;
    size_t i;

    fputs("<h1 data-queue=\"", out);
    html_attribute(out, queue);
    fputs("\">Dead letters of <a href=\"", out);
    html_queue_url(out, queue);
    fputs("\">", out);
    html_text(out, queue);
    fputs("</a></h1><p><span data-f=\"dead\">", out);
    html_value(out, data, "dead");
    fputs("</span> in all</p>", out);
    filter_form(out, a);
    cut_note(out, data);
    groups_table(out, json_object_get(groups, "groups"), false);
    fputs("<section id=\"bulk\" aria-label=\"Actions\" data-total=\"", out);
    html_value(out, groups, "total");
    fputs("\"></section><table id=\"letters\"><caption>Letters, newest "
          "first</caption>"
          "<thead><tr><th scope=\"col\" class=\"n\">Letter</th>"
          "<th scope=\"col\">Died</th><th scope=\"col\" class=\"n wide\">"
          "Tries</th><th scope=\"col\" class=\"wide\">Reason</th>"
          "<th scope=\"col\">Error</th><th scope=\"col\" class=\"wide\">Group"
          "</th><th scope=\"col\" class=\"n wide\">Bytes</th><th scope=\"col\" "
          "class=\"wide\">Body</th></tr></thead><tbody>\n",
          out);
    json_array_foreach(json_object_get(data, "letters"), i, l)
    {
        letter_row(out, queue, l);
    }
    fputs("</tbody></table>", out);
    older_link(out, a, data);
    fputs("<h2>In a terminal</h2><p>", out);
    html_command(out, "mqdlq list", queue, "");
    fputs("</p>", out);
    json_decref(groups);
}

static void block(FILE *out, const char *title, const char *text, bool open)
{
    if (!*text)
        return;
    fprintf(out, "<details%s><summary>%s</summary><pre tabindex=\"0\">",
            open ? " open" : "", title);
    html_text(out, text);
    fputs("</pre></details>", out);
}

static void history_table(FILE *out, const json_t *list)
{
    const json_t *h;
    size_t i;

    fputs("<table><caption>Attempts</caption><thead><tr>"
          "<th scope=\"col\" class=\"n\">No.</th><th scope=\"col\">Started</th>"
          "<th scope=\"col\" class=\"n\">Took</th><th scope=\"col\">Error</th>"
          "</tr></thead><tbody>\n",
          out);
    json_array_foreach(list, i, h)
    {
        fputs("<tr><th scope=\"row\" class=\"n\">", out);
        html_value(out, h, "n");
        fputs("</th><td class=\"time\">", out);
        html_value(out, h, "started_at");
        fputs("</td><td class=\"n\">", out);
        html_duration(out, member_number(h, "took_ms") * 1e6);
        fputs("</td><td class=\"text\">", out);
        html_value(out, h, "error");
        if (*member_text(h, "stderr")) {
            fputs("<pre tabindex=\"0\">", out);
            html_text(out, member_text(h, "stderr"));
            fputs("</pre>", out);
        }
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table>", out);
}

static void body_blocks(FILE *out, const struct serve_ask *a, const json_t *l)
{
    const char *json = member_text(l, "body_json");

    if (!json_is_true(json_object_get(l, "bodies"))) {
        fputs("<p>This server shows no bodies.</p>", out);
        return;
    }
    block(out, "Body as JSON", json, true);
    block(out, "Body as text", member_text(l, "body"), !*json);
    block(out, "Body in hex", member_text(l, "body_hex"), false);
    block(out, "Header", member_text(l, "header"), false);
    if (json_is_true(json_object_get(l, "body_cut")))
        fputs("<p>The body is longer than what is shown.</p>", out);
    fputs("<p><a href=\"/api/v1/queues/", out);
    html_url(out, a->path.queue + 1);
    fprintf(out,
            "/letters/%" JSON_INTEGER_FORMAT "/body\">The whole body as a "
            "file</a></p>",
            (json_int_t)a->path.row);
}

void letter_page(FILE *out, const struct serve_ask *a, const json_t *l)
{
    const char *queue = a->path.queue, *row = member_text(l, "row");

    fputs("<h1 data-queue=\"", out);
    html_attribute(out, queue);
    fprintf(out, "\" data-row=\"%s\">Letter %s of <a href=\"", row, row);
    html_queue_url(out, queue);
    fputs("/dead\">", out);
    html_text(out, queue);
    fputs("</a></h1><dl class=\"facts\">", out);
    html_fact(out, "State", l, "state");
    html_fact(out, "Died", l, "died_at");
    html_fact(out, "Reason", l, "reason");
    html_fact(out, "Error", l, "error_line");
    html_fact(out, "Tries", l, "attempts");
    html_fact(out, "Crashes", l, "crashes");
    html_fact(out, "Group", l, "group");
    html_fact(out, "Priority", l, "priority");
    html_fact(out, "Bytes", l, "size");
    html_fact(out, "Received", l, "first_received_at");
    html_fact(out, "Sent again", l, "sent_again_at");
    html_fact(out, "Message", l, "message_id");
    fputs("</dl><section id=\"actions\" aria-label=\"Actions\"></section>",
          out);
    block(out, "End of stderr", member_text(l, "stderr"), true);
    history_table(out, json_object_get(l, "history"));
    body_blocks(out, a, l);
    fputs("<h2>In a terminal</h2><ul class=\"plain\"><li>", out);
    html_command(out, "mqdlq show", queue, row);
    fputs("</li><li>", out);
    html_command(out, "mqdlq replay", queue, row);
    fputs("</li><li>", out);
    html_command(out, "mqdlq discard", queue, row);
    fputs("</li></ul>", out);
}

/* cut_list - queues that have more letters than were counted by error */
static void cut_list(FILE *out, const json_t *cut)
{
    const json_t *one;
    size_t i;

    json_array_foreach(cut, i, one)
    {
        fputs("<p>", out);
        html_value(out, one, "queue");
        fputs(": by error are the newest ", out);
        html_value(out, one, "total");
        fputs(" of ", out);
        html_value(out, one, "dead");
        fputs("</p>", out);
    }
}

void all_dead_page(FILE *out, const json_t *data)
{
    fputs("<h1>Dead letters of all queues</h1>", out);
    html_troubles(out, data);
    cut_list(out, json_object_get(data, "cut"));
    if (json_array_size(json_object_get(data, "groups")) == 0)
        fputs("<p>There is none.</p>", out);
    else
        groups_table(out, json_object_get(data, "groups"), true);
}
