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
EXPORT void rotate(float *restrict y, i64 y_apart, const float *restrict x, i64 apart, const float *restrict cos, const float *restrict sin,
                   i64 rows, i64 heads, i64 width, float way) {
    i64 half = width / 2;
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows; i++) {
        const float *c = cos + i * width, *s = sin + i * width;
        for (i64 h = 0; h < heads; h++) {
            const float *from = x + i * apart + h * width;
            float *to = y + i * y_apart + h * width;
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

// The place of the largest number of each row, the first of equal ones.
EXPORT void largest(i64 *restrict places, const float *restrict x, i64 rows, i64 width) {
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < rows; i++) {
        const float *from = x + i * width;
        float most = -INFINITY;
        i64 block = 0;
        for (i64 start = 0; start < width; start += 1024) {
            i64 end = start + 1024 < width ? start + 1024 : width;
            float top = -INFINITY;
#pragma omp simd reduction(max : top)
            for (i64 j = start; j < end; j++) top = from[j] > top ? from[j] : top;
            if (top > most) most = top, block = start;
        }
        places[i] = block;
        for (i64 j = block; j < width; j++)
            if (from[j] == most) {
                places[i] = j;
                break;
            }
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

// A square of numbers turned over: blocks beside its diagonal change places, halves first, then quarters and so on.
static inline __attribute__((always_inline)) void turn_over(lanes x[LANES]) {
#define EXCHANGE(size, upper, lower)                                 \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) {       \
        if (i & size) continue;                                      \
        lanes a = x[i], b = x[i + size];                             \
        x[i] = upper;                                                \
        x[i + size] = lower;                                         \
    }
#if LANES == 16
    EXCHANGE(8, PICK(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
             PICK(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
    EXCHANGE(4, PICK(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
             PICK(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
    EXCHANGE(2, PICK(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
             PICK(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
    EXCHANGE(1, PICK(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
             PICK(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#elif LANES == 8
    EXCHANGE(4, PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11), PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
    EXCHANGE(2, PICK(a, b, 0, 1, 8, 9, 4, 5, 12, 13), PICK(a, b, 2, 3, 10, 11, 6, 7, 14, 15))
    EXCHANGE(1, PICK(a, b, 0, 8, 2, 10, 4, 12, 6, 14), PICK(a, b, 1, 9, 3, 11, 5, 13, 7, 15))
#else
    EXCHANGE(2, PICK(a, b, 0, 1, 4, 5), PICK(a, b, 2, 3, 6, 7))
    EXCHANGE(1, PICK(a, b, 0, 4, 2, 6), PICK(a, b, 1, 5, 3, 7))
#endif
}

// Scores of a block of `rows` queries and as many keys as a vector has numbers, of which both are turned over: [width, all] and a vector
// for each of `width`. Only those of `many` rows are written.
static inline __attribute__((always_inline)) void dots(float *restrict out, i64 apiece, const float *restrict queries, i64 all, i64 many,
                                                       int rows, const lanes *restrict keys, i64 width, float scale) {
    lanes sum[rows];
#pragma GCC unroll 24
    for (int r = 0; r < rows; r++) sum[r] = (lanes){0};
    for (i64 d = 0; d < width; d++)
#pragma GCC unroll 24
        for (int r = 0; r < rows; r++) sum[r] += queries[d * all + r] * keys[d];
#pragma GCC unroll 24
    for (int r = 0; r < rows; r++)
        if (r < many) *(lanes *)(out + r * apiece) = sum[r] * scale;
}

// Dot products of `many` queries with `count` keys, to [many, apiece], of which up to LANES - 1 behind `count` are written too. As many
// keys as a vector has numbers are turned over, so that each query meets all of them at once; each product is a sum in the order of
// `width`, whichever others are made beside it. Queries are turned over too, [width, all]; `turned` holds width vectors. If there are
// `values`, which come from far memory as the keys do, they are fetched meanwhile, with the keys that are next.
static void scores_of(float *restrict out, i64 apiece, const float *restrict queries, i64 all, i64 many, const float *const *restrict keys,
                      i64 count, i64 width, float scale, lanes *restrict turned, const float *const *restrict values) {
    for (i64 j = 0; j < count; j += LANES) {
        for (i64 d = 0; d < width; d += LANES) {
            lanes square[LANES];
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) square[l] = *(const lanes *)(keys[j + l < count ? j + l : count - 1] + d);
            turn_over(square);
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) turned[d + l] = square[l];
            for (int l = 0; l < LANES && values; l++) {
                __builtin_prefetch(keys[j + LANES + l < count ? j + LANES + l : count - 1] + d);
                __builtin_prefetch(values[j + l < count ? j + l : count - 1] + d);
            }
        }
        for (i64 r = 0; r < many;) {
            i64 left = many - r;
#define DOTS(rows) dots(out + r * apiece + j, apiece, queries + r, all, left, rows, turned, width, scale), r += rows
#if LANES == 16
            if (left > 12) DOTS(24);
            else
#endif
            if (left > 6) DOTS(12);
            else if (left > 3) DOTS(6);
            else DOTS(3);
        }
    }
}

// A piece of `parts` vectors of `rows` rows of the sums below.
static inline __attribute__((always_inline)) void sums(float *const *restrict out, int rows, const float *restrict weights, i64 row,
                                                       i64 step, const float *const *restrict x, i64 count, i64 at, int parts, int more) {
    lanes sum[rows][parts];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < parts; i++) sum[r][i] = more ? ((const lanes *)(out[r] + at))[i] : (lanes){0};
    for (i64 k = 0; k < count; k++) {
        const lanes *from = (const lanes *)(x[k] + at);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < parts; i++) sum[r][i] += weights[r * row + k * step] * from[i];
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < parts; i++) ((lanes *)(out[r] + at))[i] = sum[r][i];
}

// To each of `many` rows of `out`, or added to it if `more`, the sum of `count` rows of x, weighted by weights[r * row + k * step], in order.
static inline __attribute__((always_inline)) void mix_of(float *const *restrict out, i64 many, const float *restrict weights, i64 row,
                                                         i64 step, const float *const *restrict x, i64 count, i64 width, int more) {
    enum { TALL = 6, PARTS = LANES == 16 ? 4 : 2 };  // 24 sums in 32 registers, or 12 in 16
    for (i64 r = 0; r < many; r += TALL)
        for (i64 at = 0, parts = PARTS; at < width; at += parts * LANES) {
            if (at + PARTS * LANES > width) parts = 1;
#define SUMS(rows)                                                                                        \
    case rows:                                                                                            \
        if (parts == PARTS) sums(out + r, rows, weights + r * row, row, step, x, count, at, PARTS, more); \
        else sums(out + r, rows, weights + r * row, row, step, x, count, at, 1, more);                    \
        break;
            switch (many - r < TALL ? many - r : TALL) { SUMS(1) SUMS(2) SUMS(3) SUMS(4) SUMS(5) SUMS(6) }
        }
}

// In place, the first `count` of each of the rows [many, apiece] to their softmax, and what follows up to `shared` to zero.
static void softmax_of(float *x, i64 count, i64 many, i64 apiece, i64 shared) {
    i64 whole = (count + LANES - 1) / LANES * LANES;  // loops of whole vectors alone: a rest one by one takes as long as all before it
    for (i64 g = 0; g < many; g++) {
        float *row = x + g * apiece, top = -INFINITY, total = 0;
        for (i64 j = count; j < whole; j++) row[j] = -INFINITY;
#pragma omp simd reduction(max : top)
        for (i64 j = 0; j < whole; j++) top = row[j] > top ? row[j] : top;
#pragma omp simd reduction(+ : total)
        for (i64 j = 0; j < whole; j++) {
            float e = exp_of(row[j] - top);
            row[j] = e;
            total += e;
        }
        float share = 1 / total;
#pragma omp simd
        for (i64 j = 0; j < whole; j++) row[j] *= share;
        for (i64 j = count; j < (shared > whole ? shared : whole); j++) row[j] = 0;
    }
}

// In place, from the gradient to weights P to that to what softmax was taken of: P (x - sum(P x)), scaled.
static void slopes_of(float *restrict x, const float *restrict weights, i64 count, i64 many, float scale, i64 apiece, i64 shared) {
    i64 whole = (count + LANES - 1) / LANES * LANES;
    for (i64 g = 0; g < many; g++) {
        float *slope = x + g * apiece, mean = 0;
        const float *weight = weights + g * apiece;
        for (i64 j = count; j < whole; j++) slope[j] = 0;
#pragma omp simd reduction(+ : mean)
        for (i64 j = 0; j < whole; j++) mean += weight[j] * slope[j];
#pragma omp simd
        for (i64 j = 0; j < whole; j++) slope[j] = weight[j] * (slope[j] - mean) * scale;
        for (i64 j = count; j < shared; j++) slope[j] = 0;
    }
}

// What attention is told. Queries [nodes, kv_heads * groups, width], `q_apart` between nodes; keys and values [slots, kv_heads, width],
// `apart` between slots; the width a multiple of 16. Node i sees the `counts[i]` slots, at least one, from seen[starts[i]]. Nodes are taken
// together in tiles, from firsts[t] to firsts[t + 1]. The first `shared[t]` slots of each are those of the node that sees most of the
// tile, as far as it sees so many. `most` is 15 more than any node sees, and no tile has more than `tall` nodes.
typedef struct {
    const float *q, *keys, *values;
    const int32_t *seen;
    const i64 *starts, *counts, *firsts, *shared;
    i64 q_apart, k_apart, v_apart, tiles, kv_heads, groups, width, most, tall;
} Seen;

// Where a thread works: the rows it reads and writes, by their addresses, and the scores of a tile, twice on the way back.
typedef struct {
    i64 all;  // rows of a tile at most, and some more to read without harm
    lanes *turned;
    float *turned_queries, *turned_ups, *weights, *slopes;
    const float **queries, **ups, **keys, **values;
    float **outs, **d_keys, **d_values;
} Desk;

// Puts the desk up in `room`; returns how many bytes that takes.
static i64 put_up(Desk *at, char *room, const Seen *s) {
    char *free = room;
#define TAKE(what, count) at->what = (void *)free, free += ((count) * sizeof(*at->what) + 63) / 64 * 64
    i64 all = at->all = s->tall * s->groups + 24;
    TAKE(turned, s->width);
    TAKE(turned_queries, all * s->width);
    TAKE(turned_ups, all * s->width);
    TAKE(weights, all * s->most);
    TAKE(slopes, all * s->most);
    TAKE(queries, all);
    TAKE(ups, all);
    TAKE(outs, all);
    TAKE(keys, s->most);
    TAKE(values, s->most);
    TAKE(d_keys, s->most);
    TAKE(d_values, s->most);
    return free - room;
}

EXPORT i64 room_of(const Seen *s) {
    Desk at;
    return put_up(&at, 0, s);
}

// Rows of a tile that see the same slots, [from, to) of each one's own: all of them those that are shared, each node the rest of its own.
typedef struct {
    i64 row, many, from, to;
    const int32_t *seen;
} Piece;

static Piece piece_of(const Seen *s, i64 tile, i64 i) {
    i64 first = s->firsts[tile], last = s->firsts[tile + 1] - 1, shared = s->shared[tile];
    if (i) {
        i64 node = first + i - 1, count = s->counts[node];
        return (Piece){(i - 1) * s->groups, s->groups, count < shared ? count : shared, count, s->seen + s->starts[node]};
    }
    while (s->counts[last] < shared) last--;
    return (Piece){0, (s->firsts[tile + 1] - first) * s->groups, 0, shared, s->seen + s->starts[last]};
}

// The addresses of a piece's rows in an array.
static void find(const float **restrict to, const float *array, i64 apart, Piece p) {
    for (i64 j = p.from; j < p.to; j++) to[j] = array + p.seen[j] * apart;
}

// The addresses of a tile's rows in an array of [nodes, kv_heads * groups, width].
static void find_rows(const float **restrict to, const float *array, i64 apart, const Seen *s, i64 tile, i64 head) {
    for (i64 node = s->firsts[tile]; node < s->firsts[tile + 1]; node++)
        for (i64 g = 0; g < s->groups; g++) *to++ = array + node * apart + (head * s->groups + g) * s->width;
}

static void turn_rows(float *restrict to, i64 all, const float *const *restrict rows, i64 many, i64 width) {
    for (i64 r = 0; r < many; r += LANES)
        for (i64 d = 0; d < width; d += LANES) {
            lanes square[LANES];
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) square[l] = *(const lanes *)(rows[r + l < many ? r + l : many - 1] + d);
            turn_over(square);
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) *(lanes *)(to + (d + l) * all + r) = square[l];
        }
}

// Attention of nodes, to [nodes, kv_heads * groups, width]; `room` holds a desk a thread. A thread takes all heads of a tile, which lie
// side by side in memory.
EXPORT void attend(float *restrict out, const Seen *restrict s, char *restrict room, i64 threads) {
    i64 groups = s->groups, width = s->width, most = s->most;
    float scale = 1 / sqrtf(width);
#pragma omp parallel for schedule(dynamic, s->kv_heads) num_threads(threads)
    for (i64 task = 0; task < s->tiles * s->kv_heads; task++) {
        i64 tile = task / s->kv_heads, head = task % s->kv_heads, nodes = s->firsts[tile + 1] - s->firsts[tile];
        Desk at;
        put_up(&at, room + omp_get_thread_num() * room_of(s), s);
        find_rows(at.queries, s->q, s->q_apart, s, tile, head);
        find_rows((const float **)at.outs, out, s->kv_heads * groups * width, s, tile, head);
        turn_rows(at.turned_queries, at.all, at.queries, nodes * groups, width);
        for (i64 i = 0; i <= nodes; i++) {
            Piece p = piece_of(s, tile, i);
            find(at.keys, s->keys + head * width, s->k_apart, p);
            find(at.values, s->values + head * width, s->v_apart, p);
            // A tile of many queries, as training has them, is bound by arithmetic, and fetching ahead is in its way.
            scores_of(at.weights + p.row * most + p.from, most, at.turned_queries + p.row, at.all, p.many, at.keys + p.from, p.to - p.from, width,
                      scale, at.turned, p.many < 32 ? at.values + p.from : 0);
            if (i) softmax_of(at.weights + p.row * most, p.to, groups, most, s->shared[tile]);
        }
        for (i64 i = 0; i <= nodes; i++) {
            Piece p = piece_of(s, tile, i);
            if (i && p.from == p.to) continue;
            find(at.values, s->values + head * width, s->v_apart, p);
            mix_of(at.outs + p.row, p.many, at.weights + p.row * most + p.from, most, 1, at.values + p.from, p.to - p.from, width, i > 0);
        }
    }
}

// The gradients to q, contiguous, and to keys and values, [threads, slots, kv_heads, width], zero at first, whose sums they are. With P the
// weights: dV = P^T dO, dS = P (dO V^T - rowsum(P dO V^T)), dQ = dS K, dK = dS^T Q.
EXPORT void attend_back(float *restrict dq, float *restrict d_keys, float *restrict d_values, const float *restrict d_out, i64 slots,
                        const Seen *restrict s, char *restrict room, i64 threads) {
    i64 groups = s->groups, width = s->width, most = s->most, wide = s->kv_heads * width;
    float scale = 1 / sqrtf(width);
#pragma omp parallel for schedule(dynamic, s->kv_heads) num_threads(threads)
    for (i64 task = 0; task < s->tiles * s->kv_heads; task++) {
        i64 tile = task / s->kv_heads, head = task % s->kv_heads, nodes = s->firsts[tile + 1] - s->firsts[tile];
        i64 thread = omp_get_thread_num(), own = thread * slots * wide + head * width;
        Desk at;
        put_up(&at, room + thread * room_of(s), s);
        find_rows(at.queries, s->q, s->q_apart, s, tile, head);
        find_rows(at.ups, d_out, wide * groups, s, tile, head);
        find_rows((const float **)at.outs, dq, wide * groups, s, tile, head);
        turn_rows(at.turned_queries, at.all, at.queries, nodes * groups, width);
        turn_rows(at.turned_ups, at.all, at.ups, nodes * groups, width);
        for (i64 i = 0; i <= nodes; i++) {
            Piece p = piece_of(s, tile, i);
            i64 place = p.row * most + p.from, count = p.to - p.from;
            find(at.keys, s->keys + head * width, s->k_apart, p);
            find(at.values, s->values + head * width, s->v_apart, p);
            scores_of(at.weights + place, most, at.turned_queries + p.row, at.all, p.many, at.keys + p.from, count, width, scale, at.turned, 0);
            scores_of(at.slopes + place, most, at.turned_ups + p.row, at.all, p.many, at.values + p.from, count, width, 1, at.turned, 0);
            if (!i) continue;
            softmax_of(at.weights + p.row * most, p.to, groups, most, s->shared[tile]);
            slopes_of(at.slopes + p.row * most, at.weights + p.row * most, p.to, groups, scale, most, s->shared[tile]);
        }
        for (i64 i = 0; i <= nodes; i++) {
            Piece p = piece_of(s, tile, i);
            if (i && p.from == p.to) continue;
            i64 place = p.row * most + p.from, count = p.to - p.from;
            find(at.keys, s->keys + head * width, s->k_apart, p);
            find((const float **)at.d_keys, d_keys + own, wide, p);
            find((const float **)at.d_values, d_values + own, wide, p);
            mix_of(at.outs + p.row, p.many, at.slopes + place, most, 1, at.keys + p.from, count, width, i > 0);
            mix_of(at.d_values + p.from, count, at.weights + place, 1, most, at.ups + p.row, p.many, width, 1);
            mix_of(at.d_keys + p.from, count, at.slopes + place, 1, most, at.queries + p.row, p.many, width, 1);
        }
    }
}

// Products. Weights [in, out] are taken in panels of PANEL outputs, [in, PANEL], and a block of rows times a panel stays in registers. Each
// number is a sum in the order of `in`: the same to the bit whichever rows come along.
#if LANES == 16
enum { TALL = 8, PARTS = 3, STEPS = 1 };  // 24 sums in 32 registers
#else
// 12 sums in the 16 registers of AVX, 24 in the 32 of ARM. So few leave little time for counting and fetching: once in 8 steps.
enum { TALL = 6, PARTS = 16 / LANES, STEPS = 8 };
#endif
enum { PANEL = LANES * PARTS, DEEP = 1536, BLOCKS = 128 };  // inputs of a panel that near memory holds, and blocks it is laid out for
EXPORT const i64 panel_width = PANEL, panel_lanes = LANES;

// Weights [in, out], of which `down` lie between inputs and `across` between outputs, one of them 1.
typedef struct {
    const float *at;
    i64 down, across;
} Matrix;

// The first `columns` outputs of `deep` inputs to a panel, with zeros behind.
static void lay_out(float *restrict to, Matrix w, i64 deep, i64 columns) {
    if (columns < PANEL) memset(to, 0, deep * PANEL * sizeof(float));
    i64 k = 0;
    for (; w.across == 1 && k < deep; k++) memcpy(to + k * PANEL, w.at + k * w.down, columns * sizeof(float));
    for (; columns == PANEL && k + LANES <= deep; k += LANES)
        for (i64 c = 0; c < PANEL; c += LANES) {
            lanes square[LANES];
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) square[l] = *(const lanes *)(w.at + k + (c + l) * w.across);
            turn_over(square);
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++) *(lanes *)(to + (k + l) * PANEL + c) = square[l];
        }
    for (i64 c = 0; c < columns; c++)
        for (i64 rest = k; rest < deep; rest++) to[rest * PANEL + c] = w.at[rest + c * w.across];
}

// Weights [out, in] to panels, [panels, in, PANEL].
EXPORT void pack(float *restrict panels, const float *restrict weight, i64 out, i64 in) {
#pragma omp parallel for schedule(static)
    for (i64 first = 0; first < out; first += PANEL)
        lay_out(panels + first * in, (Matrix){weight + first * in, 1, in}, in, out - first < PANEL ? out - first : PANEL);
}

// One input of a block of rows times a panel.
static inline __attribute__((always_inline)) void meet(lanes sum[][PARTS], const float *const *restrict from, const float *restrict panel,
                                                       i64 k, int rows) {
    lanes weight[PARTS];
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) weight[i] = ((const lanes *)panel)[k * PARTS + i];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) sum[r][i] += from[r][k] * weight[i];
}

// y [rows, columns], added to what is there if `more`, from x [rows, deep] and a panel. `next` is fetched, `pace` 1024ths of a line a step.
static inline __attribute__((always_inline)) void block_of(float *restrict y, i64 y_apart, const float *restrict x, i64 x_apart,
                                                           const float *restrict panel, i64 deep, int rows, i64 columns, int more,
                                                           const char *restrict next, i64 pace) {
    lanes sum[TALL][PARTS];
    const float *from[TALL];
    float tile[TALL * PANEL], *to = columns < PANEL ? tile : y;
    i64 apart = columns < PANEL ? PANEL : y_apart, k = 0;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        from[r] = x + r * x_apart;
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) sum[r][i] = (lanes){0};
    }
    for (i64 come = 0, due = 0; k + STEPS <= deep; k += STEPS) {
        for (due += pace * STEPS; come < due; come += 1024) __builtin_prefetch(next + (come >> 4), 0, 2);
#pragma GCC unroll 8
        for (int j = 0; j < STEPS; j++) meet(sum, from, panel, k + j, rows);
    }
    for (; k < deep; k++) meet(sum, from, panel, k, rows);
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

// y = x w, [rows, out], of x [rows, in] and weights that are packed, or else laid out on the way. What few rows cost is reading the weights
// once, and a library made for many reads them late: of packed ones the next panel is on its way while one is multiplied.
static void multiply_by(float *restrict y, const float *restrict x, i64 apart, const float *restrict panels, Matrix w, i64 rows, i64 out,
                        i64 in, i64 threads) {
    i64 blocks = (rows + TALL - 1) / TALL, across = (out + PANEL - 1) / PANEL, groups = (blocks + BLOCKS - 1) / BLOCKS;
    while (groups < blocks && groups * across < 2 * threads) groups++;
    for (i64 start = 0; start < in; start += DEEP) {
        i64 deep = in - start < DEEP ? in - start : DEEP, lines = deep * PANEL * sizeof(float) / 64;
#pragma omp parallel for collapse(2) schedule(guided, 2) num_threads(threads)
        for (i64 g = 0; g < groups; g++)
            for (i64 p = 0; p < across; p++) {
                i64 first = g * blocks / groups, count = (g + 1) * blocks / groups - first;
                i64 columns = out - p * PANEL < PANEL ? out - p * PANEL : PANEL, pace = panels ? (lines << 10) / (count * deep) : 0;
                float room[DEEP * PANEL] __attribute__((aligned(64)));
                const float *panel = panels ? panels + (p * in + start) * PANEL : room;
                const float *next = panels ? panel + in * PANEL : room;  // past the end it is only a hint
                if (!panels) lay_out(room, (Matrix){w.at + start * w.down + p * PANEL * w.across, w.down, w.across}, deep, columns);
                for (i64 b = 0; b < count; b++) {
                    i64 row = (first + b) * rows / blocks, tall = (first + b + 1) * rows / blocks - row;
                    const char *share = (const char *)next + b * lines / count * 64;
#define BLOCK(tall)                                                                                                                   \
    case tall:                                                                                                                        \
        block_of(y + row * out + p * PANEL, out, x + row * apart + start, apart, panel, deep, tall, columns, start > 0, share, pace); \
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

// y = x w with packed weights.
EXPORT void product(float *restrict y, const float *restrict x, i64 apart, const float *restrict panels, i64 rows, i64 out, i64 in,
                    i64 threads) {
    multiply_by(y, x, apart, panels, (Matrix){0}, rows, out, in, threads);
}

// y = x w with weights as they lie.
EXPORT void multiply(float *restrict y, const float *restrict x, i64 apart, const float *restrict w, i64 down, i64 across, i64 rows, i64 out,
                     i64 in, i64 threads) {
    multiply_by(y, x, apart, 0, (Matrix){w, down, across}, rows, out, in, threads);
}

// The layers of a model that only reads.

// The weights of a layer, packed, the pool of its keys and values, and where a trace of the pass goes: what comes in, what attention gives,
// and what stands between it and the MLP. A bias, a norm of heads or the trace may be missing.
typedef struct {
    const float *norm1, *qk_norm, *qkv, *qkv_bias, *out, *out_bias, *norm2, *up, *up_bias, *down, *down_bias;
    float *keys, *values, *inputs, *seen, *middles;
} Weights;

static void add(float *restrict x, i64 apart, const float *restrict y, i64 y_apart, i64 rows, i64 width) {
#pragma omp parallel for schedule(static) if (rows > 64)
    for (i64 i = 0; i < rows; i++)
#pragma omp simd
        for (i64 j = 0; j < width; j++) x[i * apart + j] += y[i * y_apart + j];
}

// y = x W^T + bias.
static void project(float *restrict y, const float *restrict x, const float *restrict panels, const float *bias, i64 rows, i64 out, i64 in,
                    i64 threads) {
    product(y, x, in, panels, rows, out, in, threads);
    if (bias) add(y, out, bias, 0, rows, out);
}

static void leave(float *restrict to, const float *restrict x, i64 rows, i64 width, const i64 *restrict places) {
#pragma omp parallel for schedule(static) if (rows > 64)
    for (i64 i = 0; i < rows; i++) memcpy(to + (places ? places[i] : i) * width, x + i * width, width * sizeof(float));
}

// All layers over x [nodes, hidden], in place: of the last, only the rows `keep`, in rising order, which come to stand first. The keys and
// values of the nodes go into `slots`; `s` tells what they see there, its arrays of numbers are set here. Epsilons are those of the first
// norm, the norm of heads and the second. `room` holds nodes * (hidden + heads * width + 2 * (heads + 2 * kv_heads) * width + 3 * inner).
EXPORT void run_layers(float *restrict x, const Weights *restrict layers, i64 count, Seen *restrict s, i64 nodes, const i64 *restrict slots,
                       const i64 *restrict keep, i64 kept, const float *restrict cos, const float *restrict sin, i64 hidden, i64 inner,
                       const float *restrict epsilons, float *restrict room, char *restrict desks, i64 threads) {
    i64 width = s->width, kv = s->kv_heads, heads = kv * s->groups, wide = (heads + 2 * kv) * width, size = kv * width;
    float *h = room, *qkv = h + nodes * hidden, *turned = qkv + nodes * wide, *seen = turned + nodes * wide;
    float *both = seen + nodes * heads * width, *gated = both + nodes * 2 * inner;
    s->q = turned, s->q_apart = (heads + kv) * width, s->k_apart = s->v_apart = size;
    for (i64 l = 0; l < count; l++) {
        const Weights *w = layers + l;
        i64 rows = l < count - 1 ? nodes : kept;
        if (w->inputs) leave(w->inputs, x, nodes, hidden, 0);
        rms_norm(h, x, hidden, w->norm1, nodes, 1, hidden, epsilons[0]);
        project(qkv, h, w->qkv, w->qkv_bias, nodes, wide, hidden, threads);
        if (w->qk_norm) {  // by way of `both`, which is free here
            rms_norm(both, qkv, wide, w->qk_norm, nodes, heads + kv, width, epsilons[1]);
            rotate(turned, s->q_apart, both, s->q_apart, cos, sin, nodes, heads + kv, width, 1);
        } else
            rotate(turned, s->q_apart, qkv, wide, cos, sin, nodes, heads + kv, width, 1);
#pragma omp parallel for schedule(static) if (nodes > 64)
        for (i64 i = 0; i < nodes; i++) {
            memcpy(w->keys + slots[i] * size, turned + i * s->q_apart + heads * width, size * sizeof(float));
            memcpy(w->values + slots[i] * size, qkv + i * wide + s->q_apart, size * sizeof(float));
        }
        s->keys = w->keys, s->values = w->values;
        attend(seen, s, desks, threads);
        if (w->seen) leave(w->seen, seen, nodes, heads * width, 0);
        for (i64 i = 0; rows < nodes && i < rows; i++) {
            memmove(x + i * hidden, x + keep[i] * hidden, hidden * sizeof(float));
            memmove(seen + i * heads * width, seen + keep[i] * heads * width, heads * width * sizeof(float));
        }
        project(h, seen, w->out, w->out_bias, rows, hidden, heads * width, threads);
        add(x, hidden, h, hidden, rows, hidden);
        if (w->middles) leave(w->middles, x, rows, hidden, rows < nodes ? keep : 0);
        rms_norm(h, x, hidden, w->norm2, rows, 1, hidden, epsilons[2]);
        project(both, h, w->up, w->up_bias, rows, 2 * inner, hidden, threads);
        gate(gated, both, rows, inner);
        project(h, gated, w->down, w->down_bias, rows, hidden, inner, threads);
        add(x, hidden, h, hidden, rows, hidden);
    }
}
