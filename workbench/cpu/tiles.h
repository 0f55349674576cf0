/* The functions of tiles.c and layers.c as compiled.py calls them; see kernels.h. They exist on CPUs
   that multiply numbers in bfloat16 (AMX, or AVX-512 BF16). */

int linear_split(const number *x, const number *w, const float *bias, number *out, size rows, size k, size n,
                 size batch, size heads, size length, int threads);
int linear_gelu(const number *x, const number *w, const float *bias, number *inner, number *out, size rows, size k,
                size n, int threads);
int linear_gelu_backward(const number *x, const number *w, const number *inner, const float *bias, number *out,
                         float *sums, size rows, size k, size n, int threads);
int linear_norm(const number *x, const number *w, const float *bias, const number *residual, const float *norm_weight,
                const float *norm_bias, number *added, number *out, float *means, float *rstds, size rows, size k,
                size n, float eps, dropout drop, int threads);
int linear_norm_backward(const number *x, const number *w, const number *extra_grads, const number *added,
                         const float *means, const float *rstds, const float *norm_weight, number *d_added,
                         number *d_branch, float *sums, size rows, size k, size n, dropout drop, int threads);
int attention(const number *qkv, const float *bias, number *probs, number *context, size batch, size heads, size each,
              size queries, size length, size width, float scale, dropout drop, int threads);
int attention_backward(const number *d_context, const number *qkv, const number *probs, number *out, float *sums,
                       size batch, size heads, size length, size width, float scale, dropout drop, int threads);
int outer(const number *x, const number *y, float *out, size rows, size m, size n, int threads);
int linear_words(const number *x, const number *w, number *out, size rows, size k, size vocab, size width,
                 int threads);
int linear_words_backward(const number *grads, const number *x, const number *w, float *sums, float *d_w, size rows,
                          size k, size vocab, size width, size more, int threads);
int layers_forward(const float *const *parameters, const float *bias, const number *hidden, number *x, number *qkv,
                   number *probs, number *context, number *added1, number *middle, number *inner, number *activated,
                   number *added2, float *norms, number *out, size layers, size kept, size batch, size heads,
                   size length, size width, size wide, size each, size queries, float scale, float eps, dropout of_probs,
                   dropout of_attention, dropout of_output, int threads);
int layers_backward(const float *const *parameters, const number *hidden, const number *x, const number *qkv,
                    const number *probs, const number *context, const number *added1, const number *middle,
                    const number *inner, const number *activated, const number *added2, const float *norms,
                    const number *d_out, number *d_hidden, float *sums, float *d_weights, size layers, size batch,
                    size heads, size length, size width, size wide, float scale, dropout of_probs,
                    dropout of_attention, dropout of_output, int threads);
