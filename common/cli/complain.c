/* complain.c - report errors, catch signals, keep to a rate (see complain.h) */
#include "common/cli/complain.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/term.h"

#define INDENT 4

static const char *name = "mqworker";

void complain_as(const char *program)
{
    bool by_mqctl = strcmp(program_invocation_short_name, "mqctl") == 0;

    name = by_mqctl ? "mqctl" : program;
}

int complain(int status, const char *fmt, ...)
{
    int width = term_width(stderr), size;
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    size = vasprintf(&text, fmt, args);
    va_end(args);
    if (size < 0)
        text = NULL;
    fprintf(stderr, "%s: ", name);
    if (text && width > 0) /* break lines between words; terminals do not */
        term_words(stderr, text, (int)strlen(name) + 2, INDENT, width);
    else if (text)
        safe_text(stderr, text, (size_t)size, true);
    fputc('\n', stderr);
    free(text);
    return status;
}

int complain_of(const struct problem *p)
{
    return complain(p->status, "%s", p->text);
}

int complain_memory(void)
{
    struct problem p;

    problem_memory(&p);
    return complain_of(&p);
}

int complain_output(int status)
{
    errno = 0; /* stays 0 if only an earlier write has failed */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    return complain(EX_IOERR, "cannot write the output: %s",
                    errno_text(errno ? errno : EIO));
}

const char *complaint_of(char *text)
{
    size_t size = strlen(text);
    const char *line;

    while (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "mqctl: ", 7) == 0 || strncmp(line, "mqdlq: ", 7) == 0)
        line += 7;
    return line;
}

void complain_reads(const char *what)
{
    if (isatty(STDIN_FILENO) == 1)
        complain(0,
                 "reads %s from this terminal; Ctrl-D at the start of a line "
                 "ends it, Ctrl-C gives up",
                 what);
}

/* ---- interrupted ---- */

static volatile sig_atomic_t seen;

/* Handle a signal: remember it. If it arrives after a check of `seen` but
 * before the blocking call that follows, it does not interrupt that call; the
 * alarm does, one second later, and repeats. */
static void signal_note(int number)
{
    if (number != SIGALRM)
        seen = number;
    alarm(1);
}

/* Handlers are set without SA_RESTART, so that blocking calls end. */
void cli_interrupt_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = signal_note};

    sigemptyset(&act.sa_mask);
    sigaction(SIGALRM, &act, NULL);
    act.sa_flags = (int)SA_RESETHAND;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;

        sigaction(numbers[i], NULL, &before);
        if (before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
    }
}

int cli_interrupt_seen(void)
{
    return (int)seen;
}

bool cli_interrupted(void *arg)
{
    (void)arg;
    return seen != 0;
}

void cli_interrupt_die(void)
{
    int number = cli_interrupt_seen();

    if (number == 0)
        return;
    fflush(NULL);
    signal(number, SIG_DFL);
    raise(number);
}

/* ---- a rate, without drift ---- */

void rate_limit_start(struct rate_limit *p, uint64_t rate, uint64_t now_ns)
{
    *p = (struct rate_limit){.rate = rate, .start_ns = now_ns};
}

uint64_t rate_limit_next(struct rate_limit *p, uint64_t now_ns)
{
    uint64_t rest, part, due;

    if (p->rate == 0)
        return now_ns;
    /* start + steps / rate; split, so that nothing overflows */
    rest = p->steps % p->rate;
    part = p->rate < NS_PER_S
               ? rest * NS_PER_S / p->rate
               : (uint64_t)((double)rest * 1e9 / (double)p->rate);
    due = p->start_ns + p->steps / p->rate * NS_PER_S + part;
    if (now_ns > due && now_ns - due > NS_PER_S) {
        rate_limit_start(p, p->rate, now_ns - NS_PER_S);
        due = p->start_ns;
    }
    p->steps++;
    return due;
}

int rate_limit_wait(struct rate_limit *p)
{
    struct rate_limit before = *p;
    struct timespec until;
    uint64_t now, due;
    int err;

    if (p->rate == 0)
        return 0;
    now = clock_mono_ns();
    due = rate_limit_next(p, now);
    if (due <= now)
        return 0;
    until = (struct timespec){.tv_sec = (time_t)(due / NS_PER_S),
                              .tv_nsec = (long)(due % NS_PER_S)};
    err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    if (err == EINTR)
        *p = before;
    return -err;
}
