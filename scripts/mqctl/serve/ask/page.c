/* page.c - pages as a browser without scripts sees them (see
 * ask.h); web/app.js makes them live */
#include <string.h>

#include "scripts/mqctl/serve/ask/page.h"
#include "scripts/mqctl/serve/ask/html.h"

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
