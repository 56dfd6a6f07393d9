/* test_container.c - docs/examples: the container image and compose file
 *
 * The packages in the image are enough for the programs, and the services of
 * the compose file work together. Building the image takes a network, so that
 * is done by test_docs_pages.c if MQW_TEST_IMAGE names a builder. Here its last
 * stage is made of the packages of this machine (tests/harness/image).
 */
#include <signal.h>

#include "tests/e2e/product/docs_fixture.h"

TestSuite(container, .init = harness_init, .fini = harness_fini);

#define SOON_MS 20000

/* Return the path of tests/harness/image, which is found from the docs. */
static const char *script(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/../tests/harness/image", page(""));
    return path;
}

/* Make the last stage of the Dockerfile; return its folder. */
static const char *root_make(void)
{
    const char *root = harness_path("root"), *image = script();
    char bin[4096];
    struct harness_result r;

    snprintf(bin, sizeof bin, "%s", harness_bin("mqctl"));
    *strrchr(bin, '/') = '\0';
    r = harness_run(image, "root", page("examples/Dockerfile"), bin, root);
    if (r.status == 77)
        cr_skip_test("%s", r.out);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    return root;
}

/* Return the outer pid of process 1 of a container; 0: not started yet. */
static int first_of(const struct harness_process *p)
{
    char path[64];
    int pid = 0;
    FILE *in;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children",
             (int)harness_pid(p), (int)harness_pid(p));
    in = fopen(path, "re");
    if (!in)
        return 0;
    if (fscanf(in, "%d", &pid) != 1)
        pid = 0;
    fclose(in);
    return pid;
}

Test(container, services_of_the_compose_file_share_a_queue)
{
    const char *root = root_make(), *image = script(), *compose;
    struct harness_process *worker, *producer;
    struct harness_result r;
    char pid[16];

    compose = page("examples/compose.yaml");
    worker = harness_program(image, "run", compose, root, "worker");
    harness_wait_log(worker, "event=started", SOON_MS);
    snprintf(pid, sizeof pid, "%d", first_of(worker));
    producer = harness_program(image, "run", compose, root, "producer", pid);
    harness_until(strstr(harness_stdout(worker, NULL), " UTC "), SOON_MS);
    harness_kill(producer);

    /* Run its health check inside. */
    r = harness_run("nsenter", "-t", pid, "-m", "-i", "-p", "-r", "-S", "65534",
                    "-G", "65534", "env", "STATE_DIRECTORY=/var/lib/mqworker",
                    "mqctl", "status", "/orders");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert(strstr(r.out, "running"), "%s", r.out);

    cr_assert_eq(kill(atoi(pid), SIGTERM), 0);
    cr_assert_eq(harness_wait(worker, SOON_MS), 0, "%s",
                 harness_stderr(worker, NULL));
    cr_assert(harness_exists("root/var/lib/mqworker/orders/store.db"),
              "the volume has what must outlive the container");
}
