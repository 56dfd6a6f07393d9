# worker/flow/gate.c
# Two that count themselves in at once are counted as one.
s/} while (!atomic_compare_exchange_weak(&g->running, &n, n + 1));/} while (0); atomic_store(\&g->running, n + 1);/
