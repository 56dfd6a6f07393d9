/* problem.c - see problem.h */
#include "common/base/problem.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/errno_text.h"

/* line_clean - control bytes to '?': values in the text come from users, and a
 * newline or an escape sequence in one must not make a second line */
static void line_clean(char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20 || c == 0x7f)
            *text = '?';
    }
}

/* tail_trim - drop the UTF-8 character that a cut at `size` split, if any */
static void tail_trim(char *text, size_t size)
{
    size_t start = size;
    unsigned char lead;
    size_t want;

    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;
    lead = (unsigned char)text[start - 1];
    want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (size - (start - 1) < want)
        text[start - 1] = '\0';
}

void problem_fill(struct problem *p, int status, const char *fmt, ...)
{
    char text[sizeof p->text]; /* an argument may be p->text itself */
    va_list args;
    int size;

    if (!p)
        return;
    va_start(args, fmt);
    size = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (size < 0)
        text[0] = '\0';
    else if ((size_t)size >= sizeof text)
        tail_trim(text, sizeof text - 1);
    line_clean(text);
    p->status = status;
    memcpy(p->text, text, sizeof text);
}

void problem_memory(struct problem *p)
{
    (void)problem_set(p, EX_OSERR, ENOMEM, "out of memory");
}

bool problem_descriptors_gone(void)
{
    int fd = open("/", O_PATH | O_CLOEXEC);

    if (fd < 0)
        return errno == EMFILE;
    close(fd);
    return false;
}

/* files_advice - of this process, or of the machine */
static void files_advice(int err, char *to, size_t room)
{
    struct rlimit limit = {.rlim_cur = 0};
    unsigned long long want;

    getrlimit(RLIMIT_NOFILE, &limit);
    want = limit.rlim_cur < 512 ? 1024 : limit.rlim_cur * 2;
    if (err == EMFILE)
        snprintf(to, room,
                 "; raise the limit: `ulimit -n %llu`, systemd "
                 "`LimitNOFILE=%llu`",
                 want, want);
    else
        snprintf(to, room,
                 "; all of the machine are in use: `sysctl fs.file-max`");
}

/* memory_advice - a limit of this process, if it has one: that is what refuses
 * memory long before the machine does, which ends processes instead */
static void memory_advice(char *to, size_t room)
{
    static const struct {
        __rlimit_resource_t which;
        const char *name, *flag, *of;
    } limits[] = {{RLIMIT_AS, "AS", "-v", "address space"},
                  {RLIMIT_DATA, "DATA", "-d", "data"}};

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit limit;
        int n;

        if (getrlimit(limits[i].which, &limit) < 0 ||
            limit.rlim_cur == RLIM_INFINITY)
            continue;
        n = snprintf(to, room,
                     "; RLIMIT_%s allows %llu KiB of %s: raise it, `ulimit "
                     "%s unlimited`, systemd `Limit%s=infinity`",
                     limits[i].name, (unsigned long long)limit.rlim_cur >> 10,
                     limits[i].of, limits[i].flag, limits[i].name);
        if (n < 0 || (size_t)n >= room)
            return;
        to += n;
        room -= (size_t)n;
    }
}

/* problem_limit - what stands behind the error's own text is replaced; a text
 * that tells how to raise a limit is right already */
void problem_limit(struct problem *p, int err)
{
    bool files = err == EMFILE || err == ENFILE;
    size_t used;
    const char *said;

    if (!p || (!files && err != ENOMEM) || strstr(p->text, "ulimit") ||
        strstr(p->text, "sysctl"))
        return;
    used = strlen(p->text);
    said = strstr(p->text, errno_text(err));
    if (said)
        used = (size_t)(said - p->text) + strlen(errno_text(err));
    p->text[used] = '\0';
    p->status = EX_OSERR;
    if (files)
        files_advice(err, p->text + used, sizeof p->text - used);
    else
        memory_advice(p->text + used, sizeof p->text - used);
}
