/* page.c - the pages (see ask.h) */
#include <inttypes.h>
#include <string.h>

#include "common/message/error_text.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/html.h"

/* ---- pages of letters ---- */

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

static void letters_page(FILE *out, const struct serve_ask *a,
                         const json_t *data)
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

static void letter_page(FILE *out, const struct serve_ask *a, const json_t *l)
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

static void all_dead_page(FILE *out, const json_t *data)
{
    fputs("<h1>Dead letters of all queues</h1>", out);
    html_troubles(out, data);
    cut_list(out, json_object_get(data, "cut"));
    if (json_array_size(json_object_get(data, "groups")) == 0)
        fputs("<p>There is none.</p>", out);
    else
        groups_table(out, json_object_get(data, "groups"), true);
}

/* ---- what runs and waits, and groups ---- */

/* Name the member that identifies a message in an order. A message in the spool
 * has neither an id nor a row, but the key in its cursor. */
static const char *name_of(const json_t *m)
{
    return *member_text(m, "id")                                 ? "id"
           : strncmp(member_text(m, "cursor"), "spool-", 6) == 0 ? "cursor"
                                                                 : "row";
}

static void message_row(FILE *out, const json_t *m)
{
    char line[512];

    fputs("<tr data-id=\"", out);
    html_value(out, m, name_of(m));
    fputs("\" data-state=\"", out);
    html_value(out, m, "state");
    fputs("\"><th scope=\"row\" class=\"text id\">", out);
    html_value(out, m, name_of(m));
    fputs("</th><td>", out);
    html_value(out, m, "state");
    fputs("</td><td class=\"time\">", out);
    html_text(out, member_text(m, "due_at"));
    fputs("</td><td class=\"n wide\">", out);
    html_value(out, m, "failures");
    fputs("</td><td class=\"wide text\">", out);
    html_text(out, member_text(m, "group"));
    fputs("</td><td class=\"text\">", out);
    html_text(out, error_text_join(line, sizeof line, member_text(m, "error"),
                                   member_text(m, "error_text")));
    fputs("</td><td class=\"wide text body\">", out);
    html_text(out, member_text(m, "body"));
    fputs("</td></tr>\n", out);
}

/* more_link - from the last message, or group, on */
static void more_link(FILE *out, const json_t *data, const char *what)
{
    if (!*member_text(data, "next"))
        return;
    fputs("<p><a rel=\"next\" href=\"?after=", out);
    html_url(out, member_text(data, "next"));
    fprintf(out, "#%s\">More %s</a></p>", what, what);
}

/* messages_section - a page of what runs and waits */
static void messages_section(FILE *out, const struct serve_ask *a)
{
    struct problem p = {0};
    json_t *data = ask_messages(a, &p);
    const json_t *list = json_object_get(data, "messages"), *m;
    size_t i;

    fputs("<section id=\"messages\" aria-label=\"Messages\">", out);
    if (json_array_size(list)) {
        fputs("<table><caption>What runs and waits</caption>"
              "<thead><tr><th scope=\"col\">Message</th><th scope=\"col\">"
              "State</th><th scope=\"col\">Due</th>"
              "<th scope=\"col\" class=\"n wide\">Failures</th>"
              "<th scope=\"col\" class=\"wide\">Group</th>"
              "<th scope=\"col\">Error</th>"
              "<th scope=\"col\" class=\"wide\">Body</th></tr></thead>"
              "<tbody>\n",
              out);
        json_array_foreach(list, i, m)
        {
            message_row(out, m);
        }
        fputs("</tbody></table>", out);
    } else if (a->query[QUERY_AFTER]) {
        fputs("<p>No message comes after that one any more.</p>", out);
    }
    more_link(out, data, "messages");
    fputs("</section>", out);
    json_decref(data);
}

/* ---- groups ---- */

/* group_state - "held by letter 7, closing"; web/act.js says it likewise */
static void group_state(FILE *out, const char *queue, const json_t *g)
{
    html_value(out, g, "state");
    if (member_number(g, "letter") > 0) {
        fputs(" by <a href=\"", out);
        html_queue_url(out, queue);
        fprintf(out, "/dead/%.0f\">letter %.0f</a>", member_number(g, "letter"),
                member_number(g, "letter"));
    }
    if (json_is_true(json_object_get(g, "closing")))
        fputs(", closing", out);
}

