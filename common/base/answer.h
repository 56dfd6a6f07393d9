/* answer.h - a question that can fail
 *
 * WHAT   Its answer is YES or NO; a function that gives one may say -errno
 *        instead: it is not known.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_ANSWER_H
#define COMMON_BASE_ANSWER_H

enum answer { NO, YES };

#endif
