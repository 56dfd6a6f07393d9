#include "tests/crash/torture.h"
void points_run(struct torture *t)
{
    legs_run(t, 1);
}
