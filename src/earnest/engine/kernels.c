// What lies between the products of matrices, each in one pass over memory. Float32 on CPU. The rows of an array lie in one piece each and
// follow one another, or stand `apart` numbers from one another. Loops are plain, so that the compiler turns them into vectors.

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef int64_t i64;

// e^x to 2 units in the last place (coefficients of Cephes), written so that it vectorises everywhere, which libm's does not.
static inline float exp_of(float x) {
    x = x < -87.3f ? -87.3f : x;
    x = x > 88.3f ? 88.3f : x;
    float n = rintf(x * 1.44269504088896341f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    union { int32_t bits; float value; } two = {.bits = ((int32_t)n + 127) << 23};
    return y * two.value;
}

// y = w x / rms(x) of each row; the weight has `heads` rows that follow one another. x has `apart` between rows of heads * width.
EXPORT void rms_norm(float *restrict y, const float *restrict x, i64 apart, const float *restrict w, i64 rows, i64 heads, i64 width,
                     float epsilon) {
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows * heads; i++) {
        const float *from = x + i / heads * apart + i % heads * width, *by = w + i % heads * width;
        float *to = y + i * width, square = 0;
#pragma omp simd reduction(+ : square)
        for (i64 j = 0; j < width; j++) square += from[j] * from[j];
        float inverse = 1 / sqrtf(square / width + epsilon);
#pragma omp simd
        for (i64 j = 0; j < width; j++) to[j] = from[j] * inverse * by[j];
    }
}

// The gradient to x: with u = w dy and n = x / rms(x), (u - n mean(u n)) / rms(x).
EXPORT void rms_norm_back(float *restrict dx, const float *restrict x, i64 apart, const float *restrict w, const float *restrict dy,
                          i64 rows, i64 heads, i64 width, float epsilon) {
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows * heads; i++) {
        const float *from = x + i / heads * apart + i % heads * width, *by = w + i % heads * width, *up = dy + i * width;
        float *to = dx + i * width, square = 0, along = 0;
#pragma omp simd reduction(+ : square)
        for (i64 j = 0; j < width; j++) square += from[j] * from[j];
#pragma omp simd reduction(+ : along)
        for (i64 j = 0; j < width; j++) along += up[j] * by[j] * from[j];
        float inverse = 1 / sqrtf(square / width + epsilon), part = along / width * inverse * inverse;
#pragma omp simd
        for (i64 j = 0; j < width; j++) to[j] = (up[j] * by[j] - from[j] * part) * inverse;
    }
}

// y = silu(g) u of rows [g, u].
EXPORT void gate(float *restrict y, const float *restrict both, i64 rows, i64 width) {
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows; i++) {
        const float *g = both + 2 * i * width, *u = g + width;
        float *to = y + i * width;
#pragma omp simd
        for (i64 j = 0; j < width; j++) to[j] = g[j] / (1 + exp_of(-g[j])) * u[j];
    }
}

// The gradient to both: with s = sigmoid(g), [dy u s (1 + g (1 - s)), dy g s].
EXPORT void gate_back(float *restrict d_both, const float *restrict both, const float *restrict dy, i64 rows, i64 width) {
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows; i++) {
        const float *g = both + 2 * i * width, *u = g + width, *up = dy + i * width;
        float *dg = d_both + 2 * i * width, *du = dg + width;
#pragma omp simd
        for (i64 j = 0; j < width; j++) {
            float s = 1 / (1 + exp_of(-g[j]));
            dg[j] = up[j] * u[j] * s * (1 + g[j] * (1 - s));
            du[j] = up[j] * g[j] * s;
        }
    }
}

// Each pair (x_i, x_i+D/2) of every head turned by the angle of its row, backwards where `way` is -1.
EXPORT void rotate(float *restrict y, const float *restrict x, i64 apart, const float *restrict cos, const float *restrict sin, i64 rows,
                   i64 heads, i64 width, float way) {
    i64 half = width / 2;
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows; i++) {
        const float *c = cos + i * width, *s = sin + i * width;
        for (i64 h = 0; h < heads; h++) {
            const float *from = x + i * apart + h * width;
            float *to = y + (i * heads + h) * width;
#pragma omp simd
            for (i64 j = 0; j < half; j++) {
                float a = from[j], b = from[j + half], turn = way * s[j];
                to[j] = a * c[j] - b * turn;
                to[j + half] = b * c[j] + a * turn;
            }
        }
    }
}

