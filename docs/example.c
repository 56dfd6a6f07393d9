/* example.c - a program that consumes a queue with libmqworker
 *
 *   cc -o example example.c $(pkg-config --cflags --libs mqworker)
 *   ./example /orders
 *
 * Prints each message, answers with a verdict, and keeps a journal of verdicts
 * on stderr. SIGTERM or SIGINT ends it in good order.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <mqworker.h>

static struct mqw_worker *worker;

/* mqw_stop may be called by a signal handler. */
static void on_signal(int signal)
{
    (void)signal;
    mqw_stop(worker);
}

/* handle - what is done for one message; several threads may be here at once
 * It may run twice for one message: do nothing if mqw_id(message) was done
 * before.
 */
static int handle(const struct mqw_message *message,
                  struct mqw_context *context)
{
    const char *trace;
    size_t size;

    if (message->size == 0) {
        mqw_set_reason(context, "an empty order");
        return MQW_DEAD; /* no retry can help */
    }
    printf("%s: %.*s\n", mqw_id(message), (int)message->size,
           (const char *)message->body);
    trace = mqw_header(message, "x-trace", &size);
    if (trace)
        printf("trace %.*s\n", (int)size, trace);
    if (fflush(stdout) != 0) {
        mqw_set_delay(context, 100 * 1000 * 1000); /* ns */
        return MQW_RETRY;
    }
    return MQW_DONE;
}

/* settled - the verdict is durable */
static void settled(const struct mqw_message *message, enum mqw_verdict verdict,
                    uint64_t took_ns, void *user)
{
    static const char *const words[] = {"done", "retry", "dead", "discarded"};

    (void)user;
    fprintf(stderr, "%s %s after %" PRIu64 " us\n", mqw_id(message),
            words[verdict], took_ns / 1000);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct mqw_options options;
    char problem[512];
    int status;

    if (argc < 2 || mqw_options_init(&options, sizeof options) != 0)
        return 64;
    options.queue = argv[1];
    options.state_dir = argc > 2 ? argv[2] : NULL;
    options.max_concurrency = 2;
    options.settled = settled;
    options.log_level = MQW_LOG_WARN;
    options.problem = problem;
    options.problem_size = sizeof problem;
    if (mqw_open(&worker, &options, handle, NULL) != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], problem);
        return 1;
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    status = mqw_work(worker);
    signal(SIGTERM, SIG_IGN); /* on_signal needs a worker */
    signal(SIGINT, SIG_IGN);
    mqw_close(&worker);
    return status;
}
