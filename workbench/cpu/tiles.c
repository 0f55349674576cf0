/* Kernels in bfloat16 that compute a matrix product 32 rows at a time (products.c), each joined with the operations that
   follow it, so that these read the results from the cache. Included by kernels.c. All sizes are multiples of 32, except
   the number of rows of the batch and the size of the vocabulary. */

#include "tiles.h"

#include <string.h>

#include "products.c"

/* Transpose a matrix of 16 x 16 elements of 32 bits, a vector for each row. */
static inline void transpose16(__m512i *x) {
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0x88);
            y[i + j + 4] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        x[j] = _mm512_shuffle_i32x4(y[j], y[j + 8], 0x88);
        x[j + 8] = _mm512_shuffle_i32x4(y[j], y[j + 8], 0xdd);
    }
}

/* Interleave two rows of 16 numbers into 16 pairs. */
static inline __m512i paired(const number *x, size width) {
    const __m512i one = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    const __m512i two = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + width)));
    return _mm512_or_si512(one, _mm512_slli_epi32(two, 16));
}

/* Pack 16 columns of a right matrix, given as x (k, 16). */
static void pack(const number *x, size width, size k, number *to) {
    for (size i = 0; i < k; i += 2) _mm512_storeu_si512(to + i * 16, paired(x + i * width, width));
}

/* Pack 16 columns of a right matrix, given transposed as x (16, k). */
static void pack_transposed(const number *x, size width, size k, number *to) {
    for (size i = 0; i < k; i += 32) {
        __m512i block[16];
        for (int j = 0; j < 16; j++) block[j] = _mm512_loadu_si512(x + j * width + i);
        transpose16(block);
        for (int j = 0; j < 16; j++) _mm512_storeu_si512(to + i * 16 + j * 32, block[j]);
    }
}

/* Pack 16 rows of a left matrix, given transposed as x (k, 16). */
static void pack_left_transposed(const number *x, size width, size k, number *to) {
    for (size i = 0; i < k; i += 32) {
        __m512i block[16];
        for (int j = 0; j < 16; j++) block[j] = paired(x + (i + 2 * j) * width, width);
        transpose16(block);
        for (int j = 0; j < 16; j++) _mm512_storeu_si512(to + i * 16 + j * 32, block[j]);
    }
}

/* Prefetch a row that will be read soon into the cache of this core; the row may lie past the end of the matrix. */
static inline void prefetch_read(const number *x, size width) {
    for (size j = 0; j < width; j += 32) _mm_prefetch(x + j, _MM_HINT_T1);
}

/* Prefetch a row that will be written: a CPU reads a cache line before it writes to it, and stalls when its queue of
   writes is full. */
static inline void prefetch_write(const number *x, size width) {
    for (size j = 0; j < width; j += 32) __builtin_prefetch(x + j, 1);
}

/* Take so many bytes from memory that `rooms` has allocated for this thread. */
static inline void *take(char **memory, size bytes) {
    void *taken = *memory;
    *memory += whole_lines(bytes);
    return taken;
}

/* Each kernel has a function for a part of its rows, which one thread computes: `linear_gelu_rows` for rows `from` to
   `to` of `linear_gelu`. `layers.c` calls these functions one after the other. */

/* Run `body` for rows `from` to `to` of the product of x (rows, k) and a packed matrix (k, n). The product is computed
   for 32 rows at a time, in `value` (32, n); `own` is the row of `value` that `row` names. */
#define EACH_ROW(body)                                                                                                 \
    for (size top = from; top < to; top += 32) {                                                                       \
        product(rows_of(x + top * k, k), packed, k, n, value, n, 0);                                                   \
        for (size row = top; row < top + 32; row++) {                                                                  \
            float *own = value + (row - top) * n;                                                                      \
            const size at = row * n;                                                                                   \
            body                                                                                                       \
        }                                                                                                              \
    }

/* Pack w, which is (n, k) if `is_transposed`, else (k, n), and then run `call` for the rows of each thread. */
#define LINEAR(is_transposed, call)                                                                                    \
    void *memory[threads];                                                                                             \
    number *packed = room(2 * k * n);                                                                                  \
    if (!packed || rooms(memory, threads, 4 * 32 * n)) return free(packed), 1;                                         \
    _Pragma("omp parallel num_threads(threads)") {                                                                     \
        tiles_on();                                                                                                    \
        _Pragma("omp for schedule(static)") for (size j = 0; j < n; j += 16) {                                         \
            if (is_transposed) pack_transposed(w + j * k, k, k, packed + j * k);                                       \
            else pack(w + j, n, k, packed + j * k);                                                                    \
        }                                                                                                              \
        _Pragma("omp for schedule(static, 1) nowait") for (int thread = 0; thread < threads; thread++) {               \
            float *value = memory[thread];                                                                             \
            const size from = rows / 32 * thread / threads * 32, to = rows / 32 * (thread + 1) / threads * 32;         \
            call;                                                                                                      \
        }                                                                                                              \
        tiles_off();                                                                                                   \
    }                                                                                                                  \
    free_all(memory, threads), free(packed);                                                                           \
    return 0;