// Rows of logits x to y = e^z of z = (x - max) / t, which may be in place, with max, the sum of y and the sum of y z.
EXPORT void exponentials(float *y, const float *x, float *restrict most, float *restrict total, float *restrict mixed, float cold, i64 rows,
                         i64 width) {
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows; i++) {
        const float *from = x + i * width;
        float *to = y + i * width, top = -INFINITY;
        double sum = 0, dot = 0;
#pragma omp simd reduction(max : top)
        for (i64 j = 0; j < width; j++) top = from[j] > top ? from[j] : top;
        for (i64 start = 0; start < width; start += 4096) {  // short sums in single precision, the sum of sums in double
            i64 end = start + 4096 < width ? start + 4096 : width;
            float part = 0, along = 0;
#pragma omp simd reduction(+ : part, along)
            for (i64 j = start; j < end; j++) {
                float z = (from[j] - top) * cold, e = z < -87.3f ? 0 : exp_of(z);  // a token that is ruled out stays so
                to[j] = e;
                part += e;
                along += e * (z < -87.3f ? -87.3f : z);  // 0 times -inf is no number
            }
            sum += part;
            dot += along;
        }
        most[i] = top;
        total[i] = sum;
        mixed[i] = dot;
    }
}

// Keys and values [nodes, kv_heads, width] into their slots of pools [kv_heads, capacity, width].
EXPORT void append(float *restrict keys, float *restrict values, i64 capacity, const float *restrict k, i64 k_apart,
                   const float *restrict v, i64 v_apart, const int32_t *restrict slots, i64 nodes, i64 kv_heads, i64 width) {
    for (i64 i = 0; i < nodes; i++)
        for (i64 h = 0; h < kv_heads; h++) {
            i64 at = (h * capacity + slots[i]) * width;
            memcpy(keys + at, k + i * k_apart + h * width, width * sizeof(float));
            memcpy(values + at, v + i * v_apart + h * width, width * sizeof(float));
        }
}

