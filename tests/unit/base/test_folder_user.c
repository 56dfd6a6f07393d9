/* test_folder_user.c - names of users and groups, as the C library has them */
#include <criterion/criterion.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/base/folder.h"

/* No system that we know has a user or a group with this number. */
#define NOBODY 4294967290u

Test(folder_user, each_user_of_this_machine_has_the_name_that_a_search_gives)
{
    static uid_t uids[1000];
    size_t n = 0;
    char out[FOLDER_USER];

    for (struct passwd *p; n < 1000 && (p = getpwent()) != NULL;)
        uids[n++] = p->pw_uid;
    endpwent();
    cr_assert(n > 0);
    for (size_t i = 0; i < n; i++)
        cr_assert_str_eq(folder_user(uids[i], out), getpwuid(uids[i])->pw_name);
}

Test(folder_user, each_group_of_this_machine_has_its_name)
{
    static gid_t gids[1000];
    size_t n = 0;
    char out[FOLDER_USER], want[FOLDER_USER];

    for (struct group *g; n < 1000 && (g = getgrent()) != NULL;)
        gids[n++] = g->gr_gid;
    endgrent();
    cr_assert(n > 0);
    for (size_t i = 0; i < n; i++) {
        snprintf(want, sizeof want, "group %s", getgrgid(gids[i])->gr_name);
        cr_assert_str_eq(folder_group(gids[i], out), want);
    }
}

Test(folder_user, who_has_no_name_is_a_number)
{
    char out[FOLDER_USER];

    cr_assert_str_eq(folder_user(NOBODY, out), "uid 4294967290");
    cr_assert_str_eq(folder_group(NOBODY, out), "gid 4294967290");
}

Test(folder_user, without_a_descriptor_it_is_a_number_too)
{
    struct rlimit is, none;
    char user[FOLDER_USER], group[FOLDER_USER];

    getrlimit(RLIMIT_NOFILE, &is);
    none = (struct rlimit){.rlim_max = is.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    folder_user(0, user);
    folder_group(0, group);
    setrlimit(RLIMIT_NOFILE, &is); /* an assertion needs one */
    cr_assert_str_eq(user, "uid 0");
    cr_assert_str_eq(group, "gid 0");
}
