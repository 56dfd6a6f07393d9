/* handler_plugin.c - a C function from a shared object (see handler_inproc.h,
 * docs/library.md)
 *
 * The object is never unloaded: threads of the pool may run destructors of
 * its thread-specific data, and the process is about to end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "worker/handlers/handler_inproc.h"

/* A symbol of the object itself or of what it needs; NULL: none.
 * POSIX lets an object pointer of dlsym(3) be read as one to a function. */
static void symbol_find(void *object, const char *name, void *into)
{
    void *at = dlsym(object, name);

    memcpy(into, &at, sizeof at);
}

/* One line that names the file */
static int plugin_refuse(struct problem *p, const char *file, const char *what)
{
    return problem_set(p, EX_USAGE, EINVAL, "--plugin %s: %s", file, what);
}

/* The file, never a library of that name from elsewhere */
static int object_open(void **object, const char *file, struct problem *p)
{
    char path[PATH_MAX], text[512];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./",
                     file);

    if (n < 0 || (size_t)n >= sizeof path)
        return plugin_refuse(p, file, "the path is too long");
    /* dlopen would wait for ever at a named pipe. */
    if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size == 0))
        return plugin_refuse(
            p, file, "is not a shared object; build one with cc -shared -fPIC");
    *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*object)
        return 0;
    snprintf(text, sizeof text,
             "cannot be loaded: %s; ldd -r %.200s shows what it lacks, cc "
             "-shared -fPIC builds one",
             dlerror(), path);
    return plugin_refuse(p, file, text);
}

/* Before anything of it is called */
static int version_check(void *object, const char *file, struct problem *p)
{
    const unsigned *abi = dlsym(object, "mqw_abi");
    char text[256];

    if (!abi)
        return plugin_refuse(
            p, file,
            "it has no mqw_abi, so it is not a plugin: include "
            "mqworker.h where mqw_handle is defined");
    if (*abi == MQW_ABI)
        return 0;
    snprintf(text, sizeof text,
             "it was compiled for version %u of the plugin interface, this "
             "mqworker has version %d: compile it with this mqworker.h",
             *abi, MQW_ABI);
    return plugin_refuse(p, file, text);
}

/* What it returned, and what it was given */
static int init_refuse(const struct settings *set, int status,
                       struct problem *p)
{
    char meaning[128] = "", arg[256] = "without --plugin-arg";

    if (status < 0 && status > -4096) /* as far as errno goes in Linux */
        snprintf(meaning, sizeof meaning, " (%s)", errno_text(-status));
    if (set->plugin_arg)
        snprintf(arg, sizeof arg, "with --plugin-arg \"%s\"", set->plugin_arg);
    return problem_set(p, EX_UNAVAILABLE, ECANCELED,
                       "--plugin %s: its mqw_init returned %d%s %s; see what "
                       "the plugin asks for",
                       set->plugin, status, meaning, arg);
}

/* Mqw_init, where there is one */
static int plugin_start(void *object, const struct settings *set,
                        struct inproc *what, struct problem *p)
{
    int (*init)(const char *arg, void **user) = NULL;
    int status;

    symbol_find(object, "mqw_init", &init);
    if (!init)
        return 0;
    status = init(set->plugin_arg, &what->user);
    return status ? init_refuse(set, status, p) : 0;
}

/* Load the shared object, unless already loaded, and find its functions. */
static int plugin_load(const struct settings *set, void **object,
                       struct inproc *what, struct problem *p)
{
    int err = object_open(object, set->plugin, p);

    if (!err)
        err = version_check(*object, set->plugin, p);
    if (err)
        return err;
    symbol_find(*object, "mqw_handle", &what->handle);
    symbol_find(*object, "mqw_settled", &what->settled);
    symbol_find(*object, "mqw_fini", &what->fini);
    return what->handle
               ? 0
               : plugin_refuse(
                     p, set->plugin,
                     "the plugin has no function mqw_handle; in C++ declare "
                     "it extern \"C\", as in mqworker.h");
}

static int plugin_check(const struct settings *set, struct problem *p)
{
    struct inproc what = {0};
    void *object;

    return plugin_load(set, &object, &what, p);
}

static int plugin_open(struct handler **out, const struct handler_setup *setup,
                       struct problem *p)
{
    const struct settings *set = setup->settings;
    struct inproc what = {0};
    void *object = NULL;
    int err;

    *out = NULL;
    err = plugin_load(set, &object, &what, p);
    if (err)
        return err;
    err = plugin_start(object, set, &what, p);
    return err ? err : inproc_open(out, setup, &what, p);
}

const struct handler_ops handler_plugin = {
    .name = "plugin",
    .within = true,
    .guess_ns = NS_PER_US,
    .check = plugin_check,
    .open = plugin_open,
    .run = inproc_run,
    .stop = inproc_stop,
    .seize = inproc_seize,
    .close = inproc_close,
    .settled = inproc_settled,
    .hears = inproc_hears,
};
