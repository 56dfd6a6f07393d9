/* example.c - a program that consumes a queue with libmqworker
 *
 *   cc -o example example.c $(pkg-config --cflags --libs mqworker)
 *   ./example /orders
 *
 * Prints each message on stdout and its verdict on stderr. SIGTERM and SIGINT
 * stop it: it finishes the messages that it is handling, then exits.
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

/* Handle one message. Several threads may call this at the same time, and a
 * message may come twice: a real handler must detect by mqw_id(message) that
 * its work is already done. */
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

/* Called when the verdict of a message is on disk. */
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

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s /QUEUE [STATE-DIRECTORY]\n", argv[0]);
        return 64;
    }
    if (mqw_options_init(&options, sizeof options) != 0) {
        fprintf(stderr, "%s: libmqworker is older than its header\n", argv[0]);
        return 64;
    }
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
