/* test_docs_producers.c - docs: each producer in docs/producers.md sends its
 * body byte for byte, and fails if there is no queue */
#include "tests/e2e/product/docs_fixture.h"

TestSuite(docs_producers, .init = harness_init, .fini = harness_fini);

/* Bytes that a shell, C or a format string would change. */
static const char body[] = "caf\303\251 $HOME 100% \\n 'quoted'\nsecond line";

/* Take a producer from the page, build it by `build` and let it send. The test
 * is skipped if `needs` fails. */
static void producer(const char *fence, const char *file, const char *needs,
                     const char *build)
{
    const char *queue = harness_queue(10, 256);
    char missing[128], got[256];
    size_t size;

    if (harness_run("sh", "-c", needs).status != 0)
        cr_skip_test("not on this machine: %s", needs);
    block("producers.md", fence, file);
    sh(build, "");
    snprintf(missing, sizeof missing, "%s-gone", queue);
    sh("if ./send \"$1\" body 2>said; then exit 1; fi", missing);
    sh("./send \"$1\" \"$(printf 'caf\\303\\251 $HOME 100%% \\\\n "
       "'\"'quoted'\"'\\nsecond line')\"",
       queue);

    struct harness_process *w = harness_worker(queue, "--max-deliveries", "1",
                                               "--", "sh", "-c", "cat >body");
    cr_assert_eq(harness_wait(w, 10000), 0);
    const char *sent = harness_read("body", &size);
    cr_assert_lt(size, sizeof got);
    cr_assert_eq(size, sizeof body - 1, "%zu bytes: %s", size, sent);
    cr_assert_eq(memcmp(sent, body, size), 0, "%s", sent);
}

Test(docs_producers, shell)
{
    producer("sh send-shell", "send", "true", "true");
}

Test(docs_producers, c)
{
    producer("c send-c", "send.c", "command -v ${CC:-cc}",
             "${CC:-cc} -Wall -Wextra -Werror -o send send.c -lrt");
}

Test(docs_producers, cpp)
{
    producer("cpp send-cpp", "send.cc", "command -v c++",
             "c++ -std=c++17 -Wall -Wextra -Werror -o send send.cc -lrt");
}

Test(docs_producers, python_ctypes)
{
    producer("python send-ctypes", "send", "python3 -c 'import ctypes'",
             "true");
}

Test(docs_producers, python_posix_ipc)
{
    producer("python send-posix-ipc", "send", "python3 -c 'import posix_ipc'",
             "true");
}

Test(docs_producers, node)
{
    producer("js send-node", "send", "command -v node", "true");
}

Test(docs_producers, go)
{
    producer("go send-go", "send.go", "command -v go",
             "GOCACHE=$PWD/cache GO111MODULE=off go build -o send send.go");
}

Test(docs_producers, php)
{
    producer("php send-php", "send",
             "php -r 'exit(extension_loaded(\"FFI\") ? 0 : 1);'", "true");
}

Test(docs_producers, perl)
{
    producer("perl send-perl", "send", "perl -e 'require \"sys/syscall.ph\"'",
             "true");
}
