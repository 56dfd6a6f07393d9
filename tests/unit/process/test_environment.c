/* test_environment.c - the mark that makes a delivery's processes known */
#include <criterion/criterion.h>
#include <string.h>

#include "worker/process/environment.h"

#define NONCE UINT64_C(0x0123456789abcdef)

/* Look for a mark in strings that each end in NUL, as /proc shows them. */
#define marked(text, seq) environment_marked((text), sizeof(text), NONCE, (seq))

Test(environment, a_mark_is_found_wherever_it_stands)
{
    char mark[ENVIRONMENT_MARK], env[2 * ENVIRONMENT_MARK] = "A=b";
    uint64_t seq = 0;

    environment_mark(NONCE, UINT64_MAX - 1, mark);
    cr_assert(environment_marked(mark, strlen(mark) + 1, NONCE, &seq));
    cr_assert_eq(seq, UINT64_MAX - 1);
    strcpy(env + 4, environment_mark(NONCE, 7, mark));
    cr_assert(environment_marked(env, 4 + strlen(mark) + 1, NONCE, &seq));
    cr_assert_eq(seq, 7);
    strcpy(env + 4 + strlen(mark) + 1, "Z=z");
    cr_assert(environment_marked(env, 4 + strlen(mark) + 5, NONCE, &seq));
}

Test(environment, another_worker_s_mark_or_a_part_of_a_value_is_none)
{
    uint64_t seq = 0;

    cr_assert_not(marked("", &seq));
    cr_assert_not(marked("MQW_DELIVERY=0123456789abcdee-7", &seq));
    cr_assert_not(marked("A=MQW_DELIVERY=0123456789abcdef-7", &seq));
    cr_assert_not(marked("XMQW_DELIVERY=0123456789abcdef-7", &seq));
    cr_assert_not(marked("MQW_DELIVERY=0123456789abcdef", &seq));
    cr_assert(marked("A=\0MQW_DELIVERY=0123456789abcdef-7", &seq));
    cr_assert_eq(seq, 7);
}
