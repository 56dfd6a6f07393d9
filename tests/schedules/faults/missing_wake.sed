# worker/flow/items.c
# Whoever leaves does not say so.
/^static bool left(/,/^}/s/    schedule_wake(f);//
