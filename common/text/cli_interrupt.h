/* cli_interrupt.h - a person's wish to stop a program in the middle of its work
 *
 * WHAT   SIGINT, SIGTERM and SIGHUP end blocking calls with EINTR and are
 *        remembered, so that a program can say how far it got before it dies
 *        of the signal. A second signal kills at once.
 * WHO    Single-threaded programs, from main.
 * OWNS   The handlers of those signals and of SIGALRM.
 * FAILS  Never.
 */
#ifndef COMMON_TEXT_CLI_INTERRUPT_H
#define COMMON_TEXT_CLI_INTERRUPT_H

/* From here on signals are caught. An ignored one (nohup) stays ignored. */
void cli_interrupt_catch(void);
/* The signal that came, or 0. */
int cli_interrupt_seen(void);
/* Die of the signal that came, so that a shell knows; returns if none did. */
void cli_interrupt_die(void);

#endif
