/* The operations between the matrix products of a training step on a CPU, each in one pass over memory.

   This file is compiled twice: for fp32 and, with -DHALF, for bfloat16. Everything between load and store is in fp32.
   The rows are divided among the threads, and each thread sums columns into its own part of `sums`; the number of
   threads therefore changes nothing but rounding. Dropout hashes (key, row, column) to 31 bits, so that the backward
   pass computes the same mask again. The loops are simple, so that the compiler can vectorise them. The functions of
   the same names in portable.py state what each kernel computes and the shapes of its tensors. */

#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

static inline uint32_t bits_of(float x) {
    union { float x; uint32_t bits; } both = {.x = x};
    return both.bits;
}

static inline float from_bits(uint32_t bits) {
    union { uint32_t bits; float x; } both = {.bits = bits};
    return both.x;
}

#ifdef HALF
static inline float get(number x) { return from_bits((uint32_t)x << 16); }
static inline number put(float x) { /* rounds to nearest, ties to even; a NaN that a CPU computes stays a NaN */
    const uint32_t bits = bits_of(x);
    return (number)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#else
static inline float get(number x) { return x; }
static inline number put(float x) { return x; }
#endif

/* Sums are written out in 32 lanes, since a compiler either keeps the order of a loop's additions, or adds the lanes one
   after the other. */
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));

static inline lanes some(const float *x) { return *(const lanes *)x; }

static inline float added_up(lanes x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)x);
#else
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
#endif
}

static inline float total_of(const float *x, size length) {
    lanes even = {0}, odd = {0};
    size j = 0;
    for (; j + 32 <= length; j += 32) even += some(x + j), odd += some(x + j + 16);
    float total = added_up(even + odd);
    for (; j < length; j++) total += x[j];
    return total;
}

static inline float dot(const float *x, const float *y, size length) {
    lanes even = {0}, odd = {0};
    size j = 0;
    for (; j + 32 <= length; j += 32) even += some(x + j) * some(y + j), odd += some(x + j + 16) * some(y + j + 16);
    float total = added_up(even + odd);
    for (; j < length; j++) total += x[j] * y[j];
    return total;
}

/* e^x with a relative error of 3e-7 for x from -87 to 88, and e^-87 for x below -87. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; /* its last bits hold the integer nearest to x log2(e) */
    const float t = x * 1.44269504f - (shifted - 12582912.0f);
    float y = 1.533757677e-4f;
    y = y * t + 1.339986037e-3f;
    y = y * t + 9.618519535e-3f;
    y = y * t + 5.550328998e-2f;
    y = y * t + 2.402264661e-1f;
    y = y * t + 6.931472056e-1f;
    y = y * t + 1.0f;
    return from_bits(bits_of(y) + (bits_of(shifted) << 23));
}

/* Coefficients of two functions: the cumulative distribution function (CDF) of the standard normal, and the derivative
   of GELU, which is the CDF plus x times the normal density. Each is approximated by 1/2 plus x times a polynomial in
   s = 2 (x / END)^2 - 1 (a Chebyshev fit), and is constant beyond END. For bfloat16 the error is at most 6e-6 in GELU
   and 4e-5 in its derivative, where bfloat16 itself has a relative error of 4e-3; for fp32 both are about 1e-6. */
#ifdef HALF
enum { DEGREE = 10 };
#define END 4.75f
static const float NORMAL_CDF[DEGREE + 1] = {
    1.5205815e-03f, -3.9986978e-03f, 4.5764894e-03f, -6.7579369e-03f, 1.3668261e-02f, -2.1889861e-02f,
    3.0345671e-02f, -4.0518039e-02f, 5.3238705e-02f, -7.3670242e-02f, 1.4874828e-01f};
static const float GELU_GRAD[DEGREE + 1] = {
    2.0989839e-02f, -4.9562326e-02f, 3.8441895e-02f, -3.4903161e-02f, 7.4934360e-02f, -9.8659210e-02f,
    9.1373772e-02f, -8.1378945e-02f, 7.5593747e-02f, -8.1726146e-02f, 1.5016825e-01f};
