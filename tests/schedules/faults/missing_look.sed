# worker/flow/receive.c
# An item lists itself as one that takes a further message, and nobody checks
# for a message that came before that.
/^static bool window_step(/,/^}/s/    gate_changed(&f->gate);//
