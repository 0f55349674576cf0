/* Allocations that fail after a given number, and a count of those that have not been freed, for tests of the kernels. */

#include <stdlib.h>

int allocations_left = -1; /* any number of allocations if negative */
int allocations_held = 0;

static inline void *counted_alloc(size_t alignment, size_t bytes) {
    if (allocations_left == 0) return NULL;
    allocations_left -= allocations_left > 0;
    allocations_held++;
    return aligned_alloc(alignment, bytes);
}

static inline void counted_free(void *memory) {
    allocations_held -= memory != NULL;
    free(memory);
}

#define aligned_alloc counted_alloc
#define free counted_free
