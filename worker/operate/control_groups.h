/* control_groups.h - what can be said of ordered groups over the control socket
 *
 * WHAT   Keys are written in hexadecimal (safe_text.h), as they may be any bytes.
 * WHO    The peeker, from control_verbs.c.
 * OWNS   Nothing.
 * FAILS  NULL: no memory; or *wrong says what is wrong with the words.
 */
#ifndef WORKER_OPERATE_CONTROL_GROUPS_H
#define WORKER_OPERATE_CONTROL_GROUPS_H

#include <jansson.h>
#include <stddef.h>

struct flow;

/* "closing [KEY]": the keys of groups that are closing, in order, a page of
 * those after KEY. */
json_t *control_closing(struct flow *f, char *const *words, size_t count,
                        const char **wrong);
/* "group close KEY", "group open KEY" */
json_t *control_group(struct flow *f, char *const *words, size_t count,
                      const char **wrong);

#endif
