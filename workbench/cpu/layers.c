/* All layers of an encoder of BERT's design in bfloat16, forward and backward, by the kernels of tiles.c. A thread
   computes its own sequences from the first layer to the last, so that threads wait for each other only after weights
   have been packed and, in the backward pass, once a layer before the gradients of its weights. Included by kernels.c.

   `width` is the width of hidden states, and `wide` that of the feed-forward part between its two products. All sizes
   are multiples of 32, except the numbers of layers, sequences (`batch`) and heads. */

int omp_get_thread_num(void);
int omp_get_num_threads(void);

/* The parameters of a layer, in the order of `layers_of` in designs.py. */
enum { WQ, BQ, WK, BK, WV, BV, WO, BO, G1, C1, W1, B1, W2, B2, G2, C2, PARAMETERS };

enum { MATRICES = 6 };
static const int WEIGHTS[MATRICES] = {WQ, WK, WV, WO, W1, W2};

static inline size larger(size x, size y) { return x > y ? x : y; }
static inline dropout in_layer(dropout drop, size layer) { return drop.key += 3 * layer, drop; }
static inline size outputs(int weight, size width, size wide) { return weight == W1 ? wide : width; }
static inline size inputs(int weight, size width, size wide) { return weight == W2 ? wide : width; }

/* Pack the weights of a layer, each transposed, one after the other. The threads divide the work and do not wait. */
static void pack_layer_transposed(const float *const *parameters, number *packed, size width, size wide, number *copy) {
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        const float *w = parameters[WEIGHTS[matrix]];
        const size n = outputs(WEIGHTS[matrix], width, wide), k = inputs(WEIGHTS[matrix], width, wide);
#pragma omp for schedule(static) nowait
        for (size j = 0; j < n; j += 16) {
            store(copy, w + j * k, 16 * k);
            pack_transposed(copy, k, k, packed + j * k);
        }
        packed += n * k;
    }
}

/* The same without transposing; query, key and value together are one matrix of three times as many rows. */
static void pack_layer(const float *const *parameters, number *packed, size width, size wide, number *copy) {
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        const float *w = parameters[WEIGHTS[matrix]];
        const size k = outputs(WEIGHTS[matrix], width, wide), n = inputs(WEIGHTS[matrix], width, wide);
        const size tall = matrix < 3 ? 3 * k : k, first = matrix < 3 ? matrix * k : 0;
#pragma omp for schedule(static) nowait
        for (size j = 0; j < n; j += 16) {
            for (size i = 0; i < k; i++) store(copy + i * 16, w + i * n + j, 16);
            pack(copy, 16, k, packed + j * tall + first * 16);
        }
        if (matrix > 1) packed += n * tall;
    }
}

/* hidden and out are (rows, width), where rows = batch * length; `each` and `queries` describe the bias as in
   `attention_units`. If `kept`, every layer writes into its own part of the other tensors, for the backward pass: x
   (layers - 1, rows, width) holds the input of each layer but the first, and norms (layers, 4, rows) mean and reciprocal
   standard deviation of two norms. Otherwise all write into one part. */
int layers_forward(const float *const *parameters, const float *bias, const number *hidden, number *x, number *qkv,
                   number *probs, number *context, number *added1, number *middle, number *inner, number *activated,
                   number *added2, float *norms, number *out, size layers, size kept, size batch, size heads,
                   size length, size width, size wide, size each, size queries, float scale, float eps, dropout of_probs,
                   dropout of_attention, dropout of_output, int threads) {
    const size rows = batch * length, area = rows * width, square = batch * heads * length * length;
    const size weights = width * (4 * width + 2 * wide);
    const size bytes = larger(128 * larger(3 * width, wide), attention_bytes(length, width / heads));
    void *memory[threads];
    number *packed = room(2 * layers * weights);
    if (!packed || rooms(memory, threads, whole_lines(12 * width) + bytes)) return free(packed), 1;
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), team = omp_get_num_threads();
        char *own = memory[thread];
        float *split_bias = take(&own, 12 * width), *value = (float *)own;
        tiles_on();
        for (size layer = 0; layer < layers; layer++)
            pack_layer_transposed(parameters + layer * PARAMETERS, packed + layer * weights, width, wide, (number *)own);
