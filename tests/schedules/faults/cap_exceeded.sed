# worker/flow/gate.c
# The gate lets in one more than the cap.
s/        if (n >= gate_room(g))/        if (n > gate_room(g))/
