/* The product of 32 rows of a left matrix and a packed right matrix in bfloat16, summed in fp32: on the tile registers
   (AMX) of a CPU or, where it has none, by the AVX-512 instruction that multiplies pairs. Included by tiles.c.

   Packed matrices consist of tiles. A tile of a left matrix holds 16 rows of 32 numbers; a tile of a right matrix holds
   16 pairs of rows by 16 columns. Both take 1 KiB, which is contiguous. */

#include <sys/syscall.h>
#include <unistd.h>

enum { NO_PRODUCTS, BY_TILES, BY_AVX512 }; /* what `products` returns, as compiled.py names it */

enum { TILE = 512 }; /* numbers in a tile */

/* A left matrix, stored as rows or as packed tiles. `row`, `step` and `lower` are the distances, in numbers, to the
   next row, to the next 32 columns and to the next 16 rows. */
typedef struct {
    const number *at;
    size row, step, lower;
} left;

static inline left rows_of(const number *x, size width) { return (left){x, width, 32, 16 * width}; }
static inline left tiles_of(const number *x, size k) { return (left){x, 32, TILE, k * 16}; }

#ifdef __AMX_BF16__

/* Tile registers can be used if Linux grants them, which it does only on request. */
int products(void) {
    const long denied = syscall(SYS_arch_prctl, 0x1023, 18); /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return denied ? NO_PRODUCTS : BY_TILES;
}

static const struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} SHAPE = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

static inline void tiles_on(void) { _tile_loadconfig(&SHAPE); }
static inline void tiles_off(void) { _tile_release(); }

/* A barrier for the compiler, since the intrinsics do not declare that they read and write memory. */
#define MEMORY __asm__ volatile("" ::: "memory")

/* out (32, n) = a (32, k) times b (k, n), where b is packed; if `more`, the product is added to the numbers in out. The
   function is inlined, because arguments that pass through memory would wait for all earlier writes. */
static inline __attribute__((always_inline)) void product(left a, const number *b, size k, size n, float *out,
                                                          size width, int more) {
    MEMORY;
    for (size j = 0; j < n; j += 32) {
        const number *one = b + j * k, *two = one + 16 * k;
        float *to = out + j;
        if (more) {
            _tile_loadd(0, to, width * 4);
            _tile_loadd(1, to + 16, width * 4);
            _tile_loadd(2, to + 16 * width, width * 4);
            _tile_loadd(3, to + 16 * width + 16, width * 4);
        } else {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        }
        for (size i = 0; i < k / 32; i++) {
            const number *upper = a.at + i * a.step;
            _tile_loadd(4, upper, a.row * 2);
            _tile_loadd(6, one + i * TILE, 64);
            _tile_loadd(7, two + i * TILE, 64);
            _tile_loadd(5, upper + a.lower, a.row * 2);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, to, width * 4);
        _tile_stored(1, to + 16, width * 4);
        _tile_stored(2, to + 16 * width, width * 4);
        _tile_stored(3, to + 16 * width + 16, width * 4);
    }
    MEMORY;
}

#else

int products(void) { return BY_AVX512; }
static inline void tiles_on(void) {}
static inline void tiles_off(void) {}

enum { STRIP = 8 }; /* rows whose sums stay in registers, two for the 32 columns of each row */

static inline __m512bh pairs_of(const number *x) { return (__m512bh)_mm512_loadu_si512(x); }

/* The same product, by the instruction that multiplies pairs of numbers and adds the results. */
static inline __attribute__((always_inline)) void product(left a, const number *b, size k, size n, float *out,
                                                          size width, int more) {
    for (size j = 0; j < n; j += 32)
        for (size top = 0; top < 32; top += STRIP) {
            const number *rows = a.at + top / 16 * a.lower + top % 16 * a.row, *one = b + j * k, *two = one + 16 * k;
            float *to = out + top * width + j;
            __m512 sums[STRIP][2];
#pragma GCC unroll 8
            for (int i = 0; i < STRIP; i++)
                for (int half = 0; half < 2; half++)
                    sums[i][half] = more ? _mm512_loadu_ps(to + i * width + 16 * half) : _mm512_setzero_ps();
            for (size step = 0; step < k / 32; step++, rows += a.step)
                for (size pair = 0; pair < 32; pair += 2, one += 32, two += 32) {
                    const __m512bh x = pairs_of(one), y = pairs_of(two);
#pragma GCC unroll 8
                    for (int i = 0; i < STRIP; i++) {
                        int32_t both;
                        memcpy(&both, rows + i * a.row + pair, 4);
                        const __m512bh z = (__m512bh)_mm512_set1_epi32(both);
                        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], z, x);
                        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], z, y);
                    }
                }
#pragma GCC unroll 8
            for (int i = 0; i < STRIP; i++)
                for (int half = 0; half < 2; half++) _mm512_storeu_ps(to + i * width + 16 * half, sums[i][half]);
        }
}

#endif
