# worker/flow/gate.c
# One more than the cap comes in.
s/        if (n >= gate_room(g))/        if (n > gate_room(g))/
