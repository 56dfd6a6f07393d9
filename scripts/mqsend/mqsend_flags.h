/* mqsend_flags.h - the values of flags that become lines of the header
 *
 * WHAT   Each reads the text of its flag into a struct envelope.
 * WHO    The option table of mqsend.c.
 * OWNS   Nothing; strings point into argv.
 * FAILS  A problem with status 64.
 */
#ifndef SCRIPTS_MQSEND_MQSEND_FLAGS_H
#define SCRIPTS_MQSEND_MQSEND_FLAGS_H

#include "common/base/problem.h"
#include "scripts/mqsend/mqsend_envelope.h"

int flag_id(const char *text, void *into, struct problem *p);
/* --at: a time that the local clock shows twice or skips, or one that is past,
 * is told by flag_at_note */
int flag_at(const char *text, void *into, struct problem *p);
int flag_group(const char *text, void *into, struct problem *p);
int flag_backoff(const char *text, void *into, struct problem *p);
int flag_unique(const char *text, void *into, struct problem *p);
/* --header, any number of times */
int flag_header(const char *text, void *into, struct problem *p);

/* Say what --at means where that is not what it says. */
void flag_at_note(const struct envelope *e);
/* Say so if it is to wait for longer than a worker lets it. */
void flag_far_note(const struct envelope *e);

#endif
