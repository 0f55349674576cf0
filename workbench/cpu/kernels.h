/* The functions of kernels.c as compiled.py calls them, and the types of their arguments.

   The compiler checks kernels.c against these declarations, and compiled.py reads them: every declaration is one
   statement that ends with a semicolon, and its last argument is the number of threads. A function returns 0, or 1 if
   memory could not be allocated, in which case nothing has been written. */

#include <stdint.h>

typedef int64_t size;

#ifdef HALF
typedef uint16_t number;
#else
typedef float number;
#endif

typedef struct {
    uint64_t key;
    uint32_t below; /* a number is dropped if its 31-bit draw is less than this */
    float up;       /* 1 / (1 - rate), the factor of the numbers that are not dropped */
} dropout;

int flush(size yes, int threads);
int split(const number *x, const float *bias, number *out, size parts, size rows, size heads, size length, size width,
          int threads);
int merge(const number *x, number *out, float *sums, size parts, size rows, size heads, size length, size width,
          int threads);
int softmax(number *scores, const float *bias, number *after_dropout, size rows, size each, size queries, size length,
            float scale, dropout drop, int threads);
int softmax_backward(number *grads, const number *probs, number *after_dropout, size rows, size length, float scale,
                     dropout drop, int threads);
int residual_norm(const number *branch, const float *bias, const number *residual, const float *norm_weight,
                  const float *norm_bias, number *added, number *out, float *means, float *rstds, size rows,
                  size width, float eps, dropout drop, int threads);
int residual_norm_backward(const number *grads, const number *extra_grads, const number *added, const float *means,
                           const float *rstds, const float *norm_weight, number *d_added, number *d_branch,
                           float *sums, size rows, size width, dropout drop, int threads);
int dropped(const number *x, number *out, size rows, size width, dropout drop, int threads);
int gelu(const number *x, const float *bias, number *out, size rows, size width, int threads);
int gelu_backward(const number *x, const float *bias, number *grads, float *sums, size rows, size width,
                  int threads);
int vocabulary(number *logits, const float *bias, const int64_t *targets, const float *write, const float *copy,
               const float *share, const float *draws, float temperature, float *grad_nll, float *log_likelihoods,
               uint8_t *correct, int64_t *samples, float *sample_nll, float *sums, size rows, size width, size vocab,
               int threads);