// A vector is as long as the registers: the compiler takes longer ones apart through memory, ten times as slow.
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t places __attribute__((vector_size(4 * LANES)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

// Sums of as many vectors as one has numbers, as one: halves of two are added side by side, then quarters and so on. Overwrites them.
static inline __attribute__((always_inline)) lanes sums(lanes x[LANES]) {
#if LANES == 16
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        x[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               PICK(x[2 * i], x[2 * i + 1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++)
        x[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               PICK(x[2 * i], x[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
#pragma GCC unroll 8
    for (int i = 0; i < 2; i++)
        x[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
               PICK(x[2 * i], x[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    return PICK(x[0], x[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           PICK(x[0], x[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif LANES == 8
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11) + PICK(x[2 * i], x[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int i = 0; i < 2; i++)
        x[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13) + PICK(x[2 * i], x[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15);
    return PICK(x[0], x[1], 0, 2, 4, 6, 8, 10, 12, 14) + PICK(x[0], x[1], 1, 3, 5, 7, 9, 11, 13, 15);
#else
    for (int i = 0; i < 2; i++) x[i] = PICK(x[2 * i], x[2 * i + 1], 0, 1, 4, 5) + PICK(x[2 * i], x[2 * i + 1], 2, 3, 6, 7);
    return PICK(x[0], x[1], 0, 2, 4, 6) + PICK(x[0], x[1], 1, 3, 5, 7);
#endif
}

// Dot products of the queries [groups, width] with the rows of `seen`, to [groups, apiece]. Rows are taken a vector's number at a time, by
// one query after the other, so that they come from near memory for all but the first.
static inline __attribute__((always_inline)) void dots_of(float *restrict out, const float *restrict q, const float *restrict rows,
                                                          const int32_t *restrict seen, i64 count, i64 groups, int parts, float scale,
                                                          i64 apiece) {
    for (i64 j = 0; j < count; j += LANES)
        for (i64 g = 0; g < groups; g++) {
            lanes query[parts], dots[LANES];
#pragma GCC unroll 32
            for (int i = 0; i < parts; i++) query[i] = ((const lanes *)q)[g * parts + i];
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) {
                const lanes *row = (const lanes *)rows + (i64)seen[j + l < count ? j + l : count - 1] * parts;
                dots[l] = query[0] * row[0];
#pragma GCC unroll 32
                for (int i = 1; i < parts; i++) dots[l] += query[i] * row[i];
            }
            *(lanes *)(out + g * apiece + j) = sums(dots) * scale;
        }
}

// Sums of the rows of `seen` by weights [groups, apiece], to [groups, width].
static inline __attribute__((always_inline)) void mix_of(float *restrict out, const float *restrict weights, const float *restrict rows,
                                                         const int32_t *restrict seen, i64 count, i64 groups, int parts, i64 apiece) {
    memset(out, 0, groups * parts * sizeof(lanes));
    for (i64 j = 0; j < count; j += LANES)
        for (i64 g = 0; g < groups; g++) {
            lanes sum[parts], *to = (lanes *)out + g * parts;
#pragma GCC unroll 32
            for (int i = 0; i < parts; i++) sum[i] = to[i];
            for (i64 l = j; l < j + LANES && l < count; l++) {
                const lanes *row = (const lanes *)rows + (i64)seen[l] * parts;
#pragma GCC unroll 32
                for (int i = 0; i < parts; i++) sum[i] += weights[g * apiece + l] * row[i];
            }
#pragma GCC unroll 32
            for (int i = 0; i < parts; i++) to[i] = sum[i];
        }
}

// To each row of `seen`, the sum of vectors [groups, width] by its weights [groups, apiece]: the other way about.
static inline __attribute__((always_inline)) void spread_of(float *restrict rows, const float *restrict weights, const float *restrict x,
                                                            const int32_t *restrict seen, i64 count, i64 groups, int parts, i64 apiece) {
    for (i64 j = 0; j < count; j++) {
        lanes *row = (lanes *)rows + (i64)seen[j] * parts, sum[parts];
#pragma GCC unroll 32
        for (int i = 0; i < parts; i++) sum[i] = row[i];
        for (i64 g = 0; g < groups; g++)
#pragma GCC unroll 32
            for (int i = 0; i < parts; i++) sum[i] += weights[g * apiece + j] * ((const lanes *)x)[g * parts + i];
#pragma GCC unroll 32
        for (int i = 0; i < parts; i++) row[i] = sum[i];
    }
}

// In place, each of the rows [groups, apiece] to its softmax.
static void softmax_of(float *x, i64 count, i64 groups, i64 apiece) {
    for (i64 g = 0; g < groups; g++) {
        float *row = x + g * apiece, top = -INFINITY, total = 0;
#pragma omp simd reduction(max : top)
        for (i64 j = 0; j < count; j++) top = row[j] > top ? row[j] : top;
#pragma omp simd reduction(+ : total)
        for (i64 j = 0; j < count; j++) {
            float e = exp_of(row[j] - top);
            row[j] = e;
            total += e;
        }
#pragma omp simd
        for (i64 j = 0; j < count; j++) row[j] /= total;
    }
}

// In place, from the gradient to weights P to that to what softmax was taken of: P (x - sum(P x)), scaled.
static void slopes_of(float *restrict x, const float *restrict weights, i64 count, i64 groups, float scale, i64 apiece) {
    for (i64 g = 0; g < groups; g++) {
        float *slope = x + g * apiece, mean = 0;
        const float *weight = weights + g * apiece;
#pragma omp simd reduction(+ : mean)
        for (i64 j = 0; j < count; j++) mean += weight[j] * slope[j];
#pragma omp simd
        for (i64 j = 0; j < count; j++) slope[j] = weight[j] * (slope[j] - mean) * scale;
    }
}

// A number of vectors known beforehand stays in registers.
#define BY_PARTS(call)            \
    switch (width / LANES) {      \
    case 4: call(4); break;       \
    case 8: call(8); break;       \
    case 16: call(16); break;     \
    case 32: call(32); break;     \
    default: call((int)(width / LANES)); \
    }

// Attention of nodes, to [nodes, kv_heads * groups, width], the width a multiple of 16. Node i sees the `counts[i]` slots from
// seen[starts[i]], at least one, of pools [kv_heads, capacity, width]; `room` holds groups * apiece numbers a thread, and apiece is 15
// more than any node sees.
EXPORT void attend(float *restrict out, const float *restrict q, i64 apart, const float *restrict keys, const float *restrict values,
                   i64 capacity, const int32_t *restrict seen, const i64 *restrict starts, const i64 *restrict counts, i64 nodes,
                   i64 kv_heads, i64 groups, i64 width, float *restrict room, i64 apiece, i64 threads) {
    float scale = 1 / sqrtf(width);
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (i64 i = 0; i < nodes * kv_heads; i++) {
        i64 node = i / kv_heads, head = i % kv_heads, at = head * capacity * width, count = counts[node];
        const float *queries = q + node * apart + head * groups * width;
        const int32_t *own = seen + starts[node];
        float *weights = room + omp_get_thread_num() * groups * apiece;
#define FORWARD(parts)                                                              \
    dots_of(weights, queries, keys + at, own, count, groups, parts, scale, apiece); \
    softmax_of(weights, count, groups, apiece);                                     \
    mix_of(out + i * groups * width, weights, values + at, own, count, groups, parts, apiece)
        BY_PARTS(FORWARD)
    }
}

// The gradients to q, contiguous, and to keys and values, [threads, kv_heads, capacity, width], zero at first, whose sums they are.
// With P the weights: dV = P^T dO, dS = P (dO V^T - rowsum(P dO V^T)), dQ = dS K, dK = dS^T Q. `room` holds twice as much.
EXPORT void attend_back(float *restrict dq, float *restrict d_keys, float *restrict d_values, const float *restrict d_out,
                        const float *restrict q, i64 apart, const float *restrict keys, const float *restrict values, i64 capacity,
                        const int32_t *restrict seen, const i64 *restrict starts, const i64 *restrict counts, i64 nodes, i64 kv_heads,
                        i64 groups, i64 width, float *restrict room, i64 apiece, i64 threads) {
    float scale = 1 / sqrtf(width);
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (i64 i = 0; i < nodes * kv_heads; i++) {
        i64 node = i / kv_heads, head = i % kv_heads, at = head * capacity * width, count = counts[node], thread = omp_get_thread_num();
        i64 own_at = thread * kv_heads * capacity * width + at;
        const float *queries = q + node * apart + head * groups * width, *up = d_out + i * groups * width;
        const int32_t *own = seen + starts[node];
        float *weights = room + thread * 2 * groups * apiece, *slopes = weights + groups * apiece;
#define BACKWARD(parts)                                                                   \
    dots_of(weights, queries, keys + at, own, count, groups, parts, scale, apiece);       \
    softmax_of(weights, count, groups, apiece);                                           \
    dots_of(slopes, up, values + at, own, count, groups, parts, 1, apiece);               \
    spread_of(d_values + own_at, weights, up, own, count, groups, parts, apiece);         \
    slopes_of(slopes, weights, count, groups, scale, apiece);                             \
    spread_of(d_keys + own_at, slopes, queries, own, count, groups, parts, apiece);       \
    mix_of(dq + i * groups * width, slopes, keys + at, own, count, groups, parts, apiece)
        BY_PARTS(BACKWARD)
    }
}

// Products of few rows with many weights: what they cost is reading the weights once, and a library made for large ones reads them late.
// Weights [out, in] lie in panels of PANEL outputs, [panels, in, PANEL]; while one is multiplied, the next is on its way. A block of rows
// times a panel stays in registers, and each of its numbers is a sum in the order of `in`: the same to the bit whichever rows come along.
#if LANES == 16
enum { TALL = 8, PARTS = 3 };  // 24 sums in 32 registers
#else
enum { TALL = 6, PARTS = 16 / LANES };  // 12 in the 16 of AVX, 24 in the 32 of ARM
#endif
enum { PANEL = LANES * PARTS, DEEP = 1536, BLOCKS = 64 };  // inputs and blocks at a time, so that they stay in near memory
EXPORT const i64 panel_width = PANEL;

// Weights to panels, with zeros where the last has too few outputs.
EXPORT void pack(float *restrict panels, const float *restrict weight, i64 out, i64 in) {
#pragma omp parallel for schedule(static)
    for (i64 first = 0; first < out; first += PANEL) {
        float *to = panels + first * in;
        i64 columns = out - first < PANEL ? out - first : PANEL;
        if (columns < PANEL) memset(to, 0, in * PANEL * sizeof(float));
        for (i64 start = 0; start < in; start += LANES)
            for (i64 c = 0; c < columns; c++)
                for (i64 k = start; k < start + LANES && k < in; k++) to[k * PANEL + c] = weight[(first + c) * in + k];
    }
}

// y [rows, columns], added to what is there if `more`, from x [rows, deep] and a panel. `next` is fetched, `pace` 1024ths of a line a step.
static inline __attribute__((always_inline)) void block_of(float *restrict y, i64 y_apart, const float *restrict x, i64 x_apart,
                                                           const float *restrict panel, i64 deep, int rows, i64 columns, int more,
                                                           const char *restrict next, i64 pace) {
    lanes sum[TALL][PARTS];
    const float *from[TALL];
    float tile[TALL * PANEL], *to = columns < PANEL ? tile : y;
    i64 apart = columns < PANEL ? PANEL : y_apart, come = 0;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        from[r] = x + r * x_apart;
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) sum[r][i] = (lanes){0};
    }
    for (i64 k = 0; k < deep; k++, come += pace) {
        lanes weight[PARTS];
        __builtin_prefetch(next + (come >> 10) * 64, 0, 2);
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) weight[i] = ((const lanes *)panel)[k * PARTS + i];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < PARTS; i++) sum[r][i] += from[r][k] * weight[i];
    }
    if (more && columns < PANEL)
        for (int r = 0; r < rows; r++) memcpy(tile + r * PANEL, y + r * y_apart, columns * sizeof(float));
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) {
            lanes *at = (lanes *)(to + r * apart) + i;
            if (more) sum[r][i] += *at;
            *at = sum[r][i];
        }
    if (columns < PANEL)
        for (int r = 0; r < rows; r++) memcpy(y + r * y_apart, tile + r * PANEL, columns * sizeof(float));
}

// y = x W^T, [rows, out], of x [rows, in] and packed weights.
EXPORT void product(float *restrict y, const float *restrict x, i64 apart, const float *restrict panels, i64 rows, i64 out, i64 in,
                    i64 threads) {
    i64 blocks = (rows + TALL - 1) / TALL, across = (out + PANEL - 1) / PANEL, groups = (blocks + BLOCKS - 1) / BLOCKS;
    while (groups < blocks && groups * across < 2 * threads) groups++;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (i64 g = 0; g < groups; g++)
        for (i64 p = 0; p < across; p++) {
            i64 first = g * blocks / groups, count = (g + 1) * blocks / groups - first;
            i64 columns = out - p * PANEL < PANEL ? out - p * PANEL : PANEL;
            for (i64 start = 0; start < in; start += DEEP) {
                i64 deep = in - start < DEEP ? in - start : DEEP, lines = deep * PANEL * sizeof(float) / 64;
                const float *panel = panels + (p * in + start) * PANEL, *next = panel + deep * PANEL;  // past the end is only a hint
                for (i64 b = 0; b < count; b++) {
                    i64 row = (first + b) * rows / blocks, tall = (first + b + 1) * rows / blocks - row;
                    const char *share = (const char *)next + b * lines / count * 64;
#define BLOCK(tall)                                                                                                           \
    case tall:                                                                                                                \
        block_of(y + row * out + p * PANEL, out, x + row * apart + start, apart, panel, deep, tall, columns, start > 0, share, \
                 (lines << 10) / (count * deep));                                                                             \
        break;
                    switch (tall) {
                        BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4) BLOCK(5) BLOCK(6)
#if LANES == 16
                        BLOCK(7) BLOCK(8)
#endif
                    }
                }
            }
        }
}
