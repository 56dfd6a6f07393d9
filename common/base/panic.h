/* panic.h - a bug of ours: say what, and end
 *
 * WHAT   Logs event=panic what=... and aborts. Nothing durable is touched: what
 *        was in flight stays in custody, as after a kill.
 * WHO    Any thread, with any lock held but those of the log. The one
 *        other abort(3) of ours is --timeout-abort's, which is no bug and says
 *        event=handler_abort.
 * OWNS   Nothing; uses the stack only, no memory.
 * FAILS  Never returns.
 */
#ifndef COMMON_BASE_PANIC_H
#define COMMON_BASE_PANIC_H

_Noreturn void panic(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#endif
