/* The tile registers of AMX in plain C, so that tests can run tiles.c on any CPU with AVX-512:

       CC="cc -mamx-tile -mamx-bf16 -include tests/cpu/emulated_tiles.h"

   Tiles have 16 rows of 64 bytes, as SHAPE in tiles.c configures them. Each thread has registers of its own. */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local uint32_t TILES[8][16][16];

static inline void emulated_load(int to, const void *from, int64_t stride) {
    for (int row = 0; row < 16; row++) memcpy(TILES[to][row], (const char *)from + row * stride, 64);
}

static inline void emulated_store(int from, void *to, int64_t stride) {
    for (int row = 0; row < 16; row++) memcpy((char *)to + row * stride, TILES[from][row], 64);
}

static inline float emulated_half(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Add to sums (16, 16) the product of a (16, 32) and b, 16 pairs of rows by 16 columns, both in bfloat16. */
static inline void emulated_product(int sums, int a, int b) {
    for (int row = 0; row < 16; row++) {
        float sum[16];
        memcpy(sum, TILES[sums][row], 64);
        for (int pair = 0; pair < 16; pair++) {
            const uint32_t left = TILES[a][row][pair];
            for (int column = 0; column < 16; column++) {
                const uint32_t right = TILES[b][pair][column];
                sum[column] += emulated_half(left << 16) * emulated_half(right << 16);
                sum[column] += emulated_half(left & 0xffff0000u) * emulated_half(right & 0xffff0000u);
            }
        }
        memcpy(TILES[sums][row], sum, 64);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_loadconfig
#undef _tile_release
#define _tile_loadd(to, from, stride) emulated_load(to, from, stride)
#define _tile_stored(from, to, stride) emulated_store(from, to, stride)
#define _tile_zero(to) memset(TILES[to], 0, sizeof TILES[to])
#define _tile_dpbf16ps(sums, a, b) emulated_product(sums, a, b)
#define _tile_loadconfig(shape) ((void)(shape))
#define _tile_release() ((void)0)
#define syscall(...) 0L /* the request for tile registers, which is granted */
