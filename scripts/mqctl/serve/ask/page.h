/* page.h - pages, and parts of them
 *
 * WHAT   What stands between the frame of a page.
 * WHO    page.c
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_PAGE_H
#define SCRIPTS_MQCTL_SERVE_ASK_PAGE_H

#include "scripts/mqctl/serve/ask/ask.h"

/* Of the page of a queue. */
void messages_section(FILE *out, const struct serve_ask *a);
void groups_page(FILE *out, const struct serve_ask *a, const json_t *data);
void letters_page(FILE *out, const struct serve_ask *a, const json_t *data);
void letter_page(FILE *out, const struct serve_ask *a, const json_t *l);
void all_dead_page(FILE *out, const json_t *data);

#endif