static void group_row(FILE *out, const char *queue, const json_t *g)
{
    const char *head = member_text(g, "head");

    fputs("<tr data-group=\"", out);
    html_attribute(out, member_text(g, "group"));
    fputs("\"><th scope=\"row\" class=\"text\">", out);
    html_text(out, member_text(g, "group"));
    fputs("</th><td data-f=\"state\">", out);
    group_state(out, queue, g);
    fputs("</td><td class=\"n\">", out);
    html_value(out, g, "waiting");
    fputs("</td><td class=\"wide text id\">", out);
    if (*head) {
        fputs("<a href=\"/find?id=", out);
        html_url(out, head);
        fputs("\">", out);
        html_text(out, head);
        fputs("</a>", out);
    }
    fputs("</td><td class=\"time\">", out);
    html_text(out, member_text(g, "due_at"));
    fputs("</td><td class=\"wide time\">", out);
    html_text(out, member_text(g, "received_at"));
    fputs("</td></tr>\n", out);
}

static void groups_page(FILE *out, const struct serve_ask *a,
                        const json_t *data)
{
    const json_t *list = json_object_get(data, "groups"), *g;
    const char *queue = a->path.queue;
    size_t i;

    fputs("<h1 data-queue=\"", out);
    html_attribute(out, queue);
    fputs("\">Ordered groups of <a href=\"", out);
    html_queue_url(out, queue);
    fputs("\">", out);
    html_text(out, queue);
    fputs("</a></h1>", out);
    if (json_array_size(list) == 0) {
        fputs("<p>No group that has a message", out);
        fputs(a->query[QUERY_AFTER] ? " comes after that one.</p>" : ".</p>",
              out);
    } else {
        fputs("<section id=\"groups\" aria-label=\"Groups\"><table><caption>"
              "Groups that have a message</caption><thead><tr>"
              "<th scope=\"col\">Group</th><th scope=\"col\">State</th>"
              "<th scope=\"col\" class=\"n\">Waiting</th>"
              "<th scope=\"col\" class=\"wide\">First in line</th>"
              "<th scope=\"col\">Due</th>"
              "<th scope=\"col\" class=\"wide\">Received</th></tr></thead>"
              "<tbody>\n",
              out);
        json_array_foreach(list, i, g)
        {
            group_row(out, queue, g);
        }
        fputs("</tbody></table></section>", out);
    }
    more_link(out, data, "groups");
    fputs("<h2>In a terminal</h2><p>", out);
    html_command(out, "mqctl groups", queue, "");
    fputs("</p>", out);
}

/* ---- the frame ---- */

/* ---- the frame ---- */

static void frame_begin(FILE *out, const char *page, const char *title,
                        bool write)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width, "
          "initial-scale=1\"><title>",
          out);
    html_text(out, title);
    fprintf(out,
            " - mqctl</title><link rel=\"icon\" href=\"/static/icon.svg\">"
            "<link rel=\"stylesheet\" href=\"/static/app.css\">"
            "<script type=\"module\" src=\"/static/app.js\"></script></head>\n"
            "<body data-page=\"%s\" data-write=\"%s\">"
            "<a class=\"skip\" href=\"#main\">Skip to the content</a>"
            "<header><nav aria-label=\"Pages\"><a href=\"/\">Queues</a>"
            "<a href=\"/dead\">Dead letters</a>"
            "<form action=\"/find\" role=\"search\"><input name=\"id\" "
            "aria-label=\"Id of a message\" placeholder=\"Find a message by "
            "its id\" size=\"28\" autocomplete=\"off\"><button>Find</button>"
            "</form></nav></header>\n<main id=\"main\" tabindex=\"-1\">",
            page, write ? "true" : "false");
    fputs("<p id=\"live\" role=\"status\" aria-live=\"polite\"></p>", out);
}

static void frame_end(FILE *out)
{
    fputs("</main></body></html>\n", out);
}

/* findings - what mqctl doctor warns of: all, or (not NULL) those of a queue */
static void findings(FILE *out, const struct serve_ask *a, const char *queue)
{
    struct serve_ask one = *a;
    struct problem p;
    json_t *all;
    const json_t *f;
    size_t i;

    one.query[QUERY_QUEUE] = queue;
    all = ask_doctor(&one, &p);
    fputs("<section id=\"findings\" aria-label=\"Findings\">", out);
    json_array_foreach(json_object_get(all, "findings"), i, f)
    {
        const char *level = member_text(f, "level");

        if ((strcmp(level, "warn") != 0 && strcmp(level, "bad") != 0) ||
            (queue && strcmp(queue, member_text(f, "queue")) != 0))
            continue;
        fprintf(out, "<div class=\"finding %s\" data-key=\"", level);
        html_attribute(out, member_text(f, "queue"));
        fputc(' ', out);
        html_attribute(out, member_text(f, "check"));
        fprintf(out, "\"><strong>%s</strong> ", level);
        html_text(out, member_text(f, "queue"));
        fputc(' ', out);
        html_text(out, member_text(f, "check"));
        fputs(": ", out);
        html_text(out, member_text(f, "text"));
        if (*member_text(f, "fix")) {
            fputs("<div><code class=\"command\">", out);
            html_text(out, member_text(f, "fix"));
            fputs("</code></div>", out);
        }
        fputs("</div>", out);
    }
    fputs("</section>", out);
    json_decref(all);
}

