/* letters.h - the letters that a request is about
 *
 * WHAT   The store of a queue, and what a query or a body chooses of it.
 * WHO    A child of the server, once.
 * OWNS   Nothing.
 * FAILS  A problem, and -errno.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_LETTERS_H
#define SCRIPTS_MQCTL_SERVE_ASK_LETTERS_H

#include "common/store/letters.h"
#include "scripts/mqctl/serve/ask/ask.h"

#define LOOKED_AT 20000 /* letters of one answer, the newest first */

/* The store of a queue; NULL in *out: nothing has been kept for it yet. */
int ask_store(const struct serve_ask *a, const char *queue, struct store **out,
              struct problem *p);
/* A -errno of the store as a problem; NULL. */
json_t *ask_failed(struct problem *p, int err);
/* The filter of a query; its limit is set. */
int ask_filter(const struct serve_ask *a, struct letter_filter *f,
               struct problem *p);
/* Where it ended, as a filter takes it, to the nanosecond; null: it looked at
 * all (`narrowed`: what window_find returned). */
json_t *ask_since(int narrowed, const struct letter_filter *f);
/* Bytes of somebody else as text that hides nothing. */
json_t *ask_text(const void *bytes, size_t size, bool one_line);
/* "exit 1: no such order", as mqdlq list shows it. */
json_t *ask_error_line(const char *error, const char *text);
/* "DIED_NS.ROW", as `cursor` of a letter. */
bool ask_cursor(const char *text, uint64_t *ns, int64_t *row);

#endif