static void linear_split_rows(const number *x, const number *packed, const float *bias, number *out, size k, size n,
                              size batch, size heads, size length, size from, size to, float *value) {
    const size width = n / 3 / heads;
    EACH_ROW({
        (void)at;
        for (size unit = 0; unit < 3 * heads; unit++) {
            const size head = unit / heads * batch * heads + row / length * heads + unit % heads;
            number *there = out + (head * length + row % length) * width;
            for (size j = 0; j < width; j++) own[unit * width + j] += bias[unit * width + j];
            store(there, own + unit * width, width);
        }
    })
}

int linear_split(const number *x, const number *w, const float *bias, number *out, size rows, size k, size n,
                 size batch, size heads, size length, int threads) {
    LINEAR(1, linear_split_rows(x, packed, bias, out, k, n, batch, heads, length, from, to, value))
}

static void linear_gelu_rows(const number *x, const number *packed, const float *bias, number *inner, number *out,
                             size k, size n, size from, size to, float *value) {
    EACH_ROW({
        store(inner + at, own, n);
        gelu_row(own, bias, out + at, n);
    })
}

int linear_gelu(const number *x, const number *w, const float *bias, number *inner, number *out, size rows, size k,
                size n, int threads) {
    LINEAR(1, linear_gelu_rows(x, packed, bias, inner, out, k, n, from, to, value))
}

static void linear_gelu_backward_rows(const number *x, const number *packed, const number *inner, const float *bias,
                                      number *out, float *sums, size k, size n, size from, size to, float *value) {
    EACH_ROW({ gelu_backward_row(own, inner + at, bias, out + at, sums, n); })
}

int linear_gelu_backward(const number *x, const number *w, const number *inner, const float *bias, number *out,
                         float *sums, size rows, size k, size n, int threads) {
    LINEAR(0, linear_gelu_backward_rows(x, packed, inner, bias, out, sums + thread * n, k, n, from, to, value))
}

static void linear_norm_rows(const number *x, const number *packed, const float *bias, const number *residual,
                             const float *norm_weight, const float *norm_bias, number *added, number *out,
                             float *means, float *rstds, size k, size n, float eps, dropout drop, size from, size to,
                             float *value) {
    EACH_ROW({
        norm_row(own, bias, residual + at, norm_weight, norm_bias, added + at, out + at, means + row, rstds + row, n,
                 eps, drop, row);
    })
}

int linear_norm(const number *x, const number *w, const float *bias, const number *residual, const float *norm_weight,
                const float *norm_bias, number *added, number *out, float *means, float *rstds, size rows, size k,
                size n, float eps, dropout drop, int threads) {
    LINEAR(1, linear_norm_rows(x, packed, bias, residual, norm_weight, norm_bias, added, out, means, rstds, k, n, eps,
                               drop, from, to, value))
}

static void linear_norm_backward_rows(const number *x, const number *packed, const number *extra_grads,
                                      const number *added, const float *means, const float *rstds,
                                      const float *norm_weight, number *d_added, number *d_branch, float *sums, size k,
                                      size n, dropout drop, size from, size to, float *value) {
    EACH_ROW({
        for (size j = 0; j < n; j++) own[j] += get(extra_grads[at + j]);
        norm_backward_row(own, added + at, means[row], rstds[row], norm_weight, d_added + at, d_branch + at, sums, n,
                          drop, row);
    })
}

int linear_norm_backward(const number *x, const number *w, const number *extra_grads, const number *added,
                         const float *means, const float *rstds, const float *norm_weight, number *d_added,
                         number *d_branch, float *sums, size rows, size k, size n, dropout drop, int threads) {
    LINEAR(0, linear_norm_backward_rows(x, packed, extra_grads, added, means, rstds, norm_weight, d_added, d_branch,
                                        sums + thread * 3 * n, k, n, drop, from, to, value))
}

