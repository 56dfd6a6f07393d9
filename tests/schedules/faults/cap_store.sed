# worker/flow/gate.c
# Two items that enter at once are counted as one.
s/} while (!atomic_compare_exchange_weak(&g->running, &n, n + 1));/} while (0); atomic_store(\&g->running, n + 1);/
