/* logged.h - what the code under test logs
 *
 * Include it in the test's one file; logged_begin in its set-up, logged_end in
 * its tear-down.
 */
#ifndef TESTS_UNIT_BASE_LOGGED_H
#define TESTS_UNIT_BASE_LOGGED_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static char logged_text[1 << 20];
static size_t logged_size;
static pthread_mutex_t logged_mtx = PTHREAD_MUTEX_INITIALIZER;

/* logged_sink - all lines, one after the other */
static inline void logged_sink(enum log_level level, const char *line,
                               size_t size, void *arg)
{
    (void)level;
    (void)arg;
    pthread_mutex_lock(&logged_mtx);
    if (logged_size + size + 2 < sizeof logged_text) {
        memcpy(logged_text + logged_size, line, size);
        logged_size += size;
        logged_text[logged_size++] = '\n';
    }
    pthread_mutex_unlock(&logged_mtx);
}

static inline void logged_begin(void)
{
    log_setup(LOG_DEBUG, LOG_TEXT);
    log_divert(logged_sink, NULL);
}

static inline void logged_end(void)
{
    log_divert(NULL, NULL);
}

/* logged - how many lines contain this */
static inline unsigned logged(const char *text)
{
    unsigned n = 0;

    pthread_mutex_lock(&logged_mtx);
    logged_text[logged_size] = '\0';
    for (const char *at = logged_text; (at = strstr(at, text)) != NULL; n++)
        at = strchr(at, '\n');
    pthread_mutex_unlock(&logged_mtx);
    return n;
}

/* logged_number - what stands behind "name=" in the first line with `text` */
static inline long logged_number(const char *text, const char *name)
{
    const char *at = strstr(logged_text, text);

    cr_assert(at, "no %s in: %s", text, logged_text);
    at = strstr(at, name);
    cr_assert(at, "no %s in: %s", name, logged_text);
    return atol(at + strlen(name));
}

#endif
