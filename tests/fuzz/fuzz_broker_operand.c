/* fuzz_broker_operand.c - any text as an operand: refused in one line, or parts
 * that are safe as names of folders and in a log */
#include "tests/fuzz/fuzz.h"
#include "common/broker/broker_operand.h"

#include <sysexits.h>

/* Check that the folder has three parts, none empty or with a dot in front. */
static void folder_check(const char *folder)
{
    unsigned slashes = 0;

    for (const char *c = folder; *c; c++) {
        slashes += *c == '/';
        fuzz_must(*c != '/' || (c[1] != '/' && c[1] != '.' && c[1] != '\0'));
    }
    fuzz_must(slashes == 3 && strncmp(folder, "/amqp/", 6) == 0);
}

/* Check that the shown form has no user in front of the hosts. */
static void user_check(const char *hosts)
{
    fuzz_must(!memchr(hosts, '@', strcspn(hosts, "/")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct broker_operand o;
    struct problem p = {0};
    char *text = fuzz_text(data, size);

    if (!broker_operand_is(text)) {
        free(text);
        return 0;
    }
    if (broker_operand_parse(&o, text, &p) == 0) {
        fuzz_must(o.host_count >= 1 && o.host_count <= BROKER_HOSTS);
        for (unsigned i = 0; i < o.host_count; i++)
            fuzz_must(o.hosts[i].name[0] && o.hosts[i].port >= 1 &&
                      o.hosts[i].port <= 65535);
        fuzz_must(o.user[0] && o.vhost[0] && o.queue[0]);
        fuzz_must(broker_operand_is(o.shown));
        user_check(strstr(o.shown, "://") + 3);
        folder_check(o.folder);
    } else {
        fuzz_must(p.status == EX_USAGE && p.text[0]);
        fuzz_must(!strchr(p.text, '\n'));
    }
    free(text);
    return 0;
}