#else
enum { DEGREE = 16 };
#define END 5.5f
static const float NORMAL_CDF[DEGREE + 1] = {
    9.4859392e-05f, -2.7406602e-04f, 2.7099393e-04f, -3.9739067e-04f, 1.2753593e-03f, -2.6021022e-03f,
    4.1778967e-03f, -6.6905888e-03f, 1.0423738e-02f, -1.5047558e-02f, 2.0317793e-02f, -2.6039009e-02f,
    3.2075719e-02f, -3.8793556e-02f, 4.7737386e-02f, -6.4172320e-02f, 1.2855193e-01f};
static const float GELU_GRAD[DEGREE + 1] = {
    2.1264218e-03f, -5.7346120e-03f, 4.0283281e-03f, -3.5391088e-03f, 1.6577773e-02f, -3.1841829e-02f,
    3.9577732e-02f, -5.0253841e-02f, 6.5072054e-02f, -7.3981117e-02f, 7.4279048e-02f, -6.8654584e-02f,
    6.0310768e-02f, -5.3742695e-02f, 5.3665394e-02f, -6.5739739e-02f, 1.2875921e-01f};
#endif

static inline float half_and_odd(const float *weights, float x) {
    x = x < -END ? -END : x > END ? END : x;
    const float s = x * x * (2 / (END * END)) - 1;
    float y = weights[0];
#pragma GCC unroll 16
    for (int i = 1; i <= DEGREE; i++) y = y * s + weights[i];
    return 0.5f + x * y;
}

static inline uint64_t mix(uint64_t x) { /* SplitMix64 (Steele et al. 2014) */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

typedef struct { /* dropout of one row, see `dropout` */
    uint32_t low, high, below;
    float up;
} row_dropout;

static inline row_dropout row_dropout_of(dropout drop, size row) {
    const uint64_t key = mix(drop.key + (uint64_t)row * 0x9e3779b97f4a7c15u);
    return (row_dropout){(uint32_t)key, (uint32_t)(key >> 32), drop.below, drop.up};
}

/* The dropout factor of the number in a column: 0 or `up`. */
static inline float factor(row_dropout at, size column) {
    uint32_t x = ((uint32_t)column * 0x9e3779b9u) ^ at.low;
    x = (x ^ (x >> 16)) * 0x7feb352du + at.high;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    /* The sign of this difference is used instead of a branch. */
    const int32_t under = (int32_t)((x ^ (x >> 16)) >> 1) - (int32_t)at.below;
    return from_bits(bits_of(at.up) & ~(uint32_t)(under >> 31));
}

/* Functions on one row in fp32: the part of a kernel between load and store. */

static inline void load(float *restrict value, const number *x, size width) {
    for (size j = 0; j < width; j++) value[j] = get(x[j]);
}

static inline void store(number *restrict x, const float *value, size width) {
    size j = 0;
#if defined(HALF) && defined(__AVX512BF16__)
    for (; j + 32 <= width; j += 32) {
        const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(value + j + 16), _mm512_loadu_ps(value + j));
        _mm512_storeu_si512(x + j, (__m512i)both);
    }
#endif
    for (; j < width; j++) x[j] = put(value[j]);
}

/* On entry `value` holds the attention scores. */
static inline void softmax_row(float *restrict value, const float *bias, size length, float scale, dropout drop,
                               size row, number *probs, number *after_dropout) {
    float top = -INFINITY;
    if (bias)
        for (size j = 0; j < length; j++) value[j] = value[j] * scale + bias[j];
    else
        for (size j = 0; j < length; j++) value[j] *= scale;
#pragma omp simd reduction(max : top)
    for (size j = 0; j < length; j++) top = value[j] > top ? value[j] : top;
    for (size j = 0; j < length; j++) value[j] = exponential(value[j] - top);
    const float over = 1 / total_of(value, length);
    for (size j = 0; j < length; j++) value[j] *= over;
    store(probs, value, length);
    if (!drop.below) return;
    const row_dropout at = row_dropout_of(drop, row);
    for (size j = 0; j < length; j++) value[j] *= factor(at, j);
    store(after_dropout, value, length);
}

/* On entry `value` holds the gradient with respect to the probabilities after dropout. */
static inline void softmax_backward_row(float *restrict value, const number *probs, number *after_dropout,
                                        number *grads, size length, float scale, dropout drop, size row) {
    float prob[length], masked[length];
    load(prob, probs, length);
    if (drop.below) {
        const row_dropout at = row_dropout_of(drop, row);
        for (size j = 0; j < length; j++) {
            const float up = factor(at, j);
            value[j] *= up;
            masked[j] = prob[j] * up;
        }
        store(after_dropout, masked, length);
    }
    const float mean = dot(value, prob, length);
    for (size j = 0; j < length; j++) value[j] = prob[j] * (value[j] - mean) * scale;
    store(grads, value, length);
}