/* A unit of attention is one head of one row of the batch; qkv is (3, units, length, width), and bias
   (units / each, queries, length), where queries is 1 or length. */
static size attention_bytes(size length, size width) {
    return whole_lines(2 * length * width) * 2 + whole_lines(64 * length) + 128 * (length > width ? length : width);
}

static void attention_units(const number *qkv, const float *bias, number *probs, number *context, size units,
                            size heads, size each, size queries, size length, size width, float scale, dropout drop,
                            size from, size to, char *memory) {
    const size area = length * width, all = heads * width;
    number *keys = take(&memory, 2 * area), *values = take(&memory, 2 * area);
    number *after_dropout = take(&memory, 64 * length);
    float *value = (float *)memory;
    for (size unit = from; unit < to; unit++) {
        const number *q = qkv + unit * area, *k = q + units * area, *v = k + units * area;
        for (size j = 0; j < length; j += 16) pack_transposed(k + j * width, width, width, keys + j * width);
        for (size j = 0; j < width; j += 16) pack(v + j, width, length, values + j * length);
        for (size top = 0; top < length; top += 32) {
            number *block_probs = probs + (unit * length + top) * length;
            product(rows_of(q + top * width, width), keys, width, length, value, length, 0);
            for (size i = 0; i < 32; i++)
                prefetch_write(context + (unit / heads * length + top + i) * all + unit % heads * width, width);
            for (size i = 0; i < 32; i++) {
                const size first = (unit / each * queries + (top + i) % queries) * length;
                softmax_row(value + i * length, bias ? bias + first : NULL, length, scale, drop,
                            unit * length + top + i, block_probs + i * length, after_dropout + i * length);
            }
            product(rows_of(drop.below ? after_dropout : block_probs, length), values, length, width, value, width, 0);
            for (size i = 0; i < 32; i++) {
                number *there = context + (unit / heads * length + top + i) * all + unit % heads * width;
                store(there, value + i * width, width);
            }
        }
    }
}

/* Run `call` for the units of each thread, which has so many bytes of `memory`. */
#define UNITS(bytes, call)                                                                                             \
    void *memory[threads];                                                                                             \
    if (rooms(memory, threads, bytes)) return 1;                                                                       \
    _Pragma("omp parallel for num_threads(threads) schedule(static, 1)") for (int thread = 0; thread < threads;        \
                                                                              thread++) {                              \
        const size from = batch * heads * thread / threads, to = batch * heads * (thread + 1) / threads;               \
        tiles_on();                                                                                                    \
        call;                                                                                                          \
        tiles_off();                                                                                                   \
    }                                                                                                                  \
    free_all(memory, threads);                                                                                         \
    return 0;

int attention(const number *qkv, const float *bias, number *probs, number *context, size batch, size heads, size each,
              size queries, size length, size width, float scale, dropout drop, int threads) {
    UNITS(attention_bytes(length, width),
          attention_units(qkv, bias, probs, context, batch * heads, heads, each, queries, length, width, scale, drop,
                          from, to, memory[thread]))
}

static size attention_backward_bytes(size length, size width) {
    return whole_lines(2 * length * width) + 3 * whole_lines(2 * length * length) +
           128 * (length > width ? length : width);
}

static void attention_backward_units(const number *d_context, const number *qkv, const number *probs, number *out,
                                     float *sums, size units, size heads, size length, size width, float scale,
                                     dropout drop, size from, size to, char *memory) {
    const size area = length * width, all = heads * width, square = length * length;
    number *packed = take(&memory, 2 * area), *grads = take(&memory, 2 * square);
    number *after_dropout = take(&memory, 2 * square), *across = take(&memory, 2 * square);
    float *value = (float *)memory;
    for (size unit = from; unit < to; unit++) {
        const number *q = qkv + unit * area, *k = q + units * area, *v = k + units * area;
        const number *unit_probs = probs + unit * square, *used_probs = drop.below ? after_dropout : unit_probs;
        const size place = unit / heads * length, column = unit % heads * width;
        const number *d_unit = d_context + place * all + column;
        for (size j = 0; j < length; j += 16) pack_transposed(v + j * width, width, width, packed + j * width);
        for (size top = 0; top < length; top += 32) {
            product(rows_of(d_unit + top * all, all), packed, width, length, value, length, 0);
            for (size i = 0; i < 32; i++) {
                const size at = (top + i) * length;
                for (int part = 0; part < 3; part++)
                    prefetch_write(out + (place + top + i) * 3 * all + part * all + column, width);
                softmax_backward_row(value + i * length, unit_probs + at, after_dropout + at, grads + at, length,
                                     scale, drop, unit * length + top + i);
            }
        }
        for (int part = 0; part < 3; part++) { /* gradients with respect to query, key and value */
            const number *other = part == 0 ? k : part == 1 ? q : d_unit;
            const size wide = part == 2 ? all : width;
            for (size j = 0; j < width; j += 16) pack(other + j, wide, length, packed + j * length);
            if (part)
                for (size j = 0; j < length; j += 16)
                    pack_left_transposed((part == 1 ? grads : used_probs) + j, length, length, across + j * length);
            for (size top = 0; top < length; top += 32) {
                const size at = top * length;
                const left a = part ? tiles_of(across + at, length) : rows_of(grads + at, length);
                product(a, packed, length, width, value, width, 0);
                for (size i = 0; i < 32; i++) {
                    number *there = out + (place + top + i) * 3 * all + part * all + column;
                    store(there, value + i * width, width);
                }
                for (size j = 0; j < width; j += 16) {
                    lanes added = {0};
                    for (size i = 0; i < 32; i++) added += some(value + i * width + j);
                    *(lanes *)(sums + part * all + column + j) += added;
                }
            }
        }
    }
}

