# worker/flow/items.c
# A work item that leaves does not wake another one.
/^static void item_run(/,/^}/s/    schedule_wake(f);/    (void)f;/