/* On entry `value` holds the branch without its bias. */
static inline void norm_row(float *restrict value, const float *bias, const number *residual, const float *norm_weight,
                            const float *norm_bias, number *added, number *out, float *at_mean, float *at_rstd,
                            size width, float eps, dropout drop, size row) {
    if (drop.below) {
        const row_dropout at = row_dropout_of(drop, row);
        for (size j = 0; j < width; j++) value[j] = (value[j] + bias[j]) * factor(at, j) + get(residual[j]);
    } else
        for (size j = 0; j < width; j++) value[j] += bias[j] + get(residual[j]);
    store(added, value, width);
    load(value, added, width); /* as rounded, because the backward pass reads the rounded sum */
    const float mean = total_of(value, width) / (float)width;
    for (size j = 0; j < width; j++) value[j] -= mean;
    const float rstd = 1 / sqrtf(dot(value, value, width) / (float)width + eps);
    for (size j = 0; j < width; j++) value[j] = value[j] * rstd * norm_weight[j] + norm_bias[j];
    store(out, value, width);
    *at_mean = mean;
    *at_rstd = rstd;
}

/* On entry `grad` holds the gradient with respect to the output. */
static inline void norm_backward_row(float *restrict grad, const number *added, float mean, float rstd,
                                     const float *norm_weight, number *d_added, number *d_branch, float *restrict sums,
                                     size width, dropout drop, size row) {
    float *d_norm_weight = sums, *d_norm_bias = sums + width, *d_bias = sums + 2 * width;
    float normed[width];
    for (size j = 0; j < width; j++) {
        normed[j] = (get(added[j]) - mean) * rstd;
        d_norm_weight[j] += grad[j] * normed[j];
        d_norm_bias[j] += grad[j];
        grad[j] *= norm_weight[j];
    }
    const float first = total_of(grad, width) / (float)width, second = dot(grad, normed, width) / (float)width;
    for (size j = 0; j < width; j++) grad[j] = rstd * (grad[j] - first - normed[j] * second);
    store(d_added, grad, width);
    if (drop.below) {
        const row_dropout at = row_dropout_of(drop, row);
        for (size j = 0; j < width; j++) grad[j] *= factor(at, j);
        store(d_branch, grad, width);
    }
    for (size j = 0; j < width; j++) d_bias[j] += grad[j];
}

static inline void gelu_row(float *restrict value, const float *bias, number *out, size width) {
    for (size j = 0; j < width; j++) {
        const float x = value[j] + bias[j];
        value[j] = x * half_and_odd(NORMAL_CDF, x);
    }
    store(out, value, width);
}

static inline void gelu_backward_row(float *restrict grad, const number *x, const float *bias, number *out,
                                     float *restrict sums, size width) {
    for (size j = 0; j < width; j++) {
        grad[j] *= half_and_odd(GELU_GRAD, get(x[j]) + bias[j]);
        sums[j] += grad[j];
    }
    store(out, grad, width);
}

/* Kernels. */

/* Switch on or off, in every thread, the replacement of denormal numbers (below 1e-38) by 0. A CPU can take a hundred
   times longer to compute with denormal numbers. */
int flush(size yes, int threads) {
#ifdef __SSE__
#pragma omp parallel num_threads(threads)
    _mm_setcsr(yes ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040u);
#endif
    return 0;
}

int split(const number *x, const float *bias, number *out, size parts, size rows, size heads, size length, size width,
          int threads) {
    const size all = parts * heads * width;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size place = 0; place < rows * length; place++)
        for (size unit = 0; unit < parts * heads; unit++) {
            const size part = unit / heads, row = place / length * heads + unit % heads;
            const number *from = x + place * all + unit * width;
            number *to = out + ((part * rows * heads + row) * length + place % length) * width;
            if (bias)
                for (size j = 0; j < width; j++) to[j] = put(get(from[j]) + bias[unit * width + j]);
            else
                for (size j = 0; j < width; j++) to[j] = from[j];
        }
    return 0;
}

