/* fuzz_settings.c - any command line of mqworker: refused with 64 and one line,
 * or settings that lie in their ranges. Arguments end with a newline. */
#include "tests/fuzz/fuzz.h"
#include "worker/config/settings.h"
#include "worker/rules/verdict.h"

#include <sysexits.h>

#define ARGS 32

/* Make argv of the text's lines, each in memory of its own. */
static int arguments(const uint8_t *data, size_t size, char *argv[ARGS + 2])
{
    int argc = 1;
    argv[0] = fuzz_text((const uint8_t *)"mqworker", 8);
    for (size_t at = 0; at < size && argc <= ARGS;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t length = end ? (size_t)(end - data) - at : size - at;
        argv[argc++] = fuzz_text(data + at, length);
        at += length + 1;
    }
    argv[argc] = NULL;
    return argc;
}

/* Check that the queue is a name of a POSIX queue, or a broker's operand. */
static void queue_bounds(const struct settings *s)
{
    fuzz_must(memchr(s->queue, '\0', sizeof s->queue));
    if (s->broker.host_count > 0)
        fuzz_must(strncmp(s->queue, "amqp", 4) == 0 && s->broker.queue[0]);
    else
        fuzz_must(s->queue[0] == '/' && strlen(s->queue) > 1);
}

/* Check that no flag has set a value outside its range. */
static void settings_bounds(const struct settings *s)
{
    queue_bounds(s);
    fuzz_must(!!s->plugin + !!s->command + !!s->forward == 1);
    fuzz_must(!s->command || s->command[0][0]);
    fuzz_must(s->concurrency >= 1 && s->concurrency <= CONCURRENCY_MAX);
    fuzz_must(s->window >= 1 && s->window <= WINDOW_MAX);
    fuzz_must(s->max_attempts >= 1 && s->max_attempts <= UINT32_MAX);
    fuzz_must(s->max_crashes >= 1 && s->max_crashes <= UINT16_MAX);
    fuzz_must(s->lookahead >= 1 && s->group_quantum >= 1);
    fuzz_must(s->mode <= 0777);
    fuzz_must(s->backoff.count >= 1 && s->backoff.count <= BACKOFF_STEPS);
    fuzz_must(s->log_format <= LOG_AUTO);
    for (size_t i = 0; i < 256; i++)
        fuzz_must(s->on_exit[i] <= MQW_DISCARD ||
                  s->on_exit[i] == VERDICT_UNMAPPED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct settings s;
    struct problem p = {0};
    char *argv[ARGS + 2], *kept[ARGS + 2];
    int argc = arguments(data, size, argv);
    memcpy(kept, argv, sizeof kept[0] * (size_t)argc); /* argv is permuted */
    settings_init(&s);
    if (settings_parse(&s, argc, argv, &p) < 0)
        fuzz_must(p.status == EX_USAGE && p.text[0] && !strchr(p.text, '\n'));
    else if (!s.help && !s.version)
        settings_bounds(&s);
    for (int i = 0; i < argc; i++)
        free(kept[i]);
    return 0;
}
