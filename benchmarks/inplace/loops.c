/* The in-place loops and their adjoints by hand, on one core: `NAME(n, x, [k,] y)` is the loop and
   `NAME_gradient(n, x, [k,] w, x_bar)` the gradient of half the weighted sum of squares of its result. */

#include <stdlib.h>
#include <string.h>

static const float DECAY = 0.9f, DOWN = 0.3f, RIGHT = 0.2f;
enum { ITEMS_PER_BIN = 8 };

void prefix(long n, const float *x, float *y) {
    y[0] = 0.0f;
    for (long i = 0; i < n - 1; i++) y[i + 1] = DECAY * y[i] + x[i + 1];
}

void prefix_gradient(long n, const float *x, const float *w, float *x_bar) {
    float *y = malloc(n * sizeof(float));
    prefix(n, x, y);
    for (long i = 0; i < n; i++) y[i] *= w[i]; /* now the cotangent of y */
    for (long i = n - 2; i >= 0; i--) {
        x_bar[i + 1] = y[i + 1];
        y[i] += DECAY * y[i + 1];
    }
    x_bar[0] = 0.0f;
    free(y);
}

static void exchange(float *a, long i, long j) {
    float mine = a[i], other = a[j];
    a[i] = other;
    a[j] = mine;
}

void swap(long n, const float *x, const int *k, float *y) {
    memcpy(y, x, n * sizeof(float));
    for (long i = 0; i < n; i++) exchange(y, i, k[i]);
}

void swap_gradient(long n, const float *x, const int *k, const float *w, float *x_bar) {
    swap(n, x, k, x_bar);
    for (long i = 0; i < n; i++) x_bar[i] *= w[i];
    for (long i = n - 1; i >= 0; i--) exchange(x_bar, i, k[i]);
}

void nested(long n, const float *x, float *a) {
    memcpy(a, x, n * n * sizeof(float));
    for (long i = 0; i < n - 1; i++)
        for (long j = 0; j < n - 1; j++) {
            float t = a[i * n + j];
            a[(i + 1) * n + j] += DOWN * t;
            a[i * n + j + 1] += RIGHT * t;
        }
}

void nested_gradient(long n, const float *x, const float *w, float *x_bar) {
    nested(n, x, x_bar);
    for (long i = 0; i < n * n; i++) x_bar[i] *= w[i];
    for (long i = n - 2; i >= 0; i--)
        for (long j = n - 2; j >= 0; j--)
            x_bar[i * n + j] += DOWN * x_bar[(i + 1) * n + j] + RIGHT * x_bar[i * n + j + 1];
}

void histogram(long n, const float *x, const int *k, float *h) {
    memset(h, 0, n / ITEMS_PER_BIN * sizeof(float));
    for (long i = 0; i < n; i++) h[k[i]] += x[i] * x[i];
}

void histogram_gradient(long n, const float *x, const int *k, const float *w, float *x_bar) {
    long bins = n / ITEMS_PER_BIN;
    float *h = malloc(bins * sizeof(float));
    histogram(n, x, k, h);
    for (long b = 0; b < bins; b++) h[b] *= w[b];
    for (long i = 0; i < n; i++) x_bar[i] = 2.0f * x[i] * h[k[i]];
    free(h);
}