int merge(const number *x, number *out, float *sums, size parts, size rows, size heads, size length, size width,
          int threads) {
    const size all = parts * heads * width, places = rows * length;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++)
        for (size place = places * thread / threads; place < places * (thread + 1) / threads; place++)
            for (size unit = 0; unit < parts * heads; unit++) {
                const size part = unit / heads, row = place / length * heads + unit % heads;
                const number *from = x + ((part * rows * heads + row) * length + place % length) * width;
                number *to = out + place * all + unit * width;
                for (size j = 0; j < width; j++) to[j] = from[j];
                if (!sums) continue;
                float *sum = sums + thread * all + unit * width;
                for (size j = 0; j < width; j++) sum[j] += get(from[j]);
            }
    return 0;
}

/* bias is (rows / each, queries, length); queries is 1 if it is the same for every query, else the queries of a head. */
int softmax(number *scores, const float *bias, number *after_dropout, size rows, size each, size queries, size length,
            float scale, dropout drop, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        float value[length];
        number *score = scores + row * length;
        load(value, score, length);
        const float *own = bias ? bias + (row / each * queries + row % queries) * length : NULL;
        softmax_row(value, own, length, scale, drop, row, score, after_dropout + row * length);
    }
    return 0;
}

int softmax_backward(number *grads, const number *probs, number *after_dropout, size rows, size length, float scale,
                     dropout drop, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        float value[length];
        number *grad = grads + row * length;
        load(value, grad, length);
        softmax_backward_row(value, probs + row * length, after_dropout + row * length, grad, length, scale, drop, row);
    }
    return 0;
}

int residual_norm(const number *branch, const float *bias, const number *residual, const float *norm_weight,
                  const float *norm_bias, number *added, number *out, float *means, float *rstds, size rows,
                  size width, float eps, dropout drop, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        float value[width];
        const size at = row * width;
        load(value, branch + at, width);
        norm_row(value, bias, residual + at, norm_weight, norm_bias, added + at, out + at, means + row, rstds + row,
                 width, eps, drop, row);
    }
    return 0;
}

static void residual_norm_backward_rows(const number *grads, const number *extra_grads, const number *added,
                                        const float *means, const float *rstds, const float *norm_weight,
                                        number *d_added, number *d_branch, float *sums, size width, dropout drop,
                                        size from, size to) {
    for (size row = from; row < to; row++) {
        float grad[width];
        const size at = row * width;
        load(grad, grads + at, width);
        if (extra_grads)
            for (size j = 0; j < width; j++) grad[j] += get(extra_grads[at + j]);
        norm_backward_row(grad, added + at, means[row], rstds[row], norm_weight, d_added + at, d_branch + at, sums,
                          width, drop, row);
    }
}

int residual_norm_backward(const number *grads, const number *extra_grads, const number *added, const float *means,
                           const float *rstds, const float *norm_weight, number *d_added, number *d_branch,
                           float *sums, size rows, size width, dropout drop, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++)
        residual_norm_backward_rows(grads, extra_grads, added, means, rstds, norm_weight, d_added, d_branch,
                                    sums + thread * 3 * width, width, drop, rows * thread / threads,
                                    rows * (thread + 1) / threads);
    return 0;
}

int dropped(const number *x, number *out, size rows, size width, dropout drop, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        const row_dropout at = row_dropout_of(drop, row);
        for (size j = 0; j < width; j++) out[row * width + j] = put(get(x[row * width + j]) * factor(at, j));
    }
    return 0;
}

int gelu(const number *x, const float *bias, number *out, size rows, size width, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        float value[width];
        load(value, x + row * width, width);
        gelu_row(value, bias, out + row * width, width);
    }
    return 0;
}

int gelu_backward(const number *x, const float *bias, number *grads, float *sums, size rows, size width,
                  int threads) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++)
        for (size row = rows * thread / threads; row < rows * (thread + 1) / threads; row++) {
            float grad[width];
            number *own = grads + row * width;
            load(grad, own, width);
            gelu_backward_row(grad, x + row * width, bias, own, sums + thread * width, width);
        }
    return 0;
}

/* Memory that begins at a cache line, and the same for each of so many threads. The latter returns 1 if there is not so
   much, and then nothing is allocated. */
