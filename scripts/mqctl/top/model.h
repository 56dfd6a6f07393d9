/* model.h - what the screen of top shows, looked up
 *
 * WHAT   The numbers of all queues as the last look left them, and what is in
 *        one queue just now.
 * WHO    One thread.
 * OWNS   Texts are those of the rows, until the next look.
 * FAILS  What cannot be read is left out.
 */
#ifndef SCRIPTS_MQCTL_TOP_MODEL_H
#define SCRIPTS_MQCTL_TOP_MODEL_H

#include "scripts/mqctl/top/top.h"
#include "scripts/mqctl/top/draw/view.h"

void model_queue(struct view_queue *q, const struct top_row *r);
/* At most so many letters. */
void model_detail(struct view_detail *d, struct top_row *r, size_t letters);

#endif
