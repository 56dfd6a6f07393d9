/* fuzz_serve_path.c - any text as a path, host name, cookie or token of a
 * request: refused, or read within its bounds */
#include "common/broker/broker_operand.h"
#include "scripts/mqctl/serve/guard.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "tests/fuzz/fuzz.h"

/* Check what an accepted path must be, for each method. */
static void path_check(const char *text)
{
    static const char *const methods[] = {"GET",   "HEAD",   "POST",
                                          "PATCH", "DELETE", "TRACE"};
    struct serve_path path;
    for (size_t i = 0; i < 6; i++) {
        int status = serve_path_read(&path, methods[i], text);
        fuzz_must(status == 0 || status == 404 || status == 405 ||
                  status == 501);
        fuzz_must((status == 0) == (path.route != NULL));
        fuzz_must(strnlen(path.queue, QUEUE_NAME_MAX) < QUEUE_NAME_MAX);
        fuzz_must(strnlen(path.word, SERVE_WORD) < SERVE_WORD);
        fuzz_must(path.row >= 0);
        fuzz_must(!path.queue[0] ||
                  (path.queue[0] == '/' && !strchr(path.queue + 1, '/')) ||
                  broker_operand_is(path.queue));
        fuzz_must(!strchr(path.word, '/'));
        fuzz_must(status || !path.route->write || i > 1);
    }
}

/* Check that only our own host names are accepted, in any case. */
static void name_check(const char *text)
{
    static const char *const names[] = {"queues.example.org"};
    const struct serve_guard g = {
        .names = names, .name_count = 1, .own = "127.0.0.1", .port = 8480};
    if (!serve_host_ours(&g, text))
        return;
    fuzz_must(strncasecmp(text, "localhost:", 10) == 0 ||
              strncmp(text, "127.0.0.1:", 10) == 0 ||
              strncmp(text, "[::1]:", 6) == 0 ||
              strncasecmp(text, "queues.example.org", 18) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct serve_guard g = {.token = "a token that nobody knows"};
    char *text = fuzz_text(data, size);
    int64_t n = 0;
    path_check(text);
    name_check(text);
    fuzz_must(!serve_cookie_right(&g, text, 0));
    fuzz_must(!serve_key_right(&g, "0000000000000000-", text));
    fuzz_must(serve_host_port(text) < 65536);
    fuzz_must(!serve_token_right(&g, text) || size == 0);
    fuzz_must(!serve_number_read(text, &n) || n > 0);
    free(text);
    return 0;
}