static inline size whole_lines(size bytes) { return (bytes + 63) / 64 * 64; }
static inline void *room(size bytes) { return aligned_alloc(64, whole_lines(bytes)); }

static inline void free_all(void **memory, int threads) {
    for (int thread = 0; thread < threads; thread++) free(memory[thread]);
}

static inline int rooms(void **memory, int threads, size bytes) {
    for (int thread = 0; thread < threads; thread++)
        if (!(memory[thread] = room(bytes))) return free_all(memory, thread), 1;
    return 0;
}

/* Probabilities are summed in blocks of tokens, and a sample is then searched within the block that contains it. A row
   of logits may have more columns than the vocabulary has tokens. */
int vocabulary(number *logits, const float *bias, const int64_t *targets, const float *write, const float *copy,
               const float *share, const float *draws, float temperature, float *grad_nll, float *log_likelihoods,
               uint8_t *correct, int64_t *samples, float *sample_nll, float *sums, size rows, size width, size vocab,
               int threads) {
    const size block = 64, blocks = (vocab + block - 1) / block;
    void *memory[threads];
    if (rooms(memory, threads, sizeof(float) * (vocab + blocks))) return 1;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; thread++) {
        float *restrict value = memory[thread];
        float *part = value + vocab, *restrict sum = sums ? sums + thread * vocab : NULL;
        for (size row = rows * thread / threads; row < rows * (thread + 1) / threads; row++) {
            number *restrict logit = logits + row * width;
            const size target = targets[row];
            float top = -INFINITY, total = 0, all = 0;
#pragma omp simd reduction(max : top)
            for (size j = 0; j < vocab; j++) {
                value[j] = get(logit[j]) + bias[j];
                top = value[j] > top ? value[j] : top;
            }
            const float target_logit = value[target] - top;
            for (size b = 0; draws && temperature != 1 && b < blocks; b++) {
                const size end = (b + 1) * block < vocab ? (b + 1) * block : vocab;
                float within = 0;
#pragma omp simd reduction(+ : within)
                for (size j = b * block; j < end; j++) within += exponential((value[j] - top) / temperature);
                all += part[b] = within;
            }
            for (size b = 0; b < blocks; b++) {
                const size end = (b + 1) * block < vocab ? (b + 1) * block : vocab;
                for (size j = b * block; j < end; j++) value[j] = exponential(value[j] - top);
                const float within = total_of(value + b * block, end - b * block);
                total += within;
                if (draws && temperature == 1) all += part[b] = within;
            }
            if (draws) {
                float rest = draws[row] * all, prob = 0, largest = 0;
                size b = 0, drawn = -1;
                while (b < blocks - 1 && rest >= part[b]) rest -= part[b++];
                size best = b * block;
                for (size j = b * block; drawn < 0 && j < (b + 1) * block && j < vocab; j++) {
                    prob = temperature == 1 ? value[j] : powf(value[j], 1 / temperature);
                    if (rest < prob) drawn = j;
                    if (prob > largest) largest = prob, best = j;
                    rest -= prob;
                }
                if (drawn < 0) drawn = best, prob = largest; /* rounding led past the last token of the block */
                samples[row] = drawn;
                sample_nll[row] = logf(all) - logf(prob);
            }
            const float written = write[row] + target_logit - logf(total);
            float log_likelihood = written;
            if (copy && copy[row] > -INFINITY) {
                const float high = written > copy[row] ? written : copy[row];
                const float low = written > copy[row] ? copy[row] : written;
                log_likelihood = high + log1pf(expf(low - high));
            }
            correct[row] = target_logit == 0;
            log_likelihoods[row] = log_likelihood;
            /* The gradient of the mean loss with respect to -log q(target). */
            grad_nll[row] = share[row] * expf(written - log_likelihood);
            if (!sum) continue;
            const float scale = grad_nll[row] / total;
            value[target] -= total;
            for (size j = 0; j < vocab; j++) {
                const float grad = value[j] * scale;
                logit[j] = put(grad);
                sum[j] += grad;
            }
        }
    }
    free_all(memory, threads);
    return 0;
}

#if defined(HALF) && (defined(__AMX_BF16__) || defined(__AVX512BF16__))
#include "tiles.c"

#include "layers.c"
#else
int products(void) { return 0; }
#endif
