# worker/flow/receive.c
# An item is on the list of those that take one more, and nobody looks whether
# one came before that.
/^static bool window_step(/,/^}/s/    gate_changed(&f->gate);//
