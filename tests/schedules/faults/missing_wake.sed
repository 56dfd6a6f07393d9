# worker/flow/items.c
# A work item that leaves does not say so.
/^static bool item_left(/,/^}/s/    schedule_wake(f);//
