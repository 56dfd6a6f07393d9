/* test_poison_suspects.c - who was running at a crash runs alone, until all are
 * done */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/custody/slot.h"
#include "worker/rules/poison_suspects.h"

enum { SLOTS = 3 };

static struct slot *slots[SLOTS];
static struct suspects suspects;

static void setup(void)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        slots[i] = aligned_alloc(64, SLOT_HEADER);
        cr_assert_not_null(slots[i]);
        *slots[i] = (struct slot){.priority = 0};
        slot_hold(slots[i], &(struct slot_meta){.seq = i + 1, .crashes = 1});
        cr_assert_eq(suspects_add(&suspects, slots[i], 0), 0);
    }
}

static void teardown(void)
{
    suspects_fini(&suspects);
    for (unsigned i = 0; i < SLOTS; i++)
        free(slots[i]);
}

TestSuite(suspects, .init = setup, .fini = teardown);

Test(no_suspects, without_a_crash_nobody_waits)
{
    cr_assert(!suspects_left(&suspects));
}

Test(suspects, the_last_one_that_is_done_ends_it)
{
    cr_assert(suspects_left(&suspects));
    slot_retire(slots[1]);
    cr_assert(suspects_left(&suspects));
    slot_retire(slots[0]);
    cr_assert(suspects_left(&suspects));
    slot_retire(slots[2]);
    cr_assert(!suspects_left(&suspects));
}

Test(suspects, one_that_runs_is_left)
{
    slot_retire(slots[0]);
    slot_retire(slots[1]);
    slot_run(slots[2], 1);
    cr_assert(suspects_left(&suspects));
    slot_unrun(slots[2], true);
    cr_assert(suspects_left(&suspects));
}

Test(suspects, a_slot_that_has_another_message_now_is_none)
{
    slot_retire(slots[0]);
    cr_assert(suspects_left(&suspects));
    slot_hold(slots[0], &(struct slot_meta){.seq = 9});
    slot_retire(slots[1]);
    slot_retire(slots[2]);
    cr_assert(!suspects_left(&suspects));
}

Test(no_suspects, a_row_is_left_until_it_has_run)
{
    cr_assert_eq(suspects_add(&suspects, NULL, 7), 0);
    cr_assert_eq(suspects_add(&suspects, NULL, 8), 0);
    cr_assert(suspects_left(&suspects));
    suspects_done(&suspects, 7);
    suspects_done(&suspects, 9);
    cr_assert(suspects_left(&suspects));
    suspects_done(&suspects, 8);
    cr_assert(!suspects_left(&suspects));
    suspects_fini(&suspects);
}

Test(suspects, those_that_cannot_run_keep_nobody_waiting)
{
    slot_retire(slots[0]);
    cr_assert(suspects_left(&suspects));
    suspects_forget(&suspects);
    cr_assert(!suspects_left(&suspects));
    slot_retire(slots[1]);
    cr_assert(!suspects_left(&suspects));
}
