/* answer.h - the long-lived child that bench_stream.c has mqworker start
 *
 * WHAT   Reads messages of `mqworker --stream` from stdin and answers OK to
 *        each; takes the time meanwhile.
 * WHO    main, as `bench answer FILE WARM N [batch | SIZE DEPTH]`.
 * OWNS   FILE: answers a second, from number WARM to number N, once it has come
 *        to that. With a SIZE and a DEPTH it fills the queue itself with so
 *        many messages of that size, each time that all are answered, and that
 *        time does not count.
 * FAILS  Exit status 65: what came is no message; 71 a system call.
 */
#ifndef TESTS_BENCH_ANSWER_H
#define TESTS_BENCH_ANSWER_H

#define ANSWER "answer"

/* Run the child; return its exit status. "batch": one write answers all that
 * was read, else each message has a write of its own. */
int answer(int argc, char **argv);

#endif