/* ---- queues ---- */

static void state_cell(FILE *out, const char *tag, const json_t *q)
{
    fprintf(out, "<%s data-f=\"state\"><span class=\"state %s\">", tag,
            member_text(q, "severity"));
    html_text(out, member_text(q, "state"));
    fprintf(out, "</span></%s>", tag);
}

/* of_cell - "3 / 10": a number and its limit */
static void of_cell(FILE *out, const json_t *q, const char *name,
                    const char *most)
{
    fprintf(out, "<td class=\"n\" data-f=\"%s\">", name);
    html_value(out, q, name);
    if (member_number(q, most) >= 0) {
        fputs("<small> / ", out);
        html_value(out, q, most);
        fputs("</small>", out);
    }
    fputs("</td>", out);
}

static void number_cell(FILE *out, const json_t *q, const char *name,
                        const char *more)
{
    fprintf(out, "<td class=\"n%s\" data-f=\"%s\">", more, name);
    html_value(out, q, name);
    fputs("</td>", out);
}

/* All messages that wait for their time or for room, including the spool's. */
static void waiting_cell(FILE *out, const json_t *q)
{
    double waiting = member_number(q, "waiting");
    double spooled = member_number(q, "spooled");

    fputs("<td class=\"n wide\" data-f=\"waiting\">", out);
    if (waiting < 0)
        fputc('-', out);
    else
        fprintf(out, "%.0f", waiting + (spooled > 0 ? spooled : 0));
    fputs("</td>", out);
}

static void ms_cell(FILE *out, const json_t *recent, const char *name)
{
    double ms = member_number(recent, name);

    fprintf(out, "<td class=\"n wide\" data-f=\"%s\">", name);
    html_duration(out, ms > 0 ? ms * 1e6 : -1);
    fputs("</td>", out);
}

static void queue_row(FILE *out, const json_t *q)
{
    const char *queue = member_text(q, "queue");
    const json_t *recent = json_object_get(q, "recent");
    double dead = member_number(q, "dead");

    fputs("<tr data-queue=\"", out);
    html_attribute(out, queue);
    fputs("\"><th scope=\"row\"><a href=\"", out);
    html_queue_url(out, queue);
    fputs("\">", out);
    html_text(out, queue);
    fputs("</a></th>", out);
    state_cell(out, "td", q);
    of_cell(out, q, "depth", "queue_depth");
    of_cell(out, q, "in_flight", "capacity");
    number_cell(out, recent, "done", " wide");
    ms_cell(out, recent, "p50_ms");
    ms_cell(out, recent, "p99_ms");
    waiting_cell(out, q);
    number_cell(out, q, "parked", " wide");
    fprintf(out, "<td class=\"n%s\" data-f=\"dead\"><a href=\"",
            dead > 0 ? " act" : "");
    html_queue_url(out, queue);
    fputs("/dead\">", out);
    html_value(out, q, "dead");
    fputs("</a></td><td class=\"wide text\" data-f=\"last_error\">", out);
    html_text(out, member_text(q, "last_error"));
    fputs("</td><td class=\"wide spark\" data-f=\"spark\"></td></tr>\n", out);
}

static void queues_page(FILE *out, const struct serve_ask *a,
                        const json_t *data)
{
    const json_t *list = json_object_get(data, "queues"), *q;
    size_t i;

    fputs("<h1>Queues</h1>", out);
    html_troubles(out, data);
    findings(out, a, NULL);
    if (json_array_size(list) == 0)
        fputs("<p>No worker has run with this state directory. Start one: "
              "<code class=\"command\">mqworker QUEUE -- COMMAND</code></p>",
              out);
    fputs("<table id=\"queues\"><caption class=\"sr\">Queues of this machine "
          "and their workers</caption><thead><tr>"
          "<th scope=\"col\">Queue</th><th scope=\"col\">State</th>"
          "<th scope=\"col\" class=\"n\">Depth</th>"
          "<th scope=\"col\" class=\"n\">In flight</th>"
          "<th scope=\"col\" class=\"n wide\">Done/s</th>"
          "<th scope=\"col\" class=\"n wide\">p50</th>"
          "<th scope=\"col\" class=\"n wide\">p99</th>"
          "<th scope=\"col\" class=\"n wide\">Waiting</th>"
          "<th scope=\"col\" class=\"n wide\">Parked</th>"
          "<th scope=\"col\" class=\"n\">Dead</th>"
          "<th scope=\"col\" class=\"wide\">Last error</th>"
          "<th scope=\"col\" class=\"wide\">10 minutes</th>"
          "</tr></thead><tbody>\n",
          out);
    json_array_foreach(list, i, q)
    {
        queue_row(out, q);
    }
    fputs("</tbody></table>", out);
}

