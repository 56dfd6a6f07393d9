/* test_serve_idle.c - mqctl serve: what an open page costs idle workers, and
 * that it is up to date nevertheless */
#include <sys/inotify.h>

#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_idle, .init = harness_init, .fini = harness_fini,
          .timeout = 300);

/* Numbers of looks that the server takes at a queue; each look opens the
 * pidfile. After MANY without a change, looks become less frequent. */
#define LOOKS 5
#define MANY  13

/* Open the stream of a page with all queues, which is looked at each second. */
static int stream_open(const struct web *w)
{
    char request[512];
    int fd = web_connect(w);

    snprintf(request, sizeof request,
             "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             w->port, w->token);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    return fd;
}

/* Wait until the server took `most` looks in a row that neither opened the
 * store nor changed a file time. */
static void quiet_until(const char *q, int most)
{
    char folder[4096], events[4096] __attribute__((aligned(8)));
    uint64_t end = harness_deadline(SOON_MS);
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), looks = 0;
    ssize_t n;

    snprintf(folder, sizeof folder, "%s%s", harness_state_dir(), q);
    cr_assert_geq(inotify_add_watch(fd, folder, IN_OPEN | IN_ATTRIB), 0);
    while (looks < most) {
        n = read(fd, events, sizeof events);
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e =
                (const struct inotify_event *)(const void *)(events + at);

            if (e->len && strcmp(e->name, "worker.pid") == 0)
                looks++;
            else if (e->len &&
                     (strcmp(e->name, "store.db") == 0 || e->mask & IN_ATTRIB))
                looks = 0;
            at += (ssize_t)(sizeof *e + e->len);
        }
        if (n <= 0)
            harness_nap(end, "looks that leave the store alone");
    }
    close(fd);
}

static void dead_until(int stream, unsigned n)
{
    char text[32];

    snprintf(text, sizeof text, "\"dead\":%u", n);
    cr_assert(strstr(web_read(stream, text)->text, text), "%s", text);
}

/* Open a second page while looks are rare, every 3 s. The page causes a look
 * within a second. A busy machine may need several tries. */
static void new_page_until_looked(const struct web *w, const char *q)
{
    uint64_t took = UINT64_MAX;

    for (int i = 0; i < 8 && took >= 2000; i++) {
        uint64_t began;
        int page;

        quiet_until(q, i ? MANY : 1); /* begin right after a look */
        began = harness_now_ms();
        page = stream_open(w);
        quiet_until(q, 1);
        took = harness_now_ms() - began;
        close(page);
    }
    cr_assert_lt(took, 2000, "a new page shows old numbers");
}

Test(serve_idle, looks_wake_no_worker_and_find_each_change)
{
    struct harness_process *worker;
    const char *q = dead_letters(1, &worker);
    struct web w = web_start(NULL);
    int stream = stream_open(&w);
    long switches;

    dead_until(stream, 1);
    quiet_until(q, MANY);
    switches = harness_settled(worker, SOON_MS);
    quiet_until(q, LOOKS);
    if (switches >= 0)
        cr_assert_eq(harness_switches(worker), switches);
    new_page_until_looked(&w, q);
    harness_send_text(q, "two");
    dead_until(stream, 2); /* by the worker */
    letters_many(q, 3);
    dead_until(stream, 5); /* by mqdlq, beside the worker */
    quiet_until(q, LOOKS);
    harness_kill(worker);
    cr_assert(strstr(web_read(stream, "\"state\":\"killed\"")->text, "killed"));
    quiet_until(q, LOOKS);
    cr_assert_eq(harness_run("mqdlq", "discard", "--state-dir",
                             harness_state_dir(), "--all", q)
                     .status,
                 0);
    dead_until(stream, 0); /* by mqdlq alone */
    close(stream);
    web_stop(&w);
}