int attention_backward(const number *d_context, const number *qkv, const number *probs, number *out, float *sums,
                       size batch, size heads, size length, size width, float scale, dropout drop, int threads) {
    UNITS(attention_backward_bytes(length, width),
          attention_backward_units(d_context, qkv, probs, out, sums + thread * 3 * heads * width, batch * heads, heads,
                                   length, width, scale, drop, from, to, memory[thread]))
}

/* out (m, n) = x.T @ y, where x is (rows, m) and y is (rows, n). Each thread computes a rectangle of the result, and
   packs the numbers that it needs by itself, since numbers packed by another thread would lie in the cache of another
   core. As many rows are packed at once as fit into the cache of one core. */
typedef struct {
    size down, along, tall, broad, most; /* rectangles along m and n, the size of the largest, and rows at once */
} rectangles;

static rectangles rectangles_of(size m, size n, int threads) {
    size down = 1;
    for (size way = 2; way <= threads; way++)
        if (threads % way == 0 && m / way + n * way / threads <= m / down + n * down / threads) down = way;
    const size along = threads / down;
    const size tall = (m / 32 + down - 1) / down * 32, broad = (n / 32 + along - 1) / along * 32;
    const size fit = (1 << 18) / (tall + broad) / 32 * 32, most = fit < 128 ? 128 : fit;
    return (rectangles){down, along, tall, broad, most};
}

static size outer_bytes(size m, size n, int threads) {
    const rectangles cut = rectangles_of(m, n, threads);
    return whole_lines(2 * cut.most * cut.broad) + 2 * cut.most * cut.tall;
}

static void outer_rectangle(const number *x, const number *y, float *out, size rows, size m, size n, int thread,
                            int threads, char *memory) {
    const rectangles cut = rectangles_of(m, n, threads);
    const size row = thread / cut.along, column = thread % cut.along, most = cut.most;
    const size top = m / 32 * row / cut.down * 32, bottom = m / 32 * (row + 1) / cut.down * 32;
    const size from = n / 32 * column / cut.along * 32, to = n / 32 * (column + 1) / cut.along * 32;
    const size high = bottom - top, wide = to - from;
    if (!high || !wide) return;
    number *right = take(&memory, 2 * most * wide), *across = (number *)memory;
    for (size start = 0; start < rows; start += most) {
        const size k = rows - start < most ? rows - start : most;
        for (size here = 0; here < k; here += 32) { /* memory is read fastest along rows */
            for (size next = start + here + 32; next < start + here + 64; next++)
                prefetch_read(y + next * n + from, wide), prefetch_read(x + next * m + top, high);
            for (size j = 0; j < wide; j += 16)
                pack(y + (start + here) * n + from + j, n, 32, right + j * k + here * 16);
            for (size i = 0; i < high; i += 16)
                pack_left_transposed(x + (start + here) * m + top + i, m, 32, across + i * k + here * 16);
        }
        for (size i = 0; i < high; i += 32)
            product(tiles_of(across + i * k, k), right, k, wide, out + (top + i) * n + from, n, start > 0);
    }
}

int outer(const number *x, const number *y, float *out, size rows, size m, size n, int threads) {
    void *memory[threads];
    if (rooms(memory, threads, outer_bytes(m, n, threads))) return 1;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        tiles_on();
        outer_rectangle(x, y, out, rows, m, n, thread, threads, memory[thread]);
        tiles_off();
    }
    free_all(memory, threads);
    return 0;
}

