/* visit.h - how a callback that is called for each of many ends that early
 *
 * WHAT   It returns 0 to go on. VISIT_ENOUGH ends it where all is well and the
 *        rest is of no use, -errno where it failed; the caller gets that.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_VISIT_H
#define COMMON_BASE_VISIT_H

enum { VISIT_ENOUGH = 1 };

#endif