/* ---- one queue ---- */

static void fact_time(FILE *out, const char *name, const json_t *o,
                      const char *field)
{
    fprintf(out, "<div><dt>%s</dt><dd>", name);
    html_duration(out, member_number(o, field));
    fputs("</dd></div>", out);
}

static void settings_table(FILE *out, json_t *q)
{
    json_t *settings = json_object_get(q, "settings"), *value;
    const char *name;

    if (!json_is_object(settings))
        return;
    fputs("<details><summary>Settings</summary><table id=\"settings\">"
          "<caption class=\"sr\">Settings of the worker</caption><tbody>",
          out);
    json_object_foreach(settings, name, value)
    {
        fputs("<tr><th scope=\"row\">", out);
        html_text(out, name);
        fputs("</th><td>", out);
        html_value(out, settings, name);
        fputs("</td></tr>", out);
    }
    fputs("</tbody></table></details>", out);
}

static void queue_page(FILE *out, const struct serve_ask *a, json_t *q)
{
    const char *queue = a->path.queue;
    bool here = *queue == '/'; /* else its messages are on a broker */

    fputs("<h1 data-queue=\"", out);
    html_attribute(out, queue);
    fputs("\">", out);
    html_text(out, queue);
    fputs(" ", out);
    state_cell(out, "span", q);
    fputs("</h1><p class=\"why\" data-f=\"why\">", out);
    html_text(out, member_text(q, "why"));
    fputs("</p><dl class=\"facts\">", out);
    html_fact(out, "Depth", q, "depth");
    html_fact(out, "In flight", q, "in_flight");
    html_fact(out, "Capacity", q, "capacity");
    html_fact(out, "Waiting", q, "waiting");
    html_fact(out, "Parked", q, "parked");
    html_fact(out, "Spooled", q, "spooled");
    html_fact(out, "Dead", q, "dead");
    html_fact(out, "Done", q, "done");
    html_fact(out, "Retried", q, "retried");
    html_fact(out, "Groups held", q, "groups_held");
    fact_time(out, "Handler p50", q, "handler_p50_ns");
    fact_time(out, "Handler p99", q, "handler_p99_ns");
    fact_time(out, "Latency p99", q, "latency_p99_ns");
    html_fact(out, "Process", q, "pid");
    html_fact(out, "Paused until", q, "paused_until");
    html_fact(out, "Breaker", q, "breaker");
    html_fact(out, "Last error", q, "last_error");
    fputs("</dl>", out);
    findings(out, a, queue);
    if (here) {
        fputs("<p><a href=\"", out);
        html_queue_url(out, queue);
        fputs("/dead\">Dead letters of this queue</a>, <a href=\"", out);
        html_queue_url(out, queue);
        fputs("/groups\">its ordered groups</a></p>", out);
    }
    fputs("<section id=\"actions\" aria-label=\"Actions\"></section>"
          "<section id=\"charts\" aria-label=\"Charts\"></section>",
          out);
    messages_section(out, a);
    settings_table(out, q);
    fputs("<h2>In a terminal</h2><ul class=\"plain\"><li>", out);
    html_command(out, "mqctl status", queue, "");
    fputs("</li><li>", out);
    html_command(out, here ? "mqctl list" : "mqdlq list", queue, "");
    fputs("</li><li>", out);
    html_command(out, "mqctl doctor", queue, "");
    fputs("</li></ul>", out);
}

/* ---- a message ---- */

