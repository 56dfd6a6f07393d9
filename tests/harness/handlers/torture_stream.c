/* torture_stream.c - handler of the torture program: a long-lived child
 * (torture_witness.h)
 *
 * All messages that were read at once are answered in one write.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/crash/torture/torture_witness.h"

enum { ROOM = 1 << 18, ANSWER = 64 };

static char answers[ROOM];
static size_t answered; /* size of the answers */

/* Write all answers. */
static void answers_write(void)
{
    for (size_t at = 0; at < answered;) {
        ssize_t n = write(1, answers + at, answered - at);

        if (n <= 0)
            exit(0); /* the worker is gone */
        at += (size_t)n;
    }
    answered = 0;
}

static void answer(const struct torture_run *run, const char *id)
{
    static const char *const words[] = {
        [TORTURE_DONE] = "OK",         [TORTURE_RETRY] = "OK",
        [TORTURE_DEAD] = "DEAD",       [TORTURE_LATER] = "OK",
        [TORTURE_DISCARD] = "DISCARD",
    };

    if (answered + ANSWER > sizeof answers)
        answers_write();
    answered += (size_t)snprintf(answers + answered, ANSWER, "%s %s\n",
                                 run->fails ? "RETRY" : words[run->fate], id);
}

/* Parse "MSG id bytes name=value...", ended by a NUL. */
static void head_read(char *line, struct torture_seen *s)
{
    char *word = strtok(line, " ");

    if (!word || strcmp(word, "MSG") != 0)
        exit(1);
    s->id = strtok(NULL, " ");
    word = strtok(NULL, " ");
    if (!s->id || !word)
        exit(1);
    s->size = strtoul(word, NULL, 10);
    while ((word = strtok(NULL, " ")) != NULL) {
        char *value = strchr(word, '=');

        if (!value)
            exit(1);
        *value++ = '\0';
        if (strcmp(word, "attempt") == 0) {
            s->attempt = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(word, "priority") == 0) {
            s->priority = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(word, "redelivered") == 0) {
            s->marked = true;
        } else if (strcmp(word, "length-inferred") == 0) {
            s->inferred = true;
        } else if (strcmp(word, "group") == 0) {
            s->group = value;
            s->group_size = strlen(value);
        }
    }
}

/* Run the first message in the buffer. Return its size; 0: it is incomplete. */
static size_t message_run(char *at, size_t size)
{
    char *end = memchr(at, '\n', size), line[512];
    struct torture_seen seen = {0};
    struct torture_run run;
    size_t head = end ? (size_t)(end - at) : 0;

    if (!end)
        return 0;
    if (head >= sizeof line)
        exit(1);
    memcpy(line, at, head);
    line[head] = '\0';
    head_read(line, &seen);
    if (size - head - 1 < seen.size + 1)
        return 0;
    seen.body = end + 1;
    torture_begin(&seen, &run);
    torture_dawdle();
    torture_end(&run);
    answer(&run, seen.id);
    return head + 1 + seen.size + 1;
}

int main(void)
{
    static char buffer[ROOM];
    size_t used = 0, n;
    ssize_t got;

    torture_world_open();
    while ((got = read(0, buffer + used, sizeof buffer - used)) > 0) {
        size_t at = 0;

        used += (size_t)got;
        while ((n = message_run(buffer + at, used - at)) > 0)
            at += n;
        answers_write();
        used -= at;
        memmove(buffer, buffer + at, used);
    }
    return 0;
}