#pragma omp barrier
        const size first = batch * thread / team, last = batch * (thread + 1) / team; /* sequences of this thread */
        const size from = first * length, to = last * length;
        for (size layer = 0; layer < layers; layer++) {
            const float *const *p = parameters + layer * PARAMETERS;
            const number *wqkv = packed + layer * weights, *wo = wqkv + 3 * width * width, *w1 = wo + width * width;
            const number *w2 = w1 + width * wide, *in = layer ? x + (kept ? layer - 1 : 0) * area : hidden;
            number *next = layer + 1 < layers ? x + (kept ? layer : 0) * area : out;
            const size at = kept ? layer : 0;
            float *norm = norms + at * 4 * rows;
            for (int part = 0; part < 3; part++) memcpy(split_bias + part * width, p[BQ + 2 * part], 4 * width);
            linear_split_rows(in, wqkv, split_bias, qkv + at * 3 * area, width, 3 * width, batch, heads, length,
                              from, to, value);
            attention_units(qkv + at * 3 * area, bias, probs + at * square, context + at * area, batch * heads,
                            heads, each, queries, length, width / heads, scale, in_layer(of_probs, layer), first * heads,
                            last * heads, own);
            linear_norm_rows(context + at * area, wo, p[BO], in, p[G1], p[C1], added1 + at * area,
                             middle + at * area, norm, norm + rows, width, width, eps,
                             in_layer(of_attention, layer), from, to, value);
            linear_gelu_rows(middle + at * area, w1, p[B1], inner + at * rows * wide, activated + at * rows * wide,
                             width, wide, from, to, value);
            linear_norm_rows(activated + at * rows * wide, w2, p[B2], middle + at * area, p[G2], p[C2],
                             added2 + at * area, next, norm + 2 * rows, norm + 3 * rows, wide, width, eps,
                             in_layer(of_output, layer), from, to, value);
        }
        tiles_off();
    }
    free_all(memory, threads), free(packed);
    return 0;
}

/* out (rows, n) = x (rows, k) times a packed matrix (k, n), plus the numbers of `more` (rows, n) unless it is NULL. */
static void linear_rows(const number *x, const number *packed, const number *more, number *out, size k, size n,
                        size from, size to, float *value) {
    EACH_ROW({
        for (size j = 0; more && j < n; j++) own[j] += get(more[at + j]);
        store(out + at, own, n);
    })
}

/* The gradients, for all rows, from which those of the weights of a layer are computed: with respect to its two branches
   before the norms, to the first feed-forward product, and to query, key and value. While one thread still reads those
   of a layer, another one may already write those of the layer below, so there are two of these, used in turn. */
typedef struct {
    number *output, *inner, *attention, *qkv;
} branches;

/* d_out and d_hidden are the gradients with respect to out and hidden, (rows, width). d_weights (layers, 4 width^2 +
   2 width wide) holds the gradients of each layer's weights, one after the other. Each thread adds to its own part of
   sums (threads, layers, 9 width + wide): those of the attention's norm weight, its bias and the bias before it, of the
   first bias of the feed-forward part, of the biases of query, key and value, and of the last norm like the first. */
int layers_backward(const float *const *parameters, const number *hidden, const number *x, const number *qkv,
                    const number *probs, const number *context, const number *added1, const number *middle,
                    const number *inner, const number *activated, const number *added2, const float *norms,
                    const number *d_out, number *d_hidden, float *sums, float *d_weights, size layers, size batch,
                    size heads, size length, size width, size wide, float scale, dropout of_probs,
                    dropout of_attention, dropout of_output, int threads) {
    const size rows = batch * length, area = rows * width, square = batch * heads * length * length;
    const size weights = width * (4 * width + 2 * wide);
    const size branch_size = rows * (5 * width + wide), columns = 9 * width + wide;
    const size outer_most = larger(larger(outer_bytes(wide, width, threads), outer_bytes(width, wide, threads)),
                                   larger(outer_bytes(width, width, threads), outer_bytes(3 * width, width, threads)));
    const size bytes = larger(outer_most, larger(attention_backward_bytes(length, width / heads),
                                                 128 * larger(width, wide)));
    void *memory[threads];
    number *packed = room(2 * layers * weights), *grads = room(2 * (2 * branch_size + 2 * area));
    if (!packed || !grads || rooms(memory, threads, bytes))
        return free(packed), free(grads), 1;
    branches both[2];
    for (int i = 0; i < 2; i++) {
        number *begin = grads + i * branch_size;
        both[i] = (branches){begin, begin + area, begin + area + rows * wide, begin + 2 * area + rows * wide};
    }
    number *d_context = grads + 2 * branch_size, *residual = d_context + area;
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), team = omp_get_num_threads();
        char *own = memory[thread];
        float *value = (float *)own;
        tiles_on();
        for (size layer = 0; layer < layers; layer++)
            pack_layer(parameters + layer * PARAMETERS, packed + layer * weights, width, wide, (number *)own);