/* Return `many` rows of a matrix (vocab, k), beginning at row `start`. If the matrix has fewer rows from there on, return
   a copy in which zeros follow its last row. */
static const number *some_rows(const number *w, size start, size many, size vocab, size k, number *copy) {
    if (start + many <= vocab) return w + start * k;
    memset(copy, 0, 2 * many * k);
    memcpy(copy, w + start * k, 2 * (vocab - start) * k);
    return copy;
}

enum { VOCAB_BLOCK = 512 }; /* tokens of the vocabulary that a thread computes at once */

/* out (rows, width) = x @ w.T, where x is (rows, k) and w is (vocab, k); columns from `vocab` on are 0. */
int linear_words(const number *x, const number *w, number *out, size rows, size k, size vocab, size width,
                 int threads) {
    void *memory[threads];
    if (rooms(memory, threads, 4 * VOCAB_BLOCK * k + 4 * 32 * VOCAB_BLOCK)) return 1;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        const size from = width / 32 * thread / threads * 32, to = width / 32 * (thread + 1) / threads * 32;
        char *room_left = memory[thread];
        number *packed = take(&room_left, 2 * VOCAB_BLOCK * k), *copy = take(&room_left, 2 * VOCAB_BLOCK * k);
        float *value = take(&room_left, 4 * 32 * VOCAB_BLOCK);
        tiles_on();
        for (size start = from; start < to; start += VOCAB_BLOCK) {
            const size many = to - start < VOCAB_BLOCK ? to - start : VOCAB_BLOCK;
            const number *own = some_rows(w, start, many, vocab, k, copy);
            for (size j = 0; j < many; j += 16) pack_transposed(own + j * k, k, k, packed + j * k);
            for (size top = 0; top < rows; top += 32) {
                product(rows_of(x + top * k, k), packed, k, many, value, many, 0);
                for (size i = 0; i < 32; i++) store(out + (top + i) * width + start, value + i * many, many);
            }
        }
        tiles_off();
    }
    free_all(memory, threads);
    return 0;
}

/* From grads (rows, width), the gradient with respect to the output of linear_words: add the gradient with respect to x
   to the sums (rows, k) of each thread, and write that with respect to w into d_w (vocab, k), or add it to the numbers
   in d_w if `more`. */
int linear_words_backward(const number *grads, const number *x, const number *w, float *sums, float *d_w, size rows,
                          size k, size vocab, size width, size more, int threads) {
    void *memory[threads];
    number *right = room(2 * rows * k);
    if (!right || rooms(memory, threads, 4 * VOCAB_BLOCK * k + 2 * 32 * rows + 4 * 32 * k)) return free(right), 1;
    for (size j = 0; j < k; j += 16) pack(x + j, k, rows, right + j * rows);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        const size from = width / 32 * thread / threads * 32, to = width / 32 * (thread + 1) / threads * 32;
        char *room_left = memory[thread];
        number *packed = take(&room_left, 2 * VOCAB_BLOCK * k), *copy = take(&room_left, 2 * VOCAB_BLOCK * k);
        number *across = take(&room_left, 2 * 32 * rows);
        float *last = take(&room_left, 4 * 32 * k);
        tiles_on();
        for (size start = from; start < to; start += VOCAB_BLOCK) {
            const size many = to - start < VOCAB_BLOCK ? to - start : VOCAB_BLOCK;
            const number *own = some_rows(w, start, many, vocab, k, copy);
            for (size j = 0; j < k; j += 16) pack(own + j, k, many, packed + j * many);
            for (size top = 0; top < rows; top += 32)
                product(rows_of(grads + top * width + start, width), packed, many, k,
                        sums + (thread * rows + top) * k, k, 1);
            for (size j = start; j < start + many; j += 32) {
                pack_left_transposed(grads + j, width, rows, across);
                pack_left_transposed(grads + j + 16, width, rows, across + 16 * rows);
                float *there = d_w + j * k;
                const size bytes = 4 * (vocab - j) * k;
                if (j + 32 > vocab) there = more ? memcpy(last, there, bytes) : last;
                product(tiles_of(across, rows), right, rows, k, there, k, more);
                if (j + 32 > vocab) memcpy(d_w + j * k, last, bytes);
            }
        }
        tiles_off();
    }
    free_all(memory, threads), free(right);
    return 0;
}