static void found_item(FILE *out, const json_t *f)
{
    const char *queue = member_text(f, "queue");

    fputs("<li><p><a href=\"", out);
    html_queue_url(out, queue);
    fputs("\">", out);
    html_text(out, queue);
    fputs("</a>: <strong>", out);
    html_text(out, member_text(f, "where"));
    fputs("</strong></p><p>", out);
    html_text(out, member_text(f, "text"));
    fputs("</p>", out);
    if (strcmp(member_text(f, "where"), "dead") == 0 ||
        strcmp(member_text(f, "where"), "replayed") == 0) {
        fputs("<p><a href=\"", out);
        html_queue_url(out, queue);
        fprintf(out, "/dead/%.0f\">The letter</a></p>",
                member_number(f, "row"));
    }
    fputs("</li>", out);
}

/* unseen_put - queues that could not be looked into; how many */
static size_t unseen_put(FILE *out, const json_t *data)
{
    const json_t *f;
    size_t i, n = 0;

    json_array_foreach(json_object_get(data, "all"), i, f)
    {
        if (strcmp(member_text(f, "where"), "unseen") != 0)
            continue;
        if (n++ == 0)
            fputs("<ul class=\"plain\">", out);
        found_item(out, f);
    }
    if (n)
        fputs("</ul>", out);
    return n;
}

static void find_page(FILE *out, const json_t *data)
{
    const json_t *list = json_object_get(data, "found"), *f;
    const char *id = member_text(data, "id");
    size_t i;

    fputs("<h1>Find a message</h1>", out);
    if (!*id)
        fputs("<p>Give the 26 characters of its id, or the number of a "
              "letter.</p>",
              out);
    else if (unseen_put(out, data) == 0 && json_array_size(list) == 0) {
        fputs("<p>No queue of this machine knows of <code>", out);
        html_text(out, id);
        fputs("</code>. It was never sent, or ended too long ago, or is one of "
              "those in a kernel queue, which cannot be looked into.</p>",
              out);
    }
    fputs("<ul class=\"plain\" id=\"found\">", out);
    json_array_foreach(list, i, f)
    {
        found_item(out, f);
    }
    fputs("</ul>", out);
    if (!*id)
        return;
    fputs("<h2>In a terminal</h2><ul class=\"plain\">", out);
    json_array_foreach(list, i, f)
    {
        fputs("<li>", out);
        html_command(out, "mqctl explain", member_text(f, "queue"), id);
        fputs("</li>", out);
    }
    if (json_array_size(list) == 0) {
        fputs("<li>", out);
        html_command(out, "mqctl explain", "QUEUE", id);
        fputs("</li>", out);
    }
    fputs("</ul>", out);
}

/* ---- which page ---- */

void page_print(FILE *out, const struct serve_ask *a, json_t *data)
{
    static const char *const names[] = {
        [SERVE_QUEUES] = "queues",   [SERVE_QUEUE] = "queue",
        [SERVE_LETTERS] = "letters", [SERVE_LETTER] = "letter",
        [SERVE_GROUPS] = "groups",   [SERVE_ALL_DEAD] = "all-dead",
        [SERVE_EXPLAIN] = "find",
    };
    enum serve_what what = a->path.route->what;

    frame_begin(out, names[what],
                a->path.queue[0]         ? a->path.queue
                : what == SERVE_ALL_DEAD ? "Dead letters"
                : what == SERVE_EXPLAIN  ? "Find a message"
                                         : "Queues",
                a->o->allow_write);
    if (what == SERVE_QUEUES)
        queues_page(out, a, data);
    else if (what == SERVE_QUEUE)
        queue_page(out, a, data);
    else if (what == SERVE_GROUPS)
        groups_page(out, a, data);
    else if (what == SERVE_LETTERS)
        letters_page(out, a, data);
    else if (what == SERVE_LETTER)
        letter_page(out, a, data);
    else if (what == SERVE_ALL_DEAD)
        all_dead_page(out, data);
    else
        find_page(out, data);
    if (!a->o->allow_write)
        fputs("<p><small>These pages are read-only: mqctl serve was started "
              "without --allow-write.</small></p>",
              out);
    frame_end(out);
}

void page_message(FILE *out, const char *title, const char *text,
                  const char *login)
{
    frame_begin(out, login ? "login" : "message", title, false);
    fputs("<h1>", out);
    html_text(out, title);
    fputs("</h1><p>", out);
    html_text(out, text);
    fputs("</p>", out);
    if (login) {
        fputs("<form class=\"filter\" id=\"login\" action=\"/session\" "
              "method=\"post\"><label>Token <input name=\"token\" "
              "type=\"password\" size=\"64\" autocomplete=\"off\" required>"
              "</label><input type=\"hidden\" name=\"next\" value=\"",
              out);
        html_attribute(out, login);
        fputs("\"><button>Sign in</button></form>", out);
    }
    frame_end(out);
}