#pragma omp barrier
        const size first = batch * thread / team, last = batch * (thread + 1) / team; /* sequences of this thread */
        const size from = first * length, to = last * length;
        for (size layer = layers - 1; layer >= 0; layer--) {
            const float *const *p = parameters + layer * PARAMETERS, *norm = norms + layer * 4 * rows;
            const number *wqkv = packed + layer * weights, *wo = wqkv + 3 * width * width, *w1 = wo + width * width;
            const number *w2 = w1 + width * wide, *in = layer ? x + (layer - 1) * area : hidden;
            const branches d = both[layer % 2], above = both[(layer + 1) % 2];
            const dropout drop1 = in_layer(of_attention, layer), drop2 = in_layer(of_output, layer);
            /* Without dropout the gradient of a residual is that of its branch, and is written once. */
            number *d_middle = drop2.below ? residual : d.output, *d_in = drop1.below ? residual : d.attention;
            const number *d_above = drop1.below ? residual : above.attention;
            float *norm_sums = sums + (thread * layers + layer) * columns, *inner_sums = norm_sums + 3 * width;
            float *split_sums = inner_sums + wide, *last_sums = split_sums + 3 * width;
            if (layer + 1 == layers)
                residual_norm_backward_rows(d_out, NULL, added2 + layer * area, norm + 2 * rows, norm + 3 * rows,
                                            p[G2], d_middle, d.output, last_sums, width, drop2, from, to);
            else
                linear_norm_backward_rows(above.qkv, wqkv + weights, d_above, added2 + layer * area,
                                          norm + 2 * rows, norm + 3 * rows, p[G2], d_middle, d.output, last_sums,
                                          3 * width, width, drop2, from, to, value);
            linear_gelu_backward_rows(d.output, w2, inner + layer * rows * wide, p[B1], d.inner, inner_sums, width,
                                      wide, from, to, value);
            linear_norm_backward_rows(d.inner, w1, d_middle, added1 + layer * area, norm, norm + rows, p[G1], d_in,
                                      d.attention, norm_sums, wide, width, drop1, from, to, value);
            linear_rows(d.attention, wo, NULL, d_context, width, width, from, to, value);
            attention_backward_units(d_context, qkv + layer * 3 * area, probs + layer * square, d.qkv, split_sums,
                                     batch * heads, heads, length, width / heads, scale, in_layer(of_probs, layer),
                                     first * heads, last * heads, own);
#pragma omp barrier
            float *d_wqkv = d_weights + layer * weights, *d_wo = d_wqkv + 3 * width * width;
            float *d_w1 = d_wo + width * width, *d_w2 = d_w1 + width * wide;
#pragma omp for schedule(static, 1) nowait
            for (int part = 0; part < threads; part++) {
                outer_rectangle(d.output, activated + layer * rows * wide, d_w2, rows, width, wide, part, threads, own);
                outer_rectangle(d.inner, middle + layer * area, d_w1, rows, wide, width, part, threads, own);
                outer_rectangle(d.attention, context + layer * area, d_wo, rows, width, width, part, threads, own);
                outer_rectangle(d.qkv, in, d_wqkv, rows, 3 * width, width, part, threads, own);
            }
        }
        linear_rows(both[0].qkv, packed, of_attention.below ? residual : both[0].attention, d_hidden, 3 * width, width,
                    from, to, value);
        tiles_off();
    }
    free_all(memory, threads), free(packed), free(grads);
    return 0;
}
