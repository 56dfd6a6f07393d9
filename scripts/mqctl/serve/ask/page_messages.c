/* page_messages.c - what runs and waits, and ordered groups (see
 * page.h) */
#include "scripts/mqctl/serve/ask/page.h"

#include <string.h>

#include "common/message/error_text.h"
#include "scripts/mqctl/serve/ask/html.h"

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
void messages_section(FILE *out, const struct serve_ask *a)
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

void groups_page(FILE *out, const struct serve_ask *a, const json_t *data)
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
