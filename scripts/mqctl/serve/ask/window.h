/* window.h - which letters one answer looks at
 *
 * WHAT   Of a million letters an answer looks at some thousand. A filter that
 *        matches old letters alone would find none among the newest: so the
 *        answer goes back first, for a time, to the newest that matches.
 * WHO    A child of the server, once for each list.
 * OWNS   Nothing.
 * FAILS  -errno of the store.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_WINDOW_H
#define SCRIPTS_MQCTL_SERVE_ASK_WINDOW_H

#include "common/store/letters.h"

#define LOOKED_AT 20000 /* letters, the newest first */

/* Let the filter begin at the newest letter that it matches, and end LOOKED_AT
 * letters from there. YES: there are older ones, from since_ns on; then it may
 * match none, as the time was over before one was found. NO: it looks at all
 * that is left. */
int window_find(struct store *s, struct letter_filter *f);

#endif
